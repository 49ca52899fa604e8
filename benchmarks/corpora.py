"""Bodies in turns to count bytes on: the project's test corpora where they are, else what the project ships.

``PACKHORSE_CORPORA`` names the folder; without it, ``../shared/corpora`` beside the repository is tried. The folder has a
``load.py`` that expands its files.
"""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from gateway.sample.documents import turns

SETS = ("meetings", "minutes", "prepare", "revisions", "agents")
_SHIPPED = {"meeting": "meetings", "minutes": "minutes", "handbook/references": "prepare", "handbook": "revisions"}
"""Shipped document to the set it stands for."""
_QUICK = 4
"""In a quick run, one document of so many."""


def folder() -> Path | None:
    """Where the corpora are, or None."""
    named = os.environ.get("PACKHORSE_CORPORA")
    found = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "corpora"
    return found if (found / "load.py").is_file() else None


def documents(quick: bool) -> list[tuple[str, str]]:
    """Set and name of every document to count."""
    where = folder()
    if where is None:
        return [(kind, name) for name, kind in _SHIPPED.items()]
    load = _loader(where)
    found = [(kind, name) for kind in SETS if kind in load.SETS for name, *_ in load.docs(kind)]
    return found[::_QUICK] if quick else found


def bodies(kind: str, name: str) -> Iterator[bytes]:
    """The whole body of every turn of a document."""
    where = folder()
    if where is None:
        texts: Iterator[str] = iter(turns(name, 1))
    else:
        texts = next(texts for found, texts in _loader(where).iter_items(kind) if found == name)
    for text in texts:
        yield text.encode()


def _loader(where: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("packhorse_corpora", where / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
