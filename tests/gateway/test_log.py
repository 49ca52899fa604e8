"""Log lines: for people or machines, never with what clients and upstreams said, and never in traffic's way."""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import settings as bounds
from hypothesis import strategies as st
from support.channel import eventually
from support.client import ask, connect, request_bytes
from support.gateways import ROOT, GatewayProcess, gateway_process, ready, settings
from support.messages import Request, head_bytes
from support.scrapes import scrape
from support.upstream import Peer, Reply, closed_port, each, upstream

from gateway.log import Console, Json, printable

FACTS: dict[str, Any] = {
    "id": "a-1", "time": 1.0, "route": "r", "method": "GET", "path": "/a", "status": 200, "outcome": "ok", "refusal": None,
    "error": None, "ms": 1.25, "added_ms": 0.5, "sent": 10, "original": 100, "coding": "gzip", "why": "no-base", "link": "weak",
}  # fmt: skip


def record(message: str = "exchange", level: int = logging.INFO, **facts: Any) -> logging.LogRecord:
    made = logging.LogRecord("packhorse.access", level, __file__, 1, message, (), None)
    if facts:
        made.exchange = {**FACTS, **facts}
    return made


# The lines by themselves


def test_a_line_for_a_person() -> None:
    line = Console().format(record(path="/a/b"))
    assert line[8:] == " 200 GET /a/b r 1.2 ms, 10 of 100 bytes gzip (no-base) ok"
    assert Console().format(record(path="/", original=10)).endswith("1.2 ms, 10 bytes gzip (no-base) ok")
    refused = Console().format(record(path="/", status=504, refusal="upstream-timeout", error="idle-timeout", outcome="failed"))
    assert refused.endswith("failed upstream-timeout idle-timeout")
    assert Console().format(record(path="/", status=0, outcome="client_gone"))[8:].startswith(" --- GET")
    assert Console().format(record("settings reloaded", logging.WARNING))[8:] == " warning settings reloaded"


def test_a_line_for_a_machine_is_one_json_object() -> None:
    line = Json().format(record(path="/a\n\x1b[31m"))
    assert "\n" not in line
    read = json.loads(line)
    assert read == {**FACTS, "time": read["time"], "level": "info", "logger": "packhorse.access", "path": "/a\\n\\x1b[31m"}
    plain = json.loads(Json().format(record("stopped")))
    assert {key: plain[key] for key in ("level", "message")} == {"level": "info", "message": "stopped"}


