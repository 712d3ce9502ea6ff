"""The report of an inspection as HTML: what it says, from which numbers, and that names cannot break it."""

import base64
import copy
import hashlib
import html as html_module
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import apoint
from apoint.doctor import ranges
from apoint.inspection.page import inspection_html
from apoint.inspection.values import number
from tests.inspection.samples import SAMPLES, draw, drawn, readings_of, sample, without_curves
from tests.report.test_page import Reader

ORDER = ["Findings", "The short trainings", "Through depth", "Layers and operations", "Readings", "Signs",
         "Not checked", "Stages"]  # fmt: skip
Page = Callable[[str], str]


@pytest.fixture
def page() -> Page:
    return drawn


def articles(text: str) -> list[str]:
    return [html_module.unescape(each) for each in re.findall(r"<article.*?</article>", text, re.S)]


def test_a_page_is_whole_and_in_order(page: Page) -> None:
    reader = Reader(page("full"))
    assert [data for path, data in reader.pieces if path[-1:] == ("h2",)] == ORDER
    assert [data for path, data in reader.pieces if path[-1:] == ("h1",)] == [
        "Most probable cause: vanishing-signal."
    ]
    text = reader.text()
    assert "The sign of it is -8.25 here. 1 more below." in text
    assert "■ Severe Inspection of Encoder" in text
    assert "3 1 severe, 1 warning, 1 note, 1 more follows from them" in text
    assert "63\u202f050 60\u202f000 trainable".replace("\u202f", " ") in text.replace("\u202f", " ")
    assert "4 2 outside the healthy range" in text
    assert "1.9 s all stages together" in text
    identifiers = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_each_finding_has_its_number_its_cause_and_the_treatment_beside_it(page: Page) -> None:
    report, found = sample(), articles(page("full"))
    assert len(found) == 4
    for place, (each, card) in enumerate(zip(report["findings"], found, strict=False), 1):
        for part in (
            each["code"],
            each["symptom"],
            each["cause"],
            each["treatment"]["words"],
            "A6 and A8",
            f"confidence {each['confidence']:.0%}".replace("%", "\u00a0%"),
            "stage: signal",
        ):
            assert part in card, part
        assert 'class="against"' in card
        treatment = card.split("What to change")[1]
        assert each["treatment"]["words"] in treatment
        for key in ("code", "command"):
            shown = f'id="{key}{place}">{each["treatment"].get(key)}</code>' in treatment
            assert shown == (key in each["treatment"])
            assert (f'data-copy="{key}{place}"' in treatment) == (key in each["treatment"])
    assert [re.search(r"(■|▲|○) \w+", card)[0] for card in found[:3]] == ["■ Severe", "▲ Warning", "○ Note"]  # type: ignore[index]
    assert "in <code>encoder.blocks.1</code>" in found[1]
    assert "−8.25 e-folds" in found[0]
    assert "Healthy: at least −7." in found[0]
    assert "Healthy: at most 0.001. Log scale." in found[2]


def test_what_follows_is_folded_with_its_cause(page: Page) -> None:
    folded = re.findall(r"<details>(.*?)</details>", page("full"), re.S)[0]
    assert "<summary>Also seen: 1 finding that follows from vanishing-signal</summary>" in folded
    for part in ("noisy-gradient", "-8.25", "Healthy: at least −7.", "Follows from vanishing-signal",
                 "Mend noisy-gradient."):  # fmt: skip
        assert part in folded


def test_a_healthy_model_is_told_so_first(page: Page) -> None:
    text = Reader(page("healthy")).text()
    assert "✓ Nothing wrong Inspection of Encoder Nothing wrong was found: 4 signs looked at" in text
    assert "None: nothing that was looked at points to something wrong." in text
    assert articles(page("healthy")) == []
    assert "0 outside the healthy range" in text


def test_what_failed_is_shown_with_its_place_and_shapes(page: Page) -> None:
    text = Reader(page("failed")).text()
    assert "At net.py:12 in forward: x = self.first(x)" in text
    assert "inputs float32 [64, 32]" in text
    assert "run failed" in text


def test_nothing_is_called_sound_where_a_stage_failed(page: Page) -> None:
    text = Reader(page("not-all-checked")).text()
    assert "Nothing wrong" not in text
    assert "? Not all checked" in text
    assert "Not all was: signal could not be checked." in text
    assert "signal 1.8 s failed" in text


def test_notes_alone_do_not_make_something_wrong() -> None:
    report = sample()
    report["findings"] = report["findings"][2:]
    text = Reader(draw(report)).text()
    assert "✓ Nothing wrong" in text
    assert "○ Note" in text


