"""Weights of Inception v3 from timm and torchvision: names, round trips, with the auxiliary head or not."""

import pytest
import torch
import torch.nn.functional as F

from apoint.errors import UsageError
from apoint.models import create, load_weights, save_weights
from apoint.models.layouts import layouts_of, to_ours, to_theirs
from tests.models.foreign import assert_keys
from tests.models.keys import key_digest, known_keys

KEYS = known_keys("inception3")
LIBRARIES = ("timm", "torchvision")


def small(**settings):
    facts = {"num_classes": 5, "input_size": 75, "width": 4}
    return create("inception-v3", **{**facts, **settings}).eval()


@pytest.mark.parametrize("place", KEYS)
def test_names_shapes_and_types_are_those_of_the_library(place):
    layout, name = place.split("/")
    with torch.device("meta"):
        model = create("inception-v3", auxiliary=name.endswith("_aux"))
    assert_keys(model, layout, KEYS[place])


@pytest.mark.parametrize("auxiliary", [False, True])
@pytest.mark.parametrize("layout", ["apoint", *LIBRARIES])
def test_there_and_back(layout, auxiliary, tmp_path):
    model, other = small(auxiliary=auxiliary), small(auxiliary=auxiliary)
    save_weights(model, tmp_path / "w.safetensors", layout)
    report = load_weights(other, tmp_path / "w.safetensors")
    # Both libraries have the same names, so that a file does not say whose it is.
    assert report.layout == ("apoint" if layout == "apoint" else "timm")
    assert load_weights(other, tmp_path / "w.safetensors", layout=layout).layout == layout
    assert report.matched == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    images = torch.randn(2, 3, 75, 75)
    assert torch.equal(model(images), other(images))


@pytest.mark.parametrize("auxiliary", [False, True])
def test_translation_is_undone_by_its_inverse(auxiliary):
    model = small(auxiliary=auxiliary)
    for layout in layouts_of(model).values():
        weights, unnamed = to_theirs(model, layout)
        assert (len(weights), unnamed) == (len(model.state_dict()), [])
        back = to_ours(model, weights, layout)
        assert (back.missing, back.extra, back.unnamed) == ({}, [], [])
        assert all(torch.equal(back.values[name], value) for name, value in model.state_dict().items())