HOSTILE = [
    "/a\r\nGET /b",
    "/\x1b[2J\x07",
    "/\u202egpj.exe",
    "/\udce9\udcff",
    "/\x00",
    "/\u2028x",
    "/é",
    "/" + "a" * 5000,
    "/\U000e0001",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_paths_make_one_printable_line(path: str) -> None:
    for formatter in (Console(), Json()):
        line = formatter.format(record(path=path))
        assert line.isprintable()
        assert line.isascii() or "é" in path
        assert len(line) < 2500
        line.encode()


@bounds(deadline=None)
@given(st.text(max_size=400))
@example("\ud800")
@example("\\x00")
@example("'\"")
def test_anything_is_made_printable(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown.isascii()
    assert printable("/plain-ascii~") == "/plain-ascii~"


def test_a_record_with_a_fault_says_where() -> None:
    try:
        raise RuntimeError("KeyError")
    except RuntimeError:
        made = record("a fault")
        made.exc_info = sys.exc_info()
    assert "test_log.py" in json.loads(Json().format(made))["fault"]
    assert "test_log.py" in Console().format(made)


# Secrets (D14)

SECRET = "s3cr3t-needle"
BODY = f"a body with {SECRET} in it"
FIELDS = [
    ("Authorization", f"Bearer {SECRET}"), ("x-api-key", SECRET), ("api-key", SECRET), ("x-goog-api-key", SECRET),
    ("Cookie", f"packhorse_session={SECRET}"), ("Packhorse-Session", SECRET), ("x-session-id", SECRET), ("X-Any", SECRET),
    ("Ctxpack-Base", f"sha256:{SECRET}"), ("Referer", f"http://x/{SECRET}"),
]  # fmt: skip
ANSWERED = [("Set-Cookie", f"a={SECRET}"), ("Location", f"/{SECRET}"), ("X-Any", SECRET), ("Content-Type", "text/plain")]


async def secretive(peer: Peer, request: Request) -> None:
    """Every way of answering or not."""
    match request.target.partition(b"?")[0]:
        case b"/ok":
            await peer.respond(200, ANSWERED, BODY.encode())
        case b"/error":
            await peer.respond(500, ANSWERED, BODY.encode())
        case b"/stream":
            await peer.stream([f"data: {BODY}\n\n".encode()])
        case b"/cut":
            await peer.send(head_bytes("HTTP/1.1 200 OK", [*ANSWERED, ("Content-Length", "1000")]) + BODY.encode())
            peer.close()
        case b"/broken-stream":
            await peer.begin(ANSWERED)
            await peer.chunk(BODY.encode())
            await peer.send(f"{SECRET}\r\n".encode())
            peer.close()
        case b"/no-http":
            await peer.send(f"{SECRET} {SECRET}\r\n\r\n".encode())
            peer.close()
        case b"/bad-head":
            await peer.send(f"HTTP/1.1 200 OK\r\n{SECRET}\r\n\r\n".encode())
            peer.close()
        case b"/coding":
            await peer.respond(200, [("Content-Encoding", "gzip"), *ANSWERED], BODY.encode())
        case b"/silent":
            await peer.gone()
            peer.close()
        case b"/silent-stream":
            await peer.begin([("Content-Type", "text/event-stream")])
            await peer.chunk(BODY.encode())
            await peer.gone()
            peer.close()


WAYS = ["/ok", "/error", "/stream", "/cut", "/broken-stream", "/no-http", "/bad-head", "/coding", "/silent", "/silent-stream"]
MALFORMED = [
    f"GET /{SECRET} HTTP/1.1\r\nHost: x\r\nHost: {SECRET}\r\n\r\n",
    f"{SECRET}\r\n\r\n",
    f"GET /?{SECRET} HTTP/9.9\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: x\r\nX: {SECRET}\x00\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: x\r\nX: {SECRET * 4000}\r\n\r\n",
    f"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{SECRET}\r\n",
    f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {SECRET}\r\n\r\n",
    f"GET /a#{SECRET} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    f"GET http://user:{SECRET}@x/ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    f"GET ftp://user:{SECRET}@x/?{SECRET} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
]


async def all_ways(gateway: GatewayProcess) -> bytes:
    """Everything that can be said to a gateway, with a secret in each place; the problems it answered with."""
    answers = b""
    for path in WAYS:
        for method in ("GET", "POST"):
            async with connect(gateway) as client:
                body = BODY.encode() if method == "POST" else b""
                response = await client.ask(method, f"{path}?key={SECRET}", FIELDS, body)
                if response.text("content-type") == "application/problem+json":
                    answers += response.body
    for raw in MALFORMED:
        async with connect(gateway) as client:
            await client.send(raw.encode("latin-1"))
            answer = await client.to_end()
            answers += b"" if answer.startswith(b"HTTP/1.1 200") else answer
    async with connect(gateway) as client:  # a body no coding fits, a base nobody has, and a client that leaves
        for coding in (SECRET, "gzip", "ctxpack.delta.v1", "zstd"):
            response = await client.ask("POST", f"/ok?{SECRET}", [("Content-Encoding", coding), *FIELDS], BODY.encode())
            answers += response.body if response.status != 200 else b""
        await client.send(request_bytes("GET", f"/silent-stream?{SECRET}", FIELDS))
        await client.response_head()
        client.reset()
    async with connect(gateway) as client:
        await client.send(f"POST /ok?{SECRET} HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{BODY}".encode())
        client.reset()
    return answers


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("level", ["debug", "info"])
async def test_d14_nothing_anybody_said_is_in_a_line_or_a_problem(form: str, level: str) -> None:
    log = {"format": form, "level": level}
    patience = {"first_byte": "300ms", "idle": "300ms"}
    async with upstream(each(secretive)) as up, gateway_process(up, log=log, timeouts=patience, drain="1s") as gateway:
        answers = await all_ways(gateway)
        refused = closed_port()
        gateway.config.write_text(gateway.config.read_text().replace(str(up.port), str(refused)))
        gateway.signal(signal.SIGHUP)
        await eventually(lambda: "settings reloaded" in gateway.log)
        assert (await ask(gateway, "GET", f"/?{SECRET}", FIELDS)).status == 502
        gateway.signal(signal.SIGTERM)
        assert await gateway.exit() == 0
        lines = gateway.log.splitlines()
        assert SECRET.encode() not in answers
        assert len(lines) > 2 * len(WAYS), "there is a line an exchange"
        for line in lines:
            assert SECRET not in line
            assert line.isprintable()
            if form == "json":
                json.loads(line)
        assert "Traceback" not in gateway.log, "none of this is a fault of the gateway's own"


async def test_a_gateway_that_logs_no_access_says_nothing_of_exchanges() -> None:
    async with upstream(Reply(200, [], b"x")) as up, gateway_process(up, log={"access": "off", "format": "json"}) as gateway:
        for _ in range(3):
            await ask(gateway, "GET", "/seen")
        gateway.signal(signal.SIGTERM)
        await gateway.exit()
        assert "/seen" not in gateway.log
        assert "stopped" in gateway.log


async def test_lines_agree_with_what_happened_and_the_last_is_written_before_the_end() -> None:
    async with upstream(Reply(200, [], b"x" * 10)) as up, gateway_process(up, log={"format": "json"}) as gateway:
        async with connect(gateway) as client:
            for number in range(50):
                await client.ask("GET", f"/{number}?q")
        gateway.signal(signal.SIGTERM)
        assert await gateway.exit() == 0
        lines = [line for line in map(json.loads, gateway.log.splitlines()) if "path" in line]
        assert [line["path"] for line in lines] == [f"/{number}" for number in range(50)]
        assert {(line["status"], line["outcome"], line["sent"], line["route"]) for line in lines} == {(200, "ok", 10, "r")}
        assert len({line["id"] for line in lines}) == 50


async def test_a_pipe_that_nobody_reads_blocks_no_request(tmp_path: Path) -> None:
    """Thousands of lines into a pipe of 64 KB: the traffic goes on, memory stays bounded, and the process can be stopped."""
    async with upstream(Reply(200, [], b"x")) as up:
        port, admin = closed_port(), closed_port()
        document = settings(up, kind="plain", listen=f"127.0.0.1:{port}", admin={"listen": f"127.0.0.1:{admin}"})
        config = tmp_path / "packhorse.yaml"
        config.write_text(yaml.safe_dump(document))
        reader, writer = os.pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "serve", "--config", str(config), cwd=tmp_path, stderr=writer,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        os.close(writer)
        try:
            gateway = GatewayProcess(process, port, admin, config, config)
            await ready(gateway)
            long = "/" + "p" * 200
            slowest = 0.0

            async def many(count: int) -> None:
                nonlocal slowest
                async with connect(gateway) as client:
                    for _ in range(count):
                        began = time.monotonic()
                        assert (await client.ask("GET", long)).status == 200
                        slowest = max(slowest, time.monotonic() - began)

            await asyncio.gather(*(many(400) for _ in range(8)))
            assert slowest < 1.5
            assert (await scrape(gateway)).total("packhorse_requests_total", route="r") == 3200
            assert gateway.rss() < 150 * 2**20
            process.send_signal(signal.SIGTERM)
            try:
                assert await gateway.exit(5) == 0, "a full pipe does not keep the process"
            finally:
                os.set_blocking(reader, False)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(reader)


async def test_lines_that_had_to_be_dropped_are_counted_aloud(tmp_path: Path) -> None:
    """The module promises: where the thread falls behind, further lines are dropped and the number of them is said."""
    script = (
        "import logging, sys, threading\n"
        "from config.schema import Log\n"
        "from gateway import log\n"
        "held = threading.Event()\n"
        "real = sys.stderr\n"
        "class Slow:\n"
        "    def write(self, text):\n"
        "        held.wait(); real.write(text)\n"
        "    def flush(self): real.flush()\n"
        "sys.stderr = Slow()\n"
        "listener = log.start(Log())\n"
        "for number in range(15_000): logging.getLogger('packhorse').info('line %d', number)\n"
        "held.set()\n"
        "listener.stop()\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    async with asyncio.timeout(20):
        _, written = await process.communicate()
    lines = written.decode().splitlines()
    assert 9_000 < len(lines) < 11_000
    assert any("dropped" in line for line in lines)
