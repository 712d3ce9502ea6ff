"""The colours by meaning, for light and dark mode.

Figures are drawn in the light colours; `figures.svg` replaces each with its variable, with the light colour
as a fallback where there is no style sheet around the figure.
"""

from __future__ import annotations

ROLES: dict[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#15181c"),
    "panel": ("#f5f4f0", "#1e2227"),
    "ink": ("#1a1d21", "#e8eaed"),
    "soft": ("#575e69", "#a9b1bc"),
    "rule": ("#dcdad4", "#363c45"),
    "edge": ("#8d939c", "#737b87"),
    "baseline": ("#5f6672", "#a3abb7"),
    "candidate": ("#0b62a4", "#75b9f3"),
    "worsened": ("#b2450c", "#f0a065"),
    "margin": ("#f1ead8", "#3b3625"),
    "notice": ("#fdf1dc", "#3a2f1b"),
    "series-1": ("#1d5fa6", "#7cb7f2"),
    "series-2": ("#b1490a", "#f1a262"),
    "series-3": ("#1a7548", "#63c794"),
    "series-4": ("#7a3da0", "#c89de8"),
    "series-5": ("#a81f5b", "#f08db2"),
    "series-6": ("#6f5f00", "#d3bf4b"),
    "series-7": ("#3f454d", "#c3c9d1"),
}
SERIES_ROLES = tuple(role for role in ROLES if role.startswith("series-"))
TEXT_ROLES = ("ink", "soft", "baseline", "candidate", "worsened")
GROUND_ROLES = ("paper", "panel", "notice", "margin")


def light(role: str) -> str:
    """The colour of a role on white paper."""
    return ROLES[role][0]


def variables(dark: bool) -> str:
    """The colours as CSS variables."""
    return "".join(f"--{role}:{colours[dark]};" for role, colours in ROLES.items())
