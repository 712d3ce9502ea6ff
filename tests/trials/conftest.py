"""A recipe that trains in a tenth of a second, and comparisons of it."""

from pathlib import Path
from typing import Any

import pytest

SMALL: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits", "limit": 240},
    "model": {"name": "mlp", "depth": 1, "width": 16},
    "optimizer": {"name": "adamw", "lr": 3e-3},
    "batch_size": 32,
    "epochs": 3,
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The recipe as a file."""
    import json

    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(SMALL))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where runs go."""
    return tmp_path / "runs"
