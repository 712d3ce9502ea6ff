"""The pages as text: what must stand on them, links that lead somewhere, nothing unescaped."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from apoint.book import CHAPTERS, ROWS
from apoint.book.site import pages, write
from apoint.book.site.search import entries, script
from apoint.book.site.shelf import Shelf, known_outcomes
from tests.book.sample_book import sample_shelf


class Reader(HTMLParser):
    """Collects elements, identifiers and links."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.events: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src") and tag == "a":
                self.links.append(value or "")
            if name.startswith("on"):
                self.events.append(name)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages(sample_shelf())


@pytest.fixture(scope="module")
def seen(made: dict[str, str]) -> dict[str, Reader]:
    return {name: read(text) for name, text in made.items()}


def test_a_page_for_each_chapter_and_the_lists(made: dict[str, str]) -> None:
    letters = [f"{letter.lower()}.html" for letter in CHAPTERS]
    assert list(made) == ["index.html", *letters, "errata.html", "reading.html"]


def test_every_internal_link_leads_somewhere(seen: dict[str, Reader]) -> None:
    number = 0
    for name, reader in seen.items():
        assert len(reader.ids) == len(set(reader.ids)), name
        for link in reader.links:
            file, _, anchor = link.partition("#")
            assert (file or name) in seen, f"{name}: {link}"
            assert not anchor or anchor in seen[file or name].ids, f"{name}: {link}"
            number += 1
    assert number > 200


def test_what_is_found_by_search_is_there(seen: dict[str, Reader]) -> None:
    found = entries(sample_shelf())
    assert len(found) == 6 + 3 + 1 + len(ROWS) - 5
    for entry in found:
        file, _, anchor = entry["place"].partition("#")
        assert anchor in seen[file].ids, entry["place"]


def test_nothing_gets_through(made: dict[str, str], seen: dict[str, Reader]) -> None:
    for name, reader in seen.items():
        assert reader.tags.count("script") == (2 if name == "index.html" else 1)
        assert "img" not in reader.tags
        assert "i" not in reader.tags
        assert reader.events == []
    assert "</script" not in script(sample_shelf())
    assert "<" not in script(sample_shelf()).split("const entries = ", 1)[1].split(";\n", 1)[0]
    for text in made.values():
        assert not re.search(r"(src|href)=\"(https?:)?//", text)


def test_a_claim_stands_there_with_all_that_belongs_to_it(made: dict[str, str]) -> None:
    page = made["e.html"]
    first = page.split('id="E1"')[1].split('id="E1b"')[0]
    assert "✎ holds as corrected" in page
    assert first.count("<svg") == 5
    assert "As written" in first
    assert "As corrected" in first
    assert "A factor" in first
    assert "Drawn again from our data: notes fig. C.2." in first
    assert "def check(run: object, wrong: bool = False) -&gt; Evidence:" in first
    assert "tests/book/sample_book.py" in first
    assert "What would change the answer: " in first
    assert "Vershynin (2018)" in first
    assert "✗ fails" in page
    assert "? not decided at this scale" in page
    assert "What would decide it: more pairs" in page
    last = page.split('id="E5"')[1]
    assert "<code>apoint book run E5</code>" in last
    assert "Not yet written." in made["b.html"]


def test_hints_and_solutions_are_folded_and_not_printed(made: dict[str, str]) -> None:
    exercise = made["e.html"].split('id="exercise-notes-C-1"')[1].split("</section>")[0]
    assert exercise.count("<details>") == 3
    assert "open" not in re.findall(r"<details[^>]*>", exercise)[0]
    assert 'class="aside"' in exercise
    assert "Checked by the machine: 2 numbers." in exercise
    assert re.search(
        r"@media print\{[^@]*\.aside\{display:none\}", made["e.html"].replace(",.aside", "{}.aside")
    )


def test_the_first_page_counts_the_outcomes(made: dict[str, str]) -> None:
    words = "".join(read(made["index.html"]).words)
    for expected in (
        "2 ✓ holds",
        "1 ✎ holds as corrected",
        "1 ✗ fails",
        "1 not yet run",
        "rows not yet written",
    ):
        assert expected in words
    assert f"{len(ROWS) - 5} rows not yet written" in words


