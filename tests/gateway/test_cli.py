"""The command line: help for each command, the version, and exit 2 for misuse (contract 9)."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest
from support.gateways import ROOT

from gateway.cli import COMMANDS, main, parser
from gateway.version import VERSION

WANTED = ["serve", "check-config", "show-config", "doctor", "sample-upstream", "replay"]
"""Of contract 9; edge and quests come with later issues."""


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    out, err = capsys.readouterr()
    return code, out, err


def test_the_contracts_commands_are_there() -> None:
    assert set(WANTED) <= set(COMMANDS)
    for module, summary in COMMANDS.values():
        assert callable(import_module(module).run)
        assert callable(import_module(module).add_arguments)
        assert summary


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_helps(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, err = ran(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: packhorse {command}")
    assert "\n\n" in out, "usage, then what it does"


def test_the_whole_helps(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, "--help")
    assert (code, err) == (0, "")
    for command in COMMANDS:
        assert f"  {command}" in out


def test_every_option_is_explained() -> None:
    """The field is the manual; an option without a word of help is none."""
    import argparse

    top = parser()
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        for action in command._actions:
            assert action.help, f"packhorse {name} {action.option_strings or action.dest}"


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "--version") == (0, f"packhorse {VERSION}\n", "")
    assert version("packhorse") == VERSION


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["serv"],
        ["--no-such-option"],
        ["serve", "--no-such-option"],
        ["serve", "stray"],
        ["serve", "--listen"],
        ["check-config"],
        ["check-config", "a", "b"],
        ["show-config", "--config"],
        ["replay"],
        ["sample-upstream", "--listen"],
    ],
)
def test_misuse_is_exit_2_with_the_usage(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, err = ran(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: packhorse")
    assert "error:" in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve"], "routes"),
        (["serve", "--upstream", "ftp://x"], "upstream"),
        (["serve", "--upstream", "http://127.0.0.1:1", "--listen", "nonsense"], "listen"),
        (["serve", "--upstream", "http://127.0.0.1:1", "--admin-listen", "0.0.0.0:0"], "admin"),
        (["serve", "--config", "/no/such/file.yaml"], "/no/such/file.yaml"),
        (["check-config", "/no/such/file.yaml"], "/no/such/file.yaml"),
        (["sample-upstream", "--listen", "nonsense"], "listen"),
    ],
)
def test_settings_that_cannot_be_are_exit_2_and_say_which(
    capfd: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    try:
        code = main(arguments)
    except SystemExit as left:
        code = int(left.code or 0)
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


def test_an_interrupt_is_130_and_a_closed_pipe_1(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module(COMMANDS["show-config"][0])
    for fault, code in ((KeyboardInterrupt, 130), (BrokenPipeError, 1)):

        def run(_args: object, fault: type[BaseException] = fault) -> int:
            raise fault

        monkeypatch.setattr(module, "run", run)
        assert main(["show-config"]) == code


def test_the_module_is_the_program() -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    for arguments, code in ((["--version"], 0), (["nonsense"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == code
        assert b"Traceback" not in done.stderr


def test_output_into_a_closed_pipe_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "show-config"], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=30, check=False,
            env={**os.environ, "PACKHORSE_UPSTREAM": "http://127.0.0.1:1"},
        )  # fmt: skip
    finally:
        os.close(writer)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 1)