class Theirs:
    """The network in evaluation, in the libraries' names; weights are drawn when they are first used.

    Numbers of channels are the published ones divided by `narrower`.
    """

    def __init__(self, num_classes, narrower=1):
        self.num_classes, self.narrower, self.weights = num_classes, narrower, {}

    def weight(self, name, *shape):
        if name not in self.weights:
            drawn = 0.3 * torch.randn(shape)
            self.weights[name] = 0.5 + drawn.abs() if name.endswith(("running_var", "bn.weight")) else drawn
        return self.weights[name]

    def conv(self, x, name, channels, size=(1, 1), stride=1, padding=(0, 0)):
        channels //= self.narrower
        weight = self.weight(f"{name}.conv.weight", channels, x.shape[1], *size)
        parts = ("running_mean", "running_var", "weight", "bias")
        norm = [self.weight(f"{name}.bn.{part}", channels) for part in parts]
        self.weights[f"{name}.bn.num_batches_tracked"] = torch.tensor(7)
        return F.relu(F.batch_norm(F.conv2d(x, weight, None, stride, padding), *norm, eps=0.001))

    def pool(self, x, name, channels):
        return self.conv(F.avg_pool2d(x, 3, 1, 1), f"{name}.branch_pool", channels)

    def at_35(self, x, name, pooled):
        y = self.conv(self.conv(x, f"{name}.branch5x5_1", 48), f"{name}.branch5x5_2", 64, (5, 5), 1, (2, 2))
        z = self.conv(x, f"{name}.branch3x3dbl_1", 64)
        z = self.conv(z, f"{name}.branch3x3dbl_2", 96, (3, 3), 1, (1, 1))
        z = self.conv(z, f"{name}.branch3x3dbl_3", 96, (3, 3), 1, (1, 1))
        return torch.cat([self.conv(x, f"{name}.branch1x1", 64), y, z, self.pool(x, name, pooled)], 1)

    def to_17(self, x, name):
        y = self.conv(x, f"{name}.branch3x3", 384, (3, 3), 2)
        z = self.conv(x, f"{name}.branch3x3dbl_1", 64)
        z = self.conv(z, f"{name}.branch3x3dbl_2", 96, (3, 3), 1, (1, 1))
        z = self.conv(z, f"{name}.branch3x3dbl_3", 96, (3, 3), 2)
        return torch.cat([y, z, F.max_pool2d(x, 3, 2)], 1)

    def at_17(self, x, name, inside):
        across, down = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        y = self.conv(x, f"{name}.branch7x7_1", inside)
        y = self.conv(y, f"{name}.branch7x7_2", inside, *across)
        y = self.conv(y, f"{name}.branch7x7_3", 192, *down)
        z = self.conv(x, f"{name}.branch7x7dbl_1", inside)
        z = self.conv(z, f"{name}.branch7x7dbl_2", inside, *down)
        z = self.conv(z, f"{name}.branch7x7dbl_3", inside, *across)
        z = self.conv(z, f"{name}.branch7x7dbl_4", inside, *down)
        z = self.conv(z, f"{name}.branch7x7dbl_5", 192, *across)
        return torch.cat([self.conv(x, f"{name}.branch1x1", 192), y, z, self.pool(x, name, 192)], 1)

    def to_8(self, x, name):
        y = self.conv(self.conv(x, f"{name}.branch3x3_1", 192), f"{name}.branch3x3_2", 320, (3, 3), 2)
        z = self.conv(x, f"{name}.branch7x7x3_1", 192)
        z = self.conv(z, f"{name}.branch7x7x3_2", 192, (1, 7), 1, (0, 3))
        z = self.conv(z, f"{name}.branch7x7x3_3", 192, (7, 1), 1, (3, 0))
        z = self.conv(z, f"{name}.branch7x7x3_4", 192, (3, 3), 2)
        return torch.cat([y, z, F.max_pool2d(x, 3, 2)], 1)

    def at_8(self, x, name):
        def both(x, place):
            across = self.conv(x, f"{name}.{place}a", 384, (1, 3), 1, (0, 1))
            return [across, self.conv(x, f"{name}.{place}b", 384, (3, 1), 1, (1, 0))]

        y = self.conv(x, f"{name}.branch3x3_1", 384)
        z = self.conv(x, f"{name}.branch3x3dbl_1", 448)
        z = self.conv(z, f"{name}.branch3x3dbl_2", 384, (3, 3), 1, (1, 1))
        sides = [*both(y, "branch3x3_2"), *both(z, "branch3x3dbl_3")]
        return torch.cat([self.conv(x, f"{name}.branch1x1", 320), *sides, self.pool(x, name, 192)], 1)

    def __call__(self, x):
        x = self.conv(x, "Conv2d_1a_3x3", 32, (3, 3), 2)
        x = self.conv(x, "Conv2d_2a_3x3", 32, (3, 3))
        x = F.max_pool2d(self.conv(x, "Conv2d_2b_3x3", 64, (3, 3), 1, (1, 1)), 3, 2)
        x = self.conv(self.conv(x, "Conv2d_3b_1x1", 80), "Conv2d_4a_3x3", 192, (3, 3))
        x = F.max_pool2d(x, 3, 2)
        for letter, pooled in zip("bcd", (32, 64, 64), strict=True):
            x = self.at_35(x, f"Mixed_5{letter}", pooled)
        x = self.to_17(x, "Mixed_6a")
        for letter, inside in zip("bcde", (128, 160, 160, 192), strict=True):
            x = self.at_17(x, f"Mixed_6{letter}", inside)
        x = self.at_8(self.at_8(self.to_8(x, "Mixed_7a"), "Mixed_7b"), "Mixed_7c")
        x, shape = F.adaptive_avg_pool2d(x, 1).flatten(1), (self.num_classes,)
        return F.linear(x, self.weight("fc.weight", *shape, x.shape[1]), self.weight("fc.bias", *shape))


def test_the_network_written_here_has_the_libraries_names_and_shapes():
    with torch.device("meta"):
        theirs = Theirs(1000)
        theirs(torch.zeros(1, 3, 299, 299))
    assert key_digest(theirs.weights) == KEYS["timm/inception_v3"]


