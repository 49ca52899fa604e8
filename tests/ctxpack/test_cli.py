from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctxpack import ContextPack, ContextPackDelta
from ctxpack.cli import main

ONE, TWO = "alpha\n" * 200, "alpha\n" * 200 + "beta\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the texts of two turns."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "body.txt").write_text(ONE)
    (tmp_path / "body2.txt").write_text(TWO)
    return tmp_path


def run(line: str) -> int:
    try:
        return main(line.split())
    except SystemExit as stop:
        return int(stop.code or 0)


def tool(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-W", "error", "-m", "ctxpack", *arguments]
    return subprocess.run(command, input=data, capture_output=True, timeout=60, env={**os.environ, "PYTHONPATH": root})


def test_the_quick_start_of_the_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        "selftest",
        "pack --input body.txt --out pack.json",
        "pack --input body2.txt --out pack2.json",
        "delta --base pack.json --target pack2.json --out delta.json",
        "apply --base pack.json --delta delta.json --out rebuilt.json --check body2.txt",
        "verify --pack pack.json",
    ):
        assert run(line) == 0, line
    one, two = ContextPack.from_content(ONE), ContextPack.from_content(TWO)
    assert (folder / "pack.json").read_bytes() == one.to_bytes()
    assert (folder / "rebuilt.json").read_bytes() == (folder / "pack2.json").read_bytes() == two.to_bytes()
    assert (folder / "delta.json").read_bytes() == ContextPackDelta.between(one, two).to_bytes()
    output = capsys.readouterr()
    assert one.digest in output.out
    assert "identical to body2.txt, byte for byte" in output.err


def test_standard_streams() -> None:
    one, two = ContextPack.from_content(ONE), ContextPack.from_content(TWO)
    Path("pack.json").write_bytes(one.to_bytes())
    assert tool("pack", "--input", "-", "--out", "-", data=ONE.encode()).stdout == one.to_bytes()
    made = tool("delta", "--base", "pack.json", "--target", "-", "--out", "-", data=two.to_bytes())
    assert made.stdout == ContextPackDelta.between(one, two).to_bytes()
    applied = tool("apply", "--base", "pack.json", "--delta", "-", "--out", "-", "--check", "body2.txt", data=made.stdout)
    assert (applied.returncode, applied.stdout) == (0, two.to_bytes())
    assert json.loads(tool("verify", "--pack", "-", "--json", data=one.to_bytes()).stdout)["digest"] == one.digest
    assert tool("measure", "--input", "-", "--json", data=TWO.encode()).returncode == 0


def test_line_ends_are_not_touched(folder: Path) -> None:
    (folder / "body.txt").write_bytes(b"a\r\nb\rc\n")
    assert run("pack --input body.txt --out pack.json") == 0
    assert ContextPack.from_bytes((folder / "pack.json").read_bytes()).content == "a\r\nb\rc\n"


def test_verify_says_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    run("pack --input body.txt --out pack.json")
    run("verify --pack pack.json")
    lines = dict(line.split() for line in capsys.readouterr().out.splitlines()[:-1])
    run("verify --pack pack.json --json")
    assert {name: str(value) for name, value in json.loads(capsys.readouterr().out).items()} == lines
    assert lines["total_bytes"] == str(len(ONE))


def test_a_check_that_does_not_hold_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("pack --input body.txt --out pack.json")
    run("pack --input body2.txt --out pack2.json")
    run("delta --base pack.json --target pack2.json --out delta.json")
    assert run("apply --base pack.json --delta delta.json --out rebuilt.json --check body.txt") == 1
    assert "part at byte 1200" in capsys.readouterr().err
    assert run("apply --base pack2.json --delta delta.json --out rebuilt.json") == 1
    assert "base_mismatch" in capsys.readouterr().err
    assert not (folder / "rebuilt.json").exists()


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("", 2, "command"),
        ("unpack", 2, "invalid choice"),
        ("verify", 2, "--pack"),
        ("pack --input body.txt", 2, "--out"),
        ("verify --pack missing.json", 2, "missing.json: No such file"),
        ("verify --pack .", 2, "directory"),
        ("verify --pack body.txt/x", 2, "directory"),
        ("pack --input body.txt --out missing/pack.json", 2, "folder that exists"),
        ("delta --base - --target - --out -", 2, "once"),
        ("measure --input - -", 2, "once"),
        ("measure --input empty", 2, "holds no files"),
        ("measure --turns 0", 2, "1 to 9999"),
        ("measure --turns 99999", 2, "1 to 9999"),
        ("measure --turns ten", 2, "1 to 9999"),
        ("verify --pack body.txt", 1, "ctxpack pack"),
        ("verify --pack delta.json", 1, "exchanged"),
        ("apply --base body.pack --delta body.pack --out x", 1, "exchanged"),
        ("pack --input latin1.txt --out x", 1, "invalid_utf8"),
        ("measure --input latin1.txt", 1, "convert"),
        ("verify --pack damaged.pack", 1, "digest_mismatch"),
    ],
)
def test_errors_say_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str], line: str, status: int, words: str) -> None:
    (folder / "empty").mkdir()
    (folder / "latin1.txt").write_bytes("é\n".encode("latin-1"))
    one, two = ContextPack.from_content(ONE), ContextPack.from_content(TWO)
    (folder / "delta.json").write_bytes(ContextPackDelta.between(one, two).to_bytes())
    (folder / "body.pack").write_bytes(one.to_bytes())
    (folder / "damaged.pack").write_bytes(one.to_bytes().replace(b"YWxw", b"YWxx", 1))
    assert run(line) == status
    output = capsys.readouterr()
    assert words in output.err
    assert "Traceback" not in output.err
    assert not output.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to fail on")
def test_a_full_disk_is_a_failure() -> None:
    done = tool("pack", "--input", "body.txt", "--out", "/dev/full")
    assert (done.returncode, b"No space" in done.stderr, b"Traceback" in done.stderr) == (1, True, False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_no_traceback(unbuffered: str) -> None:
    root = str(Path(__file__).resolve().parents[2])
    Path("big.txt").write_text("line\n" * 200_000)
    command = [sys.executable, "-m", "ctxpack", "pack", "--input", "big.txt", "--out", "-"]
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": unbuffered}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.read(10)
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=30) == 1
    assert not errors


def test_names_that_are_not_text(capsys: pytest.CaptureFixture[str]) -> None:
    done = tool("verify", "--pack", os.fsdecode(b"\xff.json"))
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False)
    assert main(["verify", "--pack", "a\0b"]) == 2


def test_a_self_test_that_fails_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from ctxpack import selftest

    assert run("selftest --json") == 0
    assert json.loads(capsys.readouterr().out) == {"checks": 8, "failed": {}}
    monkeypatch.setattr(selftest, "apply_delta", lambda base, delta: base)
    assert run("selftest") == 1
    assert "FAILED" in capsys.readouterr().out
    assert run("selftest --json") == 1
    assert len(json.loads(capsys.readouterr().out)["failed"]) >= 2
