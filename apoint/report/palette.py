"""The colours by what they mean, in light and in dark.

Figures are drawn in the light colours; `figures.svg` replaces each by its variable, with the light colour
to fall back on where no style sheet stands around the figure.
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
}
TEXT_ROLES = ("ink", "soft", "baseline", "candidate", "worsened")
GROUND_ROLES = ("paper", "panel", "notice", "margin")


def light(role: str) -> str:
    """The colour of a role on white paper."""
    return ROLES[role][0]


def variables(dark: bool) -> str:
    """The colours as CSS variables."""
    return "".join(f"--{role}:{colours[dark]};" for role, colours in ROLES.items())
