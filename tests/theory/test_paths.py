"""Paths on losses whose valleys are known, and through real modules with batch norm."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from torch import nn

from apoint.errors import UsageError
from apoint.theory import paths

LEFT, RIGHT = torch.tensor([-1.0, 0.0]).double(), torch.tensor([1.0, 0.0]).double()


def ring(point):
    """A circular valley of radius 1: the straight way between its opposite sides climbs to 1."""
    return (point.square().sum() - 1) ** 2


def tilted(point):
    """The same, with a small slope that tells the upper half from the lower one."""
    return ring(point) + 0.05 * (1 - point[1]) * point[1]


def generator():
    return torch.Generator().manual_seed(0)


# -- shapes ----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 1), st.integers(2, 6), st.sampled_from(["chain", "bezier"]))
def test_coefficients_are_shares(place, count, shape):
    """They are not negative and sum to 1, so that a path stays in the hull of its points."""
    path = paths.Path(torch.randn(count, 3, generator=generator()).double(), shape)
    shares = path.coefficients(place)
    assert float(shares.min()) >= 0
    assert float(shares.sum()) == pytest.approx(1, abs=1e-12)


def test_a_bezier_curve_against_repeated_interpolation():
    """De Casteljau: interpolate between neighbours until one point is left."""
    points = torch.randn(5, 3, generator=generator()).double()
    for place in (0.0, 0.2, 0.77, 1.0):
        left = points
        while len(left) > 1:
            left = (1 - place) * left[:-1] + place * left[1:]
        assert torch.allclose(paths.Path(points, "bezier").at(place), left[0], atol=1e-13)


def test_a_chain_against_numpy_interpolation():
    points = torch.randn(4, 2, generator=generator()).double()
    for place in (0.0, 0.1, 1 / 3, 0.5, 0.9, 1.0):
        expected = [np.interp(place, [0, 1 / 3, 2 / 3, 1], points[:, k].numpy()) for k in range(2)]
        assert paths.Path(points).at(place).tolist() == pytest.approx(expected, abs=1e-12)


def test_length_and_detour():
    """A chain by hand; a parabola by the integral of its speed."""
    bent = paths.Path(torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 0.0]]).double())
    assert bent.length == pytest.approx(10)
    assert bent.detour == pytest.approx(10 / 6)
    curve = paths.Path(torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 0.0]]).double(), "bezier")
    speed = integrate.quad(lambda t: math.hypot(2, 4 - 8 * t), 0, 1)[0]
    assert curve.length == pytest.approx(speed, rel=1e-6)


def test_corners_of_a_chain_are_looked_at():
    """A peak at the only corner, between the even places, is not missed."""
    path = paths.Path(torch.tensor([[0.0], [1.0], [0.0]]).double())
    assert paths.profile(path, lambda p: p.sum(), count=2).barrier == pytest.approx(1)


# -- a valley that is known ------------------------------------------------------------------------------


def test_the_straight_line_climbs_and_curves_go_round():
    straight = paths.profile(paths.line(LEFT, RIGHT), ring)
    assert straight.barrier == pytest.approx(1, abs=1e-12)
    nudge = torch.tensor([[-1.0, 0.0], [0.0, 0.3], [1.0, 0.0]]).double()
    curve = paths.fit(paths.Path(nudge, "bezier"), ring, generator(), 400, 0.05, num_places=4)
    bent = paths.fit(paths.Path(nudge), ring, generator(), 400, 0.05, num_places=4)
    band = paths.elastic_band(LEFT, RIGHT, tilted, num_pivots=7, num_steps=300, lr=0.05)
    for path in (curve, bent, band):
        assert torch.equal(path.points[0], LEFT)
        assert torch.equal(path.points[-1], RIGHT)
        assert paths.profile(path, ring).barrier < 0.35 * straight.barrier
    # half a circle is π/2 times the diameter; its 8 chords are shorter by 1 - sin(π/16)/(π/16) = 0.6 %
    assert band.detour == pytest.approx(math.pi / 2, rel=0.03)
    assert paths.profile(band, ring).barrier < 0.01
    assert paths.profile(curve, ring).barrier < paths.profile(bent, ring).barrier


def test_the_best_bezier_curve_by_brute_force():
    """One free point: the fit finds the height at which the mean loss, by quadrature, is least."""

    def mean(height):
        def loss(t):
            x, y = 2 * t - 1, 2 * t * (1 - t) * height
            return (x * x + y * y - 1) ** 2

        return integrate.quad(loss, 0, 1)[0]

    heights = np.linspace(0, 3, 3001)
    best = heights[np.argmin([mean(height) for height in heights])]
    start = paths.Path(torch.tensor([[-1.0, 0.0], [0.0, 0.5], [1.0, 0.0]]).double(), "bezier")
    found = paths.fit(start, ring, generator(), 1500, 0.05, num_places=8).points[1]
    assert float(found[1]) == pytest.approx(best, abs=0.02)  # noise of the places drawn
    assert float(found[0]) == pytest.approx(0, abs=0.02)


def test_more_bends_follow_the_valley_closer():
    barriers = []
    for bends in (1, 3):
        start = paths.chain(LEFT, RIGHT, bends)
        found = paths.fit(start, tilted, generator(), 600, 0.05, num_places=4)
        barriers.append(paths.profile(found, ring).barrier)
    assert barriers[1] < 0.5 * barriers[0]


def test_more_steps_places_and_rate_matter():
    start = paths.Path(torch.tensor([[-1.0, 0.0], [0.0, 0.3], [1.0, 0.0]]).double(), "bezier")
    few = paths.fit(start, ring, generator(), 5, 0.05)
    slow = paths.fit(start, ring, generator(), 200, 1e-4)
    many = paths.fit(start, ring, generator(), 200, 0.05)
    spread = paths.fit(start, ring, generator(), 200, 0.05, num_places=4)
    assert paths.profile(many, ring).barrier < 0.7 * paths.profile(few, ring).barrier
    assert paths.profile(many, ring).barrier < 0.7 * paths.profile(slow, ring).barrier
    assert not torch.equal(many.points, spread.points)


def test_springs_of_the_band():
    """Stiff springs keep distances equal; weak ones let pivots drift; momentum gets further."""
    even = paths.elastic_band(LEFT, RIGHT, tilted, 5, 100, 0.05)
    gaps = even.points.diff(dim=0).norm(dim=1)
    assert float(gaps.max() / gaps.min()) < 1.02
    lopsided = lambda p: ring(p) - 0.3 * p[0] * p[1]  # noqa: E731
    ratio = []
    for spring in (1e-3, 3.0):
        points = paths.elastic_band(LEFT, RIGHT, lopsided, 5, 200, 0.05, 0.5, spring).points
        gaps = points.diff(dim=0).norm(dim=1)
        ratio.append(float(gaps.max() / gaps.min()))
    assert ratio[1] < ratio[0]
    slow = paths.elastic_band(LEFT, RIGHT, tilted, 5, 30, 0.02, momentum=0.0)
    fast = paths.elastic_band(LEFT, RIGHT, tilted, 5, 30, 0.02, momentum=0.8)
    assert paths.profile(fast, ring).barrier < paths.profile(slow, ring).barrier


def test_a_profile_says_what_it_means():
    shown = paths.Profile([0, 0.5, 1], [0.1, 0.9, 0.3])
    assert shown.end == 0.3
    assert shown.highest == 0.9
    assert shown.barrier == pytest.approx(0.6)


# -- modules ---------------------------------------------------------------------------------------------


def data(count=200):
    random = generator()
    inputs = torch.randn(count, 4, generator=random).double()
    return inputs, (inputs[:, 0] * inputs[:, 1] > 0).long()


def net(seed, width=16, norm=False):
    torch.manual_seed(seed)
    layers = [nn.Linear(4, width), nn.BatchNorm1d(width) if norm else nn.Identity(), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(0.5), nn.Linear(width, 2)).double()


def trained(seed, **settings_):
    model, (inputs, targets) = net(seed, **settings_), data()
    model.eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(300):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return model.eval()


def test_a_landscape_is_the_module():
    """Same loss, same gradient as the module itself; the penalty is added; the module is not touched."""
    model, (inputs, targets) = net(0), data()
    model.eval()
    before = [p.clone() for p in model.parameters()]
    landscape = paths.Landscape(model, inputs, targets, F.cross_entropy)
    vector = landscape.vector(model).requires_grad_()
    loss = landscape(vector)
    loss.backward()
    own = F.cross_entropy(model(inputs), targets)
    own.backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    assert loss.item() == pytest.approx(own.item(), abs=1e-12)
    assert torch.allclose(vector.grad, gradient, atol=1e-12)
    with_penalty = paths.Landscape(model, inputs, targets, F.cross_entropy, l2=0.1)
    size = sum(p.square().sum() for p in model.parameters()).item()
    assert with_penalty(vector).item() == pytest.approx(own.item() + 0.1 * size)
    part = landscape.on(vector, inputs[:50], targets[:50]).item()
    assert part == pytest.approx(F.cross_entropy(model(inputs[:50]), targets[:50]).item())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_two_trained_networks_are_joined():
    """The barrier of the line is far above that of the fitted curve, chain and band."""
    first, second = trained(1), trained(2)
    inputs, targets = data()
    landscape = paths.Landscape(first, inputs, targets, F.cross_entropy)
    ends = landscape.vector(first), landscape.vector(second)
    straight = landscape.profile(paths.line(*ends), 31)
    batches = landscape.batches(64, generator())
    curve = paths.fit(paths.bezier(*ends), batches, generator(), 400, 0.05)
    assert torch.equal(curve.points[0], ends[0])
    assert torch.equal(curve.points[-1], ends[1])
    assert landscape.profile(curve, 31).barrier < 0.4 * straight.barrier
    assert straight.barrier > 2 * straight.end


def test_batch_norm_is_refreshed_on_the_way():
    """Fresh statistics are those of the data at that place; stale ones make a barrier of their own."""
    first, second = trained(1, norm=True), trained(2, norm=True)
    inputs, targets = data()
    fresh = paths.Landscape(first, inputs, targets, F.cross_entropy)
    stale = paths.Landscape(first, inputs, targets, F.cross_entropy, refresh=False)
    ends = fresh.vector(first), fresh.vector(second)
    middle = paths.line(*ends).at(0.5)
    network = fresh.network(middle)
    hidden = F.linear(inputs, network[0].weight, network[0].bias)
    assert torch.allclose(network[1].running_mean, hidden.mean(0), atol=1e-12)
    assert torch.allclose(network[1].running_var, hidden.var(0), atol=1e-12)
    assert network[1].momentum == first[1].momentum
    assert not network.training
    kept = stale.network(middle)
    assert torch.equal(kept[1].running_mean, first[1].running_mean)
    # at its own end the module is as good as it was, with statistics of 200 examples instead of running ones
    assert fresh.profile(paths.line(*ends), 3).losses[0] == pytest.approx(float(fresh(ends[0])), rel=0.05)
    assert stale.profile(paths.line(*ends), 3).losses[2] > 2 * fresh.profile(paths.line(*ends), 3).losses[2]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: paths.line(LEFT, torch.zeros(3)), r"same length, got shapes \(2,\) and \(3,\)"),
        (lambda: paths.line(LEFT, LEFT), "must differ"),
        (lambda: paths.bezier(LEFT, RIGHT, 0), "at least 1 bend, got 0"),
        (lambda: paths.Path(LEFT), "at least two points"),
        (lambda: paths.line(LEFT, RIGHT).at(1.5), "between 0 and 1, got 1.5"),
        (lambda: paths.fit(paths.line(LEFT, RIGHT), ring, generator()), "only its two ends"),
        (lambda: paths.fit(paths.chain(LEFT, RIGHT), ring, generator(), 0), "num_steps must be positive"),
        (lambda: paths.fit(paths.chain(LEFT, RIGHT), ring, generator(), lr=-1), "lr must be positive"),
        (lambda: paths.elastic_band(LEFT, RIGHT, ring, spring=0), "spring must be positive"),
        (
            lambda: paths.elastic_band(LEFT, RIGHT, ring, momentum=1),
            "momentum must be at least 0",
        ),
        (lambda: paths.profile(paths.line(LEFT, RIGHT), ring, 1), "count is 2 or more; got 1"),
        (lambda: paths.Landscape(nn.ReLU(), *data(), F.cross_entropy), "ReLU has no parameters"),
        (
            lambda: paths.Landscape(net(0), *data(), F.cross_entropy).vector(net(0, 8)),
            r"0.weight has shape \(16, 4\) in the first and has shape \(8, 4\) in the second",
        ),
        (
            lambda: paths.Landscape(net(0), *data(), F.cross_entropy).vector(net(0, norm=True)),
            "1.weight is missing in the first",
        ),
        (
            lambda: paths.Landscape(net(0), *data(), F.cross_entropy).batches(0, generator()),
            "batch_size must be positive",
        ),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
