"""``packhorse sample-upstream`` as a process of its own would run it."""

import argparse
import asyncio
import os
import signal
import socket
import sys

import pytest

from gateway.sample import command


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(given)


def test_bad_address_is_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(arguments("--listen", "nowhere")) == 2
    assert "expected host:port" in capsys.readouterr().err


def test_taken_port_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert command.run(arguments("--listen", f"127.0.0.1:{port}")) == 1
    assert f"127.0.0.1:{port} is taken" in capsys.readouterr().err


async def test_serves_until_interrupted() -> None:
    code = (
        "import argparse, sys; from gateway.sample import command; p = argparse.ArgumentParser();"
        "command.add_arguments(p); sys.exit(command.run(p.parse_args(['--listen', '127.0.0.1:0'])))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 20)
    assert b"http://127.0.0.1:" in line
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 10) == 0
