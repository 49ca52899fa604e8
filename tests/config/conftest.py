"""A settings file in one line of a test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import load

ROUTES = "routes: [{name: all, upstream: http://u}]\n"


@pytest.fixture
def settings_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes text to ``packhorse.yaml`` and returns the file."""

    def write(text: str) -> Path:
        file = tmp_path / "packhorse.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def refusal(settings_file: Callable[[str], Path], tmp_path: Path) -> Callable[..., list[str]]:
    """The problems of a settings text, a line each, without the folder of the test."""

    def lines(text: str, **environ: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(settings_file(text), environ=environ, overrides={})
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return lines