def test_operations_readings_and_signs_are_in_tables(page: Page) -> None:
    text = page("full")
    row = ["encoder.blocks.2.proj.tanh", "activation", "3", "0.125", f"{math.sqrt(4.0**-3 / 2):.3g}",
           "38\u00a0%", "62\u00a0%", "8"]  # fmt: skip
    cells = "".join(f"<td>{cell}</td>" for cell in row[1:])
    assert f'<th scope="row">{row[0]}</th>{cells}' in text
    assert "<td>−1.386 ± 0.062 per layer</td><td>exact for 64 examples; covers 100\u00a0% of" in text
    assert "<small>may look dead</small>" in text
    assert "<td>undefined</td><td>batch norm couples them</td>" in text
    assert "<td>−8.25</td><td>−7 to 7</td><td><strong>▼ below</strong></td><td></td>" in text
    assert "<td>0.3125</td><td>at most 0.4</td><td>inside</td><td>encoder.blocks.1</td>" in text
    assert "<td>4.75</td><td>no range</td><td></td>" in text
    assert "All 4 signs with their healthy ranges, 2 outside" in text
    assert "<dt>the schedule</dt><dd>none was given</dd>" in text
    assert "<dt>data</dt><dd>0.12 s</dd>" in text


@pytest.mark.parametrize(("num_layers", "folded"), [(8, False), (9, True)])
def test_a_long_table_of_operations_is_folded(num_layers: int, folded: bool) -> None:
    report = {**sample(num_layers), "curves": {}}
    summary = f"<summary>All {2 * num_layers} operations as a table</summary>"
    assert (summary in draw(report)) == folded


@pytest.mark.parametrize("name", ["full", "deep", "not-finite", "one-layer"])
def test_every_chart_says_what_it_shows(page: Page, name: str) -> None:
    captions = [
        each
        for each in re.findall(r"<figcaption>(.*?)</figcaption>", page(name), re.S)
        if "Healthy" not in each
    ]
    assert len(captions) == 6
    for caption in captions:
        assert re.search(r"[\d\u202f]+ of [\d\u202f]+ (points?|activations?)", caption), caption
        assert "Units: " in caption
    labels = re.findall(r'<svg[^>]*aria-label="([^"]*)"', page(name))
    assert all(labels)
    assert len(labels) == len(re.findall(r"<svg", page(name)))


def test_points_are_counted(page: Page) -> None:
    text = page("full")
    assert "Losses: 390 of 390 points are drawn of 3 short trainings. No smoothing. " in text
    assert "Learning rate as it is: 0.001 throughout." in text
    assert "Gradient norm: 144 of 144 points are drawn. Rows: all 6 layers, the first on top. All " in text
    assert "All names begin with encoder.blocks. No smoothing." in text
    assert "Signal: 12 of 12 points are drawn of 6 layers" in text
    assert "Gradient: 6 of 6 points are drawn of 6 layers" in text
    assert "Lost units: 6 of 6 activations drawn. Dead:" in text
    for series, points in (("second moment", 6), ("between examples", 6), ("gradient norm", 6), ("dead", 6),
                           ("saturated", 6)):  # fmt: skip
        assert f'data-series="{series}" data-points="{points}"' in text
    assert sorted(re.findall(r'data-title="([^"]*)" data-points="(\d+)"', text)) == [
        ("a tenth of the learning rate", "120"), ("as it is", "120"), ("one batch, again and again", "150"),
    ]  # fmt: skip
    assert "log scale" in re.findall(r"loss of each step[^<]*", text)[0]  # from 2.5 to 0.0014


def test_what_is_not_finite_is_shown_and_counted(page: Page) -> None:
    text = page("not-finite")
    reader = Reader(text)
    assert "The number is infinite and stands at the edge." in reader.text()
    assert "The number itself is not known." in reader.text()
    lines = [60, 120, 150]
    assert (
        f"Losses: {sum(lines)} of {sum(lines) + 5} points are drawn of 4 short trainings. 5 are not" in text
    )
    assert 'data-points="60"' in text
    assert "Gradient norm: 133 of 133 points are drawn." in text
    assert "Rings: 20 that are 0. Crosses: 3 that are not finite." in text
    assert len(re.findall(r"<circle[^>]*sign", text)) == 20
    assert len(re.findall(r"<path[^>]*sign", text)) == 3
    assert "Signal: 8 of 12 points are drawn (4 are 0, not finite or absent) of 6 layers" in text
    assert "Gradient: 4 of 6 points are drawn (2 are 0, not finite or absent)" in text
    assert "<td>∞</td>" in text
    assert "<td>not known ± ∞ per layer</td>" in text
    for broken in (">nan", ">inf<", ">infinity", "NaN"):
        assert broken not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)


