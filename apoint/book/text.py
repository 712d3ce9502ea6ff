"""Texts of the book, keyed by language.

    statement={"en": "A ball of radius $R$ …", "fr": "Une boule de rayon $R$ …"}
    statement="A ball of radius $R$ …"  # English alone

A text behaves as the string of its English version, so code that ignores languages needs no change.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

DEFAULT_LANGUAGE = "en"
LANGUAGES = (DEFAULT_LANGUAGE, "fr")


class Text(str):
    """A text in one or more languages; as a string, it is the English version."""

    by_language: dict[str, str]

    def __new__(cls, source: str | Mapping[str, str] = "") -> Text:
        """Create a text from its English version, or from several by language; indentation is removed."""
        if isinstance(source, Text):
            return source
        given = {DEFAULT_LANGUAGE: source} if isinstance(source, str) else dict(source)
        unknown = set(given) - set(LANGUAGES)
        assert not unknown, f"no such language as {', '.join(sorted(unknown))}; known: {', '.join(LANGUAGES)}"
        assert DEFAULT_LANGUAGE in given, "a text needs its English version"
        versions = {language: inspect.cleandoc(words) for language, words in given.items()}
        text = super().__new__(cls, versions[DEFAULT_LANGUAGE])
        text.by_language = versions
        return text

    def into(self, language: str) -> str:
        """Return the text in a language, or in English if it has not been translated."""
        return self.by_language.get(language, str(self))

    def __reduce__(self) -> tuple[type[Text], tuple[Mapping[str, str]]]:
        """What `copy` and `pickle` rebuild it from."""
        return Text, (self.by_language,)


Words = str | Mapping[str, str]  # what an author may give for a text
