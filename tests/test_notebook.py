"""What a notebook shows of a result: the sentence in bold, the rest in columns, foreign text escaped."""

from html.parser import HTMLParser
from pathlib import Path

import torch
from torch import nn

import apoint
from apoint.notebook import as_html
from apoint.store import Run


class Text(HTMLParser):
    """The text of a page, by element."""

    def __init__(self) -> None:
        super().__init__()
        self.by_element: dict[str, str] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside = tag

    def handle_data(self, data: str) -> None:
        self.by_element[self._inside] = self.by_element.get(self._inside, "") + data


def read(page: str) -> dict[str, str]:
    parser = Text()
    parser.feed(page)
    return parser.by_element


def test_the_sentence_is_bold_and_columns_stay() -> None:
    shown = read(as_html("a sentence on\ntwo lines\n\n  a   1\n  bb  2"))
    assert shown == {"strong": "a sentence on two lines", "pre": "  a   1\n  bb  2"}


def test_foreign_text_is_no_markup() -> None:
    hostile = "<script>alert(1)</script>"
    shown = read(as_html(f"{hostile}\n\n{hostile}"))
    assert shown == {"strong": hostile, "pre": hostile}


def test_a_verdict_an_inspection_and_a_run_have_a_display(tmp_path: Path) -> None:
    verdict = apoint.verdict.decide([0.9, 0.91, 0.9, 0.92, 0.9, 0.9], [0.95] * 6, margin=0.01, looks=(6,))
    assert read(verdict._repr_html_())["strong"].startswith("better: ")
    assert "effect" in read(verdict._repr_html_())["pre"]

    x, y = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 2
    report = apoint.inspect(nn.Linear(4, 2), (x, y))
    assert read(report._repr_html_())["strong"] == report.name

    small = {"data": {"name": "digits", "limit": 100}, "model": {"name": "mlp", "width": 4, "depth": 1}}
    run = apoint.train({**small, "epochs": 1}, runs_root=tmp_path)
    shown = read(run._repr_html_())
    assert shown["strong"] == repr(run)
    assert "test_accuracy" in shown["pre"]
    metrics = run.folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("1", "2"))
    assert "has changed since the run was sealed" in read(Run(run.folder)._repr_html_())["pre"]
