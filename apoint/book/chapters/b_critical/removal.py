"""B2: blurred images for N epochs, then a fixed number of clean ones, under three rules for the rate."""

from __future__ import annotations

from typing import Any

from apoint.book.chapters.b_critical.critical_common import (
    Curves,
    Setting,
    accuracies,
    positive,
    recipe,
    series,
    setting,
    verdict,
)
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, ruled
from apoint.book.picture import Panel, Picture
from apoint.book.running import Running

ACHILLE = "Achille, Rovere and Soatto (2019), Critical learning periods in deep networks"
NEAR = 2.0  # points of accuracy that two networks may differ by and still count as equal


def deficit_arms(of: Setting) -> dict[str, dict[str, Any]]:
    """Annealed rates: no deficit, and a blur of each length with the same number of clean epochs after it."""
    arms = {"reference": recipe(of, of.total)}
    for length in of.lengths:
        # One length is also that of the moving window of B3, and goes on for as long as that.
        epochs = of.window_total if length == of.window else of.clean + length
        arms[f"blur {length}"] = recipe(of, epochs, "blur", length)
    return arms


def rate_arms(of: Setting) -> dict[str, dict[str, Any]]:
    """No deficit and the longest one, at rates that are annealed, reset after the deficit, or constant."""
    long = of.longest
    return {
        "reference": recipe(of, of.total),
        f"blur {long}": recipe(of, of.total, "blur", long),
        "reference, reset": recipe(of, of.total, None, long, rates="reset"),
        "blur, reset": recipe(of, of.total, "blur", long, rates="reset"),
        "reference, constant": recipe(of, of.total, rates="constant"),
        "blur, constant": recipe(of, of.total, "blur", long, rates="constant"),
    }


@claim(
    "B2",
    "The longer the deficit, the worse the end",
    kind="shape",
    statement=r"""
    Train on blurred images for $N$ epochs and then on clean ones, always for the same number of epochs, with
    a learning rate that falls from the first epoch on.

    - Removed early, the blur costs little against a network that never had it.
    - Removed late, it costs much, and the clean epochs after it do not make up for it.
    - So the network that was trained for the most epochs is the worst.
    """,
    refuted_by="the longest deficit no worse than no deficit or than a shorter one, or the shortest with "
    "a third of the longest one's loss",
    seconds={"quick": 8, "standard": 1650},
    planted={"is_swapped": True},
    details=r"""
    The experiment of Achille, Rovere and Soatto: blur by 4, SGD with momentum, batch norm, a rate that falls
    by the factor $0.97$ in each of their epochs. They give 160 clean epochs after up to 140 blurred ones.
    Here time is shortened, with the same fall of the rate over the clean epochs. The reference has no deficit
    and as many epochs in all as the network that it is compared with. At the scale `quick` the images are
    textures that a blur erases (320 images of 10 classes); at `standard` they are CIFAR-10 of $16\times16$
    pixels. Seeds 0 to 7 were used to choose the setting, 200 to 207 decide.

    The setting matters, and was looked for: on textures of 16 by 16 pixels with all frequencies, which a blur
    does not erase, a blur at a constant rate even helped (63.6 against 54.8 percent with 250 images, 57.4
    against 53.2 with 500), as an augmentation would. With high frequencies alone, of that size, it cost about
    3 points at a constant rate.

    The course sets this beside the eyesight of kittens, with a study of 1963: too long a time with a deficit
    of the eye impairs them for life, and where it is removed early they see nearly as well as others. (The
    paper of that year by Wiesel and Hubel closes one eye and records cells of the visual cortex.) The curve
    of the network has the same shape. It does not follow that it has the same cause: B2b looks at the rate.
    """,
    references=(ACHILLE, "Wiesel and Hubel (1963), Single-cell responses in striate cortex of kittens"),
)
def removal(run: Running, is_swapped: bool = False) -> Evidence:
    """Final accuracy against the length of the deficit; `is_swapped` takes the reference for the deficit."""
    of = setting(run)
    found = accuracies(run, deficit_arms(of))
    without = {length: found["reference"].at(of.clean + length) for length in of.lengths}
    with_blur = {length: found[f"blur {length}"].at(of.clean + length) for length in of.lengths}
    if is_swapped:
        without, with_blur = with_blur, without
    short, middle, long = of.lengths
    lost = {length: without[length] - with_blur[length] for length in of.lengths}
    numbers = [
        ruled(
            f"accuracy, {long} epochs of blur against none", verdict(without[long], with_blur[long]), "worse"
        ),
        ruled(
            f"accuracy, {long} epochs of blur against {middle}",
            verdict(with_blur[middle], with_blur[long]),
            "worse",
        ),
        positive(
            f"a third of what {long} epochs of blur cost, less what {short} cost",
            lost[long] / 3 - lost[short],
            "points of accuracy; above 0, early removal is near the reference",
        ),
    ]
    return Evidence(
        numbers,
        pictures=[_removal_picture(of, found)],
        would_take="more seeds, or more steps between the lengths",
    )


