"""The gateway as a process: signals, drain, reload from its file, the admin plane from outside, and kill -9."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.channel import eventually
from support.client import ask, connect, request_bytes
from support.gateways import GatewayProcess, gateway_process, ready
from support.messages import Request
from support.packs import pack_client
from support.scrapes import scrape
from support.twins import growing, turn_of
from support.upstream import Peer, Reply, each, upstream

RELOADED = "packhorse_config_last_reload_successful"
TOKEN = "an-operators-token-of-some-length"


async def streaming(peer: Peer, request: Request) -> None:
    """``/stream/SECONDS`` is a stream of that length, an event every tenth of a second; else growing documents."""
    if not request.target.startswith(b"/stream/"):
        await peer.reply(growing()(request))
        return
    await peer.begin([("Content-Type", "text/event-stream")])
    for number in range(int(float(request.target.rpartition(b"/")[2]) * 10)):
        await peer.chunk(b"data: %d\n\n" % number)
        await asyncio.sleep(0.1)
    await peer.end()


async def refused(port: int) -> bool:
    try:
        async with connect(port):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


async def status(gateway: GatewayProcess, path: str) -> int:
    return (await ask(gateway.admin_url, "GET", path)).status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_h01_a_signal_drains(number: signal.Signals) -> None:
    """aio-libs/aiohttp#1932, #3638, #7188: listener closed at once, streams finish, exit 0, ordinary turns committed."""
    seconds = 3 if number is signal.SIGTERM else 1
    async with (
        upstream(each(streaming)) as up,
        gateway_process(up, drain="20s") as gateway,
        connect(gateway) as busy,
        connect(gateway) as idle,
    ):
        assert (await idle.ask("GET", "/x")).status == 200
        await busy.send(request_bytes("GET", f"/stream/{seconds}"))
        response = await busy.response_head()
        began = time.monotonic()
        gateway.signal(number)
        await eventually(lambda: refused(gateway.port), 1)
        assert (await status(gateway, "/readyz"), await status(gateway, "/livez")) == (503, 200)
        response = await busy.body_of(response)
        assert response.complete
        assert response.body.count(b"data:") == seconds * 10
        assert time.monotonic() - began > seconds * 0.8
        assert await gateway.exit(2) == 0
        assert idle.closed.is_set()
        assert idle.closed_at is not None
        assert idle.closed_at - began < 1, "an idle connection is closed when the drain begins, not when it ends"
        assert "Traceback" not in gateway.log
        assert "stopped" in gateway.log


async def test_an_idle_gateway_stops_at_once() -> None:
    async with upstream(Reply(200, [], b"x")) as up, gateway_process(up, drain="30s") as gateway, connect(gateway) as idle:
        assert (await idle.ask("GET", "/")).status == 200
        gateway.signal(signal.SIGTERM)
        assert await gateway.exit(2) == 0
        await up.all_gone(1)


async def test_what_outlasts_the_grace_is_cut_and_the_process_ends() -> None:
    async with upstream(each(streaming)) as up, gateway_process(up, drain="500ms") as gateway, connect(gateway) as busy:
        await busy.send(request_bytes("GET", "/stream/60"))
        response = await busy.response_head()
        gateway.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            assert not (await busy.body_of(response)).complete
        assert await gateway.exit(3) == 0
        await up.all_gone(1)
        assert "Traceback" not in gateway.log


async def test_a_second_signal_does_no_harm() -> None:
    async with upstream(each(streaming)) as up, gateway_process(up, drain="20s") as gateway, connect(gateway) as busy:
        await busy.send(request_bytes("GET", "/stream/1"))
        response = await busy.response_head()
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            gateway.signal(number)
        assert (await busy.body_of(response)).complete
        assert await gateway.exit(2) == 0
        assert "Traceback" not in gateway.log


async def test_h01_turns_before_a_drain_and_before_a_kill_are_bases_afterwards(tmp_path: Path) -> None:
    """SQLite: the client's base from before is used by the next process, after SIGTERM and after kill -9."""
    store = {"kind": "sqlite", "path": str(tmp_path / "store" / "bases.sqlite3")}
    async with upstream(each(streaming)) as up:
        held: dict[str, Any] = {}
        for turn, end in ((1, signal.SIGTERM), (3, signal.SIGKILL), (5, signal.SIGTERM)):
            async with gateway_process(up, store=store) as gateway:
                async with pack_client(gateway, "s") as client:
                    client.held = held
                    first = await turn_of(client, "prepare", turn)
                    assert first.delta is (turn > 1), f"turn {turn} after a restart: {first.why}"
                    assert (await turn_of(client, "prepare", turn + 1)).delta
                    held = client.held
                if end is signal.SIGKILL:
                    await eventually(lambda: stored(gateway, 2), 5)
                    await asyncio.sleep(0.5)  # nothing waits for the disk, so nothing tells when it was reached
                gateway.signal(end)
                assert await gateway.exit() == (0 if end is signal.SIGTERM else -signal.SIGKILL)


async def stored(gateway: GatewayProcess, count: int) -> bool:
    return (await scrape(gateway)).total("packhorse_bases") >= count


# Reload