@pytest.mark.parametrize("size", [(120, 139), (75, 75)])
def test_logits_of_a_converted_network_are_unchanged(size, tmp_path):
    torch.manual_seed(0)
    theirs, ours, images = Theirs(5, narrower=8), small(), torch.randn(2, 3, *size)
    wanted = theirs(images)
    torch.save(theirs.weights, tmp_path / "inception_v3_google-0cc3c7bd.pth")
    report = load_weights(ours, tmp_path / "inception_v3_google-0cc3c7bd.pth")
    assert (len(report.matched), report.left) == (566, [])
    assert (wanted[0] - wanted[1]).abs().max() > 0.01
    with torch.no_grad():
        torch.testing.assert_close(ours(images), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "layout", "mean", "resized_to", "interpolation"),
    [
        ("inception_v3_google-0cc3c7bd.pth", None, 0.5, 342, "bilinear"),
        ("w.safetensors", "torchvision", 0.5, 342, "bilinear"),
        ("w.safetensors", "timm", 0.5, 341, "bicubic"),
        ("inception_v3.gluon_in1k.safetensors", None, 0.485, 341, "bicubic"),
    ],
)
def test_public_weights_know_their_preprocessing(file, layout, mean, resized_to, interpolation, tmp_path):
    """torchvision's network turns ImageNet's colours into [-1, 1] itself; so ours gets them directly."""
    weights, _ = to_theirs(small(), layouts_of(small())["torchvision"])
    if file.endswith(".pth"):
        torch.save(weights, tmp_path / file)
    else:
        save_weights(small(), tmp_path / file, "torchvision")
    found = load_weights(small(), tmp_path / file, layout=layout).preprocessing
    assert found is not None
    assert (found.mean[0], found.size, found.interpolation) == (mean, 299, interpolation)
    assert int(found.size / found.crop_share) == resized_to


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_file_for_inference_fits_a_network_with_the_auxiliary_head(library, tmp_path):
    model, other = small(), small(auxiliary=True)
    before = {k: v.clone() for k, v in other.state_dict().items() if k.startswith("auxiliary")}
    save_weights(model, tmp_path / "w.safetensors", library)
    report = load_weights(other, tmp_path / "w.safetensors", layout=library)
    assert report.left == list(before)
    assert all(torch.equal(other.state_dict()[k], v) for k, v in before.items())
    images = torch.randn(2, 3, 75, 75)
    assert torch.equal(model(images), other(images))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_file_with_the_auxiliary_head_fits_a_network_without(library, tmp_path):
    model, other = small(auxiliary=True), small()
    save_weights(model, tmp_path / "w.safetensors", library)
    report = load_weights(other, tmp_path / "w.safetensors", layout=library)
    assert report.matched == list(other.state_dict())
    images = torch.randn(2, 3, 75, 75)
    assert torch.equal(model(images), other(images))


def test_another_size_and_number_of_classes(tmp_path):
    """A size below 299 has another pooling in the auxiliary head, and the same weights."""
    save_weights(small(auxiliary=True, input_size=299), tmp_path / "w.safetensors", "torchvision")
    other = small(num_classes=3, input_size=(80, 100), auxiliary=True)
    report = load_weights(other, tmp_path / "w.safetensors")
    assert report.left == [
        f"{head}.{kind}" for head in ("auxiliary.0.head", "head") for kind in ("weight", "bias")
    ]
    assert len(report.matched) == 580 - 4
    assert other(torch.randn(1, 3, 80, 100)).shape == (1, 3)


def test_what_the_libraries_do_not_have_is_not_saved_in_their_layout(tmp_path):
    for library in LIBRARIES:
        with pytest.raises(
            UsageError, match=rf"'{library}' has no place for stem\.layer1\.convolution\.bias"
        ):
            save_weights(small(norm="none"), tmp_path / "w.safetensors", library)
    assert not list(tmp_path.iterdir())


def test_a_narrower_network_does_not_take_public_weights(tmp_path):
    save_weights(small(), tmp_path / "w.safetensors", "timm")
    with pytest.raises(
        UsageError, match=r"stem\.layer1\.convolution\.weight is 4×3×3×3 in the file and 8×3×3×3 in the model"
    ):
        load_weights(small(width=8), tmp_path / "w.safetensors")
