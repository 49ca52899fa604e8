"""Vectors for the tests of this folder: our own, and those of an independent implementation where they are at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Time limits of single examples say more about the machine than about the code; test_parse.py has its own, generous ones.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

OWN = Path(__file__).resolve().parent / "vectors"
ROOT = Path(__file__).resolve().parents[2]


def independent_folder() -> Path | None:
    """Return the folder `PACKHORSE_VECTORS` names, or `../shared/vectors` beside the repository, or None."""
    named = os.environ.get("PACKHORSE_VECTORS")
    folder = Path(named) if named else ROOT.parent / "shared" / "vectors"
    return folder if (folder / "pack_v1.json").is_file() else None


@pytest.fixture(params=["own", "independent"])
def vectors(request: pytest.FixtureRequest) -> dict[str, list[dict[str, Any]]]:
    """The cases of one set, as lists under `pack`, `delta` and `refused`."""
    folder = OWN if request.param == "own" else independent_folder()
    if folder is None:
        pytest.skip("no independent vectors: PACKHORSE_VECTORS names no folder and ../shared/vectors is not there")
    names = ("pack", "delta", "refused")
    return {name: json.loads((folder / f"{name}_v1.json").read_text(encoding="utf-8")) for name in names}


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT
