"""``packhorse tour``: a process of its own, real ports, and books that agree."""

import asyncio
import os
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.sample.serving import serving
from gateway.sample.upstream import application

REPOSITORY = Path(__file__).parents[2]
CODE = (
    "import argparse, sys; from gateway import tour; p = argparse.ArgumentParser();"
    "tour.add_arguments(p); sys.exit(tour.run(p.parse_args()))"
)


@asynccontextmanager
async def tour(folder: Path, *options: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("PACKHORSE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CODE, *options),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**known, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", **environment},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def finished(folder: Path, *options: str, **environment: str) -> tuple[int, str, str]:
    async with tour(folder, *options, **environment) as process:
        output, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode is not None
        return process.returncode, output.decode(), errors.decode()


async def test_once_prints_both_tables_and_ends(tmp_path: Path) -> None:
    status, output, errors = await finished(tmp_path, ONCE="1", PORT="0")
    assert status == 0, errors
    assert "All 200 bodies were rebuilt" in output
    assert "Client and counters agree to the byte" in output
    table = re.findall(r"^(\S.*?) {2,}([\d,]+) +[\d.]+ % +[\d,]+ +([\d,]+) ", output, re.M)
    sent = {name: int(bodies.replace(",", "")) for name, bodies, _ in table}
    together = {name: int(total.replace(",", "")) for name, _, total in table}
    assert list(sent) == ["raw", "full packs", "deltas", "deltas + gzip", "gzip"]
    assert sent["deltas + gzip"] < sent["deltas"] < sent["gzip"] < sent["raw"] < sent["full packs"]
    assert together["deltas"] < together["raw"] / 10
    assert together["deltas + gzip"] < together["gzip"] / 5
    saved = {form: 100 - 100 * together[form] / together["raw"] for form in ("deltas", "deltas + gzip")}
    assert f"deltas took {saved['deltas']:.1f} % less than raw and" in output
    assert f"deltas + gzip took {saved['deltas + gzip']:.1f} % less than raw and" in output
    assert (tmp_path / "var").is_dir()


async def line_with(stream: asyncio.StreamReader | None, word: str) -> str:
    assert stream is not None
    async with asyncio.timeout(60):
        while line := (await stream.readline()).decode():
            if word in line:
                return line
    raise AssertionError(f"no line with {word}")


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


async def test_stays_up_and_says_where(tmp_path: Path) -> None:
    async with tour(tmp_path, PORT="0") as process:
        clients = (await line_with(process.stdout, "clients")).split()[1]
        metrics = (await line_with(process.stdout, "metrics")).split()[1]
        await line_with(process.stdout, "Ctrl-C")
        assert b"# Rainy season planning" in await asyncio.to_thread(fetched, f"{clients}/prepare/meeting?turn=40")
        assert b"packhorse_link_bytes_total" in await asyncio.to_thread(fetched, metrics)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 15) == 0


async def test_upstream_of_ones_own(tmp_path: Path) -> None:
    async with serving(application()) as url, tour(tmp_path, PORT="0", UPSTREAM=url) as process:
        clients = (await line_with(process.stdout, "clients")).split()[1]
        await line_with(process.stdout, "Ctrl-C")
        assert b"sample upstream" in await asyncio.to_thread(fetched, f"{clients}/")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 15) == 0


async def test_taken_port_is_said_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, _, errors = await finished(tmp_path, "--once", "--port", port)
    assert status == 1
    assert f"127.0.0.1:{port} is taken" in errors
    assert "PORT=8090" in errors


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"PORT": "x"}, "PORT=x: expected a number"),
        ({"PORT": "65535"}, "expected a number from 0 to 65534"),
        ({"UPSTREAM": "nowhere", "PORT": "0"}, "http://"),
        ({"UPSTREAM": "http://127.0.0.1:1", "ONCE": "1"}, "one of the two"),
    ],
)
async def test_misuse_is_exit_2(tmp_path: Path, environment: dict[str, str], says: str) -> None:
    status, _, errors = await finished(tmp_path, **environment)
    assert status == 2
    assert says in errors