def test_errata_and_reading(made: dict[str, str]) -> None:
    errata = "".join(read(made["errata.html"]).words)
    assert "3 places where the course is wrong, loose, or not what small networks show here: " in errata
    assert "2 shown by a number that the printed form gets wrong, 1 by a publication." in errata
    assert re.search(r"✗ number 0.*: −0\.05, must be at most −0\.5", errata)
    reading = made["reading.html"]
    assert reading.count("<li>") == 2
    assert all(f'href="e.html#{id}"' in reading for id in ("E1", "E1b", "E2", "E5"))


def test_an_erratum_stands_there_with_the_words_of_the_source(made: dict[str, str]) -> None:
    page = made["errata.html"]
    entries = page.split("<article")[1:]
    assert [entry.split('id="erratum-')[1].split('"')[0] for entry in entries] == ["B1.1", "E1", "E2.1"]
    cited, of_claim, checked = entries
    for entry, author in (
        (cited, "Lopès-Quintas, llm 3"),
        (of_claim, "Lopès-Quintas, notes C.1"),
        (checked, "Merad, theory 3"),
    ):
        assert '<blockquote lang="fr">«' in entry
        assert f"<figcaption>{author}</figcaption>" in entry
        assert "As written" in entry
        assert "As corrected" in entry
    assert "Source: Someone (1901)" in cited
    assert 'href="b.html#B1"' in cited
    assert 'href="e.html#E1"' in of_claim
    assert checked.count("must be at most −0.5") == 2
    assert "✎ holds as corrected" in checked


def test_a_chapter_names_its_errata_briefly(made: dict[str, str]) -> None:
    row = made["e.html"].split('id="E2"')[1].split('id="E3"')[0]
    assert "Also wrong in the source" in row
    assert 'href="errata.html#erratum-E2.1"' in row
    assert "The sum is negative." not in row
    assert 'href="errata.html#erratum-B1.1"' in made["b.html"]
    assert '<blockquote lang="fr">' in made["e.html"].split('id="E1"')[1].split('id="E1b"')[0]


def test_an_answer_that_is_wrong_is_not_called_checked() -> None:
    shelf = sample_shelf()
    answers = {number: [*shelf.outcomes["E3"].numbers] for number in shelf.exercises}
    page = pages(Shelf(shelf.claims, shelf.exercises, shelf.outcomes, answers))["e.html"]
    assert "The machine says no: 2 numbers." in page
    assert "Checked by the machine" not in page


@pytest.fixture
def nothing_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no outcome came with the package."""
    monkeypatch.setattr("apoint.book.published.FILE", tmp_path / "none.jsonl")


def test_records_become_pages(tmp_path: Path, nothing_published: None) -> None:
    shelf = sample_shelf()
    for id in ("E1", "E3"):
        shelf.outcomes[id].save(tmp_path / "book" / "records")
    standard = shelf.outcomes["E1b"]
    standard.save(tmp_path / "book" / "records")
    found = known_outcomes(tmp_path / "book")
    assert {id: one.verdict for id, one in found.items()} == {
        "E1": "holds as corrected",
        "E1b": "holds",
        "E3": "fails",
    }
    assert set(known_outcomes(tmp_path / "book", "standard")) == {"E1b"}
    files = write(Shelf(shelf.claims, shelf.exercises, found), tmp_path / "site")
    assert files[0] == tmp_path / "site" / "index.html"
    assert all(file.exists() for file in files)
    assert (tmp_path / "site" / "e.html").read_text().count("<svg") == 5


def test_the_largest_scale_counts(tmp_path: Path, nothing_published: None) -> None:
    from dataclasses import replace

    outcome = sample_shelf().outcomes["E2"]
    outcome.save(tmp_path / "records")
    replace(outcome, scale="standard", verdict="fails").save(tmp_path / "records")
    assert known_outcomes(tmp_path)["E2"].verdict == "fails"
    assert known_outcomes(tmp_path, "quick")["E2"].verdict == "holds"
