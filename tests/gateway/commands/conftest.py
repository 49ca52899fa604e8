"""Runs a command as the command line would, with its output and exit code."""

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Ran = tuple[int, str, str]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """``command(module, *arguments, **environ)`` is exit code, standard output, standard error."""

    def run(module: ModuleType, *arguments: object, **environ: str) -> Ran:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        code = module.run(parser.parse_args([str(argument) for argument in arguments]))
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def settings_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes text to ``packhorse.yaml`` and returns the file."""

    def write(text: str) -> Path:
        file = tmp_path / "packhorse.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return write