def edit(gateway: GatewayProcess, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the settings file."""
    document = yaml.safe_load(gateway.config.read_text())
    change(document)
    gateway.config.write_text(yaml.safe_dump(document))


def say(gateway: GatewayProcess, text: str) -> None:
    gateway.config.write_text(text)


async def reloaded(gateway: GatewayProcess, how: str) -> None:
    """Ask for a reload and wait until it was tried: a line says so either way."""
    lines = len(gateway.log.splitlines())
    if how == "SIGHUP":
        gateway.signal(signal.SIGHUP)
    else:
        await ask(gateway.admin_url, "POST", "/-/reload")
    await eventually(lambda: any("reload" in line for line in gateway.log.splitlines()[lines:]))


async def test_a_reload_swaps_the_whole_or_nothing() -> None:
    async with (
        upstream(each(streaming)) as old,
        upstream(Reply(200, [], b"new")) as new,
        gateway_process(old) as gateway,
        connect(gateway) as busy,
    ):
        good = gateway.config.read_text()

        def to_new(document: dict[str, Any]) -> None:
            document["routes"][0]["upstream"] = new.url

        def moved(document: dict[str, Any]) -> None:
            to_new(document)
            document["listen"] = "127.0.0.1:1"
            document["store"] = {"kind": "sqlite", "path": "/tmp/elsewhere.sqlite3"}

        async def serves_old() -> None:
            response = await ask(gateway, "GET", "/x")
            assert (response.status, response.body != b"new") == (200, True)
            assert (await scrape(gateway)).total(RELOADED) == 0

        # refused as a whole
        edit(gateway, lambda document: (to_new(document), document.update(lisen="x")))
        await reloaded(gateway, "SIGHUP")
        await serves_old()
        assert "lisen" in gateway.log
        edit(gateway, lambda document: (document.pop("lisen"), moved(document)))
        await reloaded(gateway, "SIGHUP")
        await serves_old()
        for key in ("listen", "store.kind", "store.path"):
            assert f"{key} changes only with a restart" in gateway.log
        for text in ("", ": no yaml: [", "routes: 5", "\x00", "[" * 100_000):
            say(gateway, text)
            await reloaded(gateway, "SIGHUP")
            await serves_old()
        gateway.config.write_bytes(b"routes: \xff\xfe")
        await reloaded(gateway, "SIGHUP")
        gateway.config.unlink()
        await reloaded(gateway, "SIGHUP")
        await serves_old()
        answer = await ask(gateway.admin_url, "POST", "/-/reload")
        assert answer.status == 422
        told = json.loads(answer.body)
        assert (told["reloaded"], len(told["problems"])) == (False, 1)

        # taken over, while a stream on the old settings goes on
        await busy.send(request_bytes("GET", "/stream/1"))
        response = await busy.response_head()
        say(gateway, good)
        edit(gateway, to_new)
        await reloaded(gateway, "SIGHUP")
        assert (await ask(gateway, "GET", "/x")).body == b"new"
        assert (await scrape(gateway)).total(RELOADED) == 1
        response = await busy.body_of(response)
        assert response.complete
        assert response.body.count(b"data:") == 10
        say(gateway, good)
        answer = await ask(gateway.admin_url, "POST", "/-/reload")
        assert (answer.status, json.loads(answer.body)) == (200, {"reloaded": True, "problems": []})
        assert (await ask(gateway, "GET", "/x")).body != b"new"
        assert "Traceback" not in gateway.log


# The admin plane from outside


async def test_the_admin_plane_is_on_its_own_listener_with_its_token() -> None:
    secret = [("Authorization", f"Bearer {TOKEN}")]
    async with upstream(Reply(200, [], b"upstream's")) as up, gateway_process(up, admin={"token": TOKEN}) as gateway:
        for path in ("/livez", "/healthz", "/readyz"):
            assert await status(gateway, path) == 200
        for path in ("/metrics", "/api/sessions", "/api/savings", "/nothing"):
            assert await status(gateway, path) == 401
            wrong = await ask(gateway.admin_url, "GET", path, [("Authorization", "Bearer wrong")])
            assert wrong.status == 401
            assert TOKEN.encode() not in wrong.body
        for path in ("/-/drain", "/-/reload"):
            assert (await ask(gateway.admin_url, "POST", path)).status == 401
        assert not up.requests, "no health path asks an upstream"
        for path in ("/metrics", "/api/sessions", "/api/savings"):
            assert (await ask(gateway.admin_url, "GET", path, secret)).status == 200
        assert (await ask(gateway.admin_url, "POST", "/-/reload", secret)).status == 200
        for path in ("/metrics", "/livez", "/readyz", "/-/drain", "/api/sessions", "/console/"):
            method = "POST" if path.startswith("/-/") else "GET"
            assert (await ask(gateway, method, path, secret)).body == b"upstream's", (
                f"{path} of the data port is the upstream's"
            )
        assert (await ask(gateway.admin_url, "POST", "/-/drain", secret)).status == 202
        assert await gateway.exit() == 0
        assert TOKEN not in gateway.log


async def test_it_is_ready_in_a_second_and_says_where_it_serves(tmp_path: Path) -> None:
    began = time.monotonic()
    async with upstream(Reply(200)) as up, gateway_process(up, wait_ready=False) as gateway:
        await ready(gateway)
        assert time.monotonic() - began < 5, "one second on a machine of its own"
        assert gateway.url in gateway.log
        assert gateway.admin_url in gateway.log