def _removal_picture(of: Setting, found: dict[str, Curves]) -> Picture:
    lengths = [0, *of.lengths]
    reference = [found["reference"].at(of.clean + length) for length in lengths]
    blurred = [reference[0], *(found[f"blur {length}"].at(of.clean + length) for length in of.lengths)]
    panel = Panel(
        "Deficit until epoch N",
        f"epochs of blur N, before {of.clean} clean ones",
        "test accuracy at the end (percent)",
        [
            series("blur for N epochs", lengths, blurred),
            series("no deficit, as many epochs in all", lengths, reference, "dashed"),
        ],
    )
    caption = "The later the blur is removed, the worse the network ends, although it trained longer. "
    return Picture(caption + "Means over seeds with two standard errors.", [panel], "notes fig. 1.3")


@claim(
    "B2b",
    "Most of the drop is the annealed rate",
    kind="direction",
    statement=r"""
    In B2 the network meets the clean images when its learning rate has already fallen. Reset the rate as the
    blur is removed, or keep it constant throughout, and the longest deficit costs less than half as much
    against a network without deficit, trained for as many epochs with the same rates.
    """,
    refuted_by="a reset or a constant rate under which half of the drop is left",
    seconds={"quick": 14, "standard": 2900},
    planted={"is_swapped": True},
    details=r"""
    The networks of B2 with the longest deficit. After 140 epochs of the paper the rate is at
    $0.97^{140}\approx0.014$ of its first value, and 160 clean epochs at such rates cannot teach a network
    much, whatever it saw before. Replications that anneal in this way find that even a flip or permuted
    labels leave a drop, and that the training accuracy falls with it: the networks are not scarred but not
    trained. What is left of the drop at a constant rate is the effect of the deficit itself; the paper
    reports one on a longer time scale, and the remark gives it for this scale.
    """,
    references=(ACHILLE, "Ash and Adams (2020), On warm-starting neural network training"),
)
def rates_and_removal(run: Running, is_swapped: bool = False) -> Evidence:
    """The drop of the longest deficit under three rules for the rate; `is_swapped` exchanges the rules."""
    of = setting(run)
    found = accuracies(run, rate_arms(of))
    lost = {
        "annealed": found["reference"].end - found[f"blur {of.longest}"].end,
        "reset": found["reference, reset"].end - found["blur, reset"].end,
        "constant": found["reference, constant"].end - found["blur, constant"].end,
    }
    if is_swapped:
        lost = {"annealed": lost["reset"], "reset": lost["annealed"], "constant": lost["annealed"]}
    numbers = [
        positive(
            f"half of the drop with an annealed rate, less that with a {other} one",
            lost["annealed"] / 2 - lost[other],
            f"drops of {lost['annealed'].mean():.1f} and {lost[other].mean():.1f} points of accuracy",
        )
        for other in ("reset", "constant")
    ]
    left = verdict(found["reference, constant"].end, found["blur, constant"].end)
    low, high = left.interval
    said = f"{left.outcome}, {left.effect:.1f} points, 95 % interval {low:.1f} to {high:.1f}"
    return Evidence(
        numbers,
        pictures=[_rates_picture(of, found)],
        remark=f"At a constant rate, the longest deficit against none: {said}.",
        would_take="more seeds",
    )