def test_whatever_is_absent_the_page_is_whole() -> None:
    small = without_curves() | {"readings": {"noise": readings_of(1)["noise"]}, "seconds": {"data": 0.5}}
    for missing in [None, *small]:
        report = {name: value for name, value in small.items() if missing is not None and name != missing}
        reader = Reader(draw(report))
        assert len(reader.all("h1")) == 1
        assert "apoint" in reader.text("footer")


def test_without_short_trainings_it_says_so(page: Page) -> None:
    text = Reader(page("without-curves")).text()
    assert "No short training was made" in text
    assert "<figure" not in page("without-curves").replace('<figure class="against"', "")
    assert "Through depth" not in text


def test_a_deep_model_is_said_to_be_aggregated(page: Page) -> None:
    text = page("deep")
    assert "Rows: 150 layers, 3 to a row, the first on top. All names begin with encoder.blocks. " in text
    assert "Gradient norm: 1\u202f750 of 10\u202f500 points are drawn." in text
    assert "Neighbours that share a cell show the one farthest from the median" in text
    assert "All 300 operations as a table" in text
    assert len(text) < 1_000_000


def test_numbers_are_read_from_words() -> None:
    assert math.isnan(number("nan"))
    assert (number("infinity"), number("-infinity"), number(3)) == (math.inf, -math.inf, 3.0)
    for other in ("1.5", None, True, [1]):
        assert math.isnan(number(other))


@pytest.mark.parametrize("name", ["full", "not-finite"])
def test_the_same_values_give_the_same_bytes(page: Page, name: str) -> None:
    report = json.loads(json.dumps(SAMPLES[name](), allow_nan=False))
    before = copy.deepcopy(report)
    assert draw(report) == page(name)
    assert report == before
    assert not re.search(r"/tmp|pytest|/home|/root", page(name))


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_comes_from_elsewhere(page: Page, name: str) -> None:
    text = page(name)
    assert "http:" not in text
    assert "https:" not in text
    assert "//" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert re.findall(r"url\((?!#)", text) == []
    reader = Reader(text)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"img", "iframe", "object", "embed", "video", "audio", "form", "base", "image", "a"}
    assert reader.all("link") == [{"rel": "icon", "href": "data:,"}]
    (policy,) = [each["content"] for each in reader.all("meta") if "http-equiv" in each]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in (policy or "")


def test_hostile_names_stay_text(page: Page) -> None:
    text = page("hostile")
    reader = Reader(text)
    assert text.count("<script") == 1
    assert not reader.all("img")
    assert "window.hacked=1</script><img" in reader.text()
    assert "\x1b" not in text
    assert "\u202e" not in text
    for _, attributes in reader.elements:
        assert not [key for key in attributes if key.startswith("on")]
    tips = [attributes["data-tip"] for _, attributes in reader.elements if "data-tip" in attributes]
    assert any("<script>window.hacked=1</script>" in (tip or "") for tip in tips)


def test_a_real_inspection_is_drawn(tmp_path: Path) -> None:
    """From a model to the file: every finding, sign and layer of the report is on the page."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(160, 8, generator=generator)
    targets = (inputs[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            draw = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
            parameter.copy_(draw * 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    report = apoint.inspect(model, (inputs, targets), nn.CrossEntropyLoss(), optimizer, quick=True)
    report.to_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text == inspection_html(json.loads(json.dumps(report.to_dict(), allow_nan=False)))
    assert report.findings
    shown = Reader(text).text().replace("\u202f", " ")
    plain = re.sub(r"\s+", " ", html_module.unescape(text))
    for one in report.findings:
        for part in (one.code, one.symptom, one.cause, one.treatment.words):
            assert re.sub(r"\s+", " ", part) in plain
    for sign, value in report.signs.items():
        row = re.findall(rf'<th scope="row">{sign}</th>(.*?)</tr>', text)[0]
        low, high = ranges.healthy(sign) if sign in ranges.table() else (None, None)
        outside = (low is not None and value < low) or (high is not None and value > high)
        assert ("<strong>" in row) == outside
        assert ("no range" in row) == (low is None and high is None)
    for what in report.diagnosis.unchecked:
        assert what in shown
