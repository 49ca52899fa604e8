"""A bare copy of the folder, and the one file, under every Python from 3.9 on that is here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ctxpack import ContextPack

VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


@cache
def pythons() -> dict[tuple[int, int], str]:
    """Return one interpreter for each version from 3.9 on: those on the path and those pyenv keeps."""
    root = Path(os.environ.get("PYENV_ROOT") or Path("~/.pyenv").expanduser())
    found = [shutil.which(f"python3.{minor}") for minor in range(9, 30)]
    candidates = [sys.executable, *filter(None, found), *map(str, sorted(root.glob("versions/3.*/bin/python")))]
    versions: dict[tuple[int, int], str] = {}
    for candidate in candidates:
        done = subprocess.run([candidate, "-I", "-c", VERSION], capture_output=True, text=True, timeout=30)
        if done.returncode == 0:  # a pyenv shim answers only for the version that is active
            major, minor = map(int, done.stdout.split("."))
            if (major, minor) >= (3, 9):
                versions.setdefault((major, minor), candidate)
    return dict(sorted(versions.items()))


def bare_copy(root: Path, folder: Path) -> Path:
    """Copy what `ctxpack.pyz` holds to `folder` and return it."""
    (folder / "ctxpack").mkdir(parents=True)
    for file in sorted((root / "ctxpack").glob("*.py")):
        shutil.copy(file, folder / "ctxpack")
    return folder


def run(command: list[str], folder: Path, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, input=data, capture_output=True, timeout=60, env=environment)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "python" in metafunc.fixturenames:
        versions = pythons()
        metafunc.parametrize("python", versions.values(), ids=[f"{major}.{minor}" for major, minor in versions])


def test_a_bare_copy_passes_its_self_test(python: str, root: Path, tmp_path: Path) -> None:
    bare = bare_copy(root, tmp_path / "bare")
    done = run([python, "-W", "error", "-m", "ctxpack", "selftest"], bare)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    assert b"8 of 8 checks passed" in done.stdout


def test_all_versions_make_the_same_bytes(python: str, root: Path, tmp_path: Path) -> None:
    bare = bare_copy(root, tmp_path / "bare")
    text = "line\r\n始\U0001f6a2\n" * 100 + "x" * 2000
    done = run([python, "-W", "error", "-m", "ctxpack", "pack", "--input", "-", "--out", "-"], bare, text.encode())
    assert done.stdout == ContextPack.from_content(text).to_bytes()


def test_one_file_runs_under_the_oldest_python(root: Path, tmp_path: Path) -> None:
    staged = bare_copy(root, tmp_path / "staged")
    shutil.copy(root / "ctxpack" / "__main__.py", staged / "__main__.py")
    built = tmp_path / "ctxpack.pyz"
    command = [sys.executable, "-m", "zipapp", str(staged), "-c", "-p", "/usr/bin/env python3", "-o", str(built)]
    assert run(command, tmp_path).returncode == 0
    oldest = next(iter(pythons().values()))
    for arguments, status, expected in (
        (["selftest"], 0, b"8 of 8 checks passed"),
        (["measure"], 0, b"raw text"),
        (["verify", "--pack", "missing.json"], 2, b""),
        (["verify", "--pack", "text"], 1, b""),
    ):
        (tmp_path / "text").write_bytes(b"no pack")
        done = run([oldest, "-W", "error", str(built), *arguments], tmp_path)
        assert done.returncode == status, done.stderr
        assert expected in done.stdout
        assert b"Traceback" not in done.stderr
    assert os.access(built, os.X_OK)


def test_only_the_standard_library_is_imported(root: Path, tmp_path: Path) -> None:
    bare = bare_copy(root, tmp_path / "bare")
    script = "import sys, ctxpack, ctxpack.cli; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = run([sys.executable, "-S", "-E", "-c", script], bare)
    strangers = set(done.stdout.decode().split()) - set(sys.stdlib_module_names) - {"ctxpack", "__main__"}
    assert done.returncode == 0, done.stderr
    assert not strangers