def _rates_picture(of: Setting, found: dict[str, Curves]) -> Picture:
    panels = []
    for title, reference, blurred in (
        ("Annealed, not reset", "reference", f"blur {of.longest}"),
        ("Reset at removal", "reference, reset", "blur, reset"),
        ("Constant", "reference, constant", "blur, constant"),
    ):
        curves = [
            series(label, found[name].epochs, list(found[name].values.T), style)
            for label, name, style in (("blur", blurred, "line"), ("no deficit", reference, "dashed"))
        ]
        panels.append(Panel(title, "epoch", "test accuracy (percent)", curves))
    caption = f"Blurred images for {of.longest} epochs, then clean ones, under three rules for the rate. "
    return Picture(caption + "Means over seeds with two standard errors.", panels)


@claim(
    "B2c",
    "Hardly behind a fresh network with the same clean epochs",
    kind="direction",
    statement=r"""
    A strong form of B2 would be that the network with a long deficit ends worse than a fresh one that is
    given only the clean epochs, at the same rates. B2 does not show that. With an annealed rate, a fresh
    network trained with the tail of the schedule ends no better. With a rate that is reset or constant, a
    fresh network is ahead by less than a quarter of the drop of B2, if at all.
    """,
    refuted_by="a fresh network ahead under the tail of the annealed rates, or ahead by a quarter of the "
    "drop of B2 under the others",
    seconds={"quick": 12, "standard": 2700},
    planted={"is_swapped": True},
    details=r"""
    An exponential schedule without its first $N$ epochs is the same schedule from a lower first rate, little
    more than a hundredth after the longest deficit. The fresh network for the annealed arm begins there, and
    has only the clean epochs. For the other two it is the network without deficit after as many epochs as
    the other one has clean ones. Two networks within two points of accuracy count as equal under the tail.
    At the scale `quick` the blur erases what the classes differ in, so nothing that is learned
    before is of use: whatever puts the fresh network ahead is a mark of the deficit.
    """,
    references=(ACHILLE, "Ash and Adams (2020), On warm-starting neural network training"),
)
def against_fresh(run: Running, is_swapped: bool = False) -> Evidence:
    """The longest deficit against fresh networks; `is_swapped` takes one for the other."""
    of = setting(run)
    arms = {name: arm for name, arm in rate_arms(of).items() if name != "reference, reset"}
    arms["fresh, tail"] = recipe(of, of.clean, first=of.factor**of.longest)
    found = accuracies(run, arms)
    drop = found["reference"].end - found[f"blur {of.longest}"].end
    fresh = [
        found["fresh, tail"].end,
        found["reference"].at(of.clean),
        found["reference, constant"].at(of.clean),
    ]
    after = [found[name].end for name in (f"blur {of.longest}", "blur, reset", "blur, constant")]
    if is_swapped:
        drop, fresh, after = -drop, after, fresh
    tail = verdict(fresh[0], after[0], margin=NEAR)
    numbers = [ruled("accuracy, annealed: deficit against fresh", tail, "better", "equivalent")]
    for name, one, other in zip(("reset", "constant"), fresh[1:], after[1:], strict=True):
        numbers.append(
            positive(
                f"{name}: a quarter of the drop of B2, less what a fresh network is ahead",
                drop / 4 - (one - other),
                f"fresh {one.mean():.1f} %, after the deficit {other.mean():.1f} %",
            )
        )
    bars = [
        series(label, [place + shift for place in range(3)], values, "points")
        for label, shift, values in (("after the deficit", -0.1, after), ("fresh", 0.1, fresh))
    ]
    panel = Panel(
        f"The same {of.clean} clean epochs",
        "learning rate",
        "test accuracy at the end (percent)",
        bars,
        x_names=("annealed", "reset", "constant"),
    )
    caption = f"After {of.longest} epochs of blur and from a fresh start. Means with two standard errors."
    return Evidence(numbers, pictures=[Picture(caption, [panel])], would_take="more seeds")
