"""Faults (h): signals, sizes of heads, environments, silent upstreams, names in TLS, upgrades of settings."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import orjson
import pytest
from support.channel import eventually
from support.client import ask, connect, request_bytes
from support.gateways import ROOT, gateway_for, gateway_process, settings
from support.messages import Request, head_bytes
from support.packs import pack_client
from support.scrapes import counted, scrape
from support.texts import KINDS, PATHS, UNDERSTOOD, chat_request, events
from support.twins import growing, turn_of, uses_delta
from support.upstream import Peer, Reply, closed_port, each, upstream


@pytest.mark.limit(60)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_h01_a_stream_under_way_ends_in_peace(number):
    """aio-libs/aiohttp#1932: the listener closes at once, streams complete within the grace, exit 0."""
    go = asyncio.Event()

    async def answers(peer: Peer, request: Request) -> None:
        if request.target == b"/stream":
            await peer.begin([("Content-Type", "text/event-stream")])
            await peer.chunk(b"data: 1\n\n")
            await go.wait()
            await peer.chunk(b"data: 2\n\n")
            await peer.end()
        else:
            await peer.reply(growing()(request))

    async with upstream(each(answers)) as up, gateway_process(up, drain="20s") as gateway:
        await uses_delta(gateway)
        async with connect(gateway) as client, connect(gateway) as idle:
            assert (await idle.ask("GET", "/")).status == 200
            await client.send(request_bytes("GET", "/stream"))
            await client.arrives(b"data: 1")
            gateway.signal(number)

            async def closed() -> bool:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                    writer.close()
                    return False
                return True

            await eventually(closed, 3)
            await idle.gone(5)
            assert (await ask(gateway.admin_url, "GET", "/readyz")).status == 503
            assert (await ask(gateway.admin_url, "GET", "/livez")).status == 200
            assert gateway.process.returncode is None
            go.set()
            response = await client.response()
            assert (response.body, response.complete) == (b"data: 1\n\ndata: 2\n\n", True)
            assert await gateway.exit(10) == 0
        assert "Traceback" not in gateway.log


@pytest.mark.limit(60)
async def test_h01_the_grace_ends_and_what_is_left_is_cut():
    async def answers(peer: Peer, request: Request) -> None:
        await peer.begin([("Content-Type", "text/event-stream")])
        await peer.chunk(b"data: 1\n\n")
        await peer.gone(30)

    async with upstream(each(answers)) as up, gateway_process(up, drain="1s") as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/stream"))
        await client.arrives(b"data: 1")
        started = time.monotonic()
        gateway.signal(signal.SIGTERM)
        response = await client.response()
        assert not response.complete, "a cut stream looks whole"
        await gateway.exit(10)
        assert 0.9 < time.monotonic() - started < 8
        await up.all_gone()


@pytest.mark.limit(60)
async def test_h01_turns_answered_while_draining_are_kept(tmp_path):
    """Non-stream turns are committed: after the restart their bodies are bases."""
    go = asyncio.Event()

    async def answers(peer: Peer, request: Request) -> None:
        if not go.is_set():
            await go.wait()
        await peer.reply(growing()(request))

    store = {"kind": "sqlite", "path": str(tmp_path / "s.sqlite3")}
    async with upstream(each(answers)) as up:
        async with gateway_process(up, store=store) as gateway, pack_client(gateway) as client:
            turn = asyncio.ensure_future(turn_of(client, "prepare", 1))
            await up.seen(1)
            gateway.signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            go.set()
            await turn
            assert await gateway.exit() == 0
        async with gateway_process(up, store=store) as gateway, pack_client(gateway) as again:
            again.held = dict(client.held)
            await turn_of(again, "prepare", 2, fields=[("Ctxpack-Base", "sha256:" + "0" * 64)])
            again.held = dict(client.held)
            assert (await turn_of(again, "prepare", 3)).delta


@pytest.mark.limit(60)
async def test_h01_drain_over_the_admin_plane():
    async with upstream(growing()) as up, gateway_process(up) as gateway:
        await uses_delta(gateway)
        assert (await ask(gateway.admin_url, "POST", "/-/drain")).status in (200, 202, 204)
        assert await gateway.exit() == 0


@pytest.mark.limit(60)
async def test_h01_twin_sighup_reloads_whole_or_not_at_all():
    async with upstream(growing()) as up, upstream(Reply(body=b"another")) as other, gateway_process(up) as gateway:
        await uses_delta(gateway)
        good = gateway.config.read_text()
        gateway.config.write_text(good + "nonsense: 1\n")
        gateway.signal(signal.SIGHUP)

        async def said() -> bool:
            return (await scrape(gateway)).total("packhorse_config_last_reload_successful") == 0

        await eventually(said)
        await uses_delta(gateway, session="second")
        assert "nonsense" in gateway.log
        gateway.config.write_text(good.replace(up.url, other.url))
        gateway.signal(signal.SIGHUP)

        async def swapped() -> bool:
            return (await ask(gateway, "GET", "/")).body == b"another"

        await eventually(swapped)
        assert (await scrape(gateway)).total("packhorse_config_last_reload_successful") == 1
        assert "Traceback" not in gateway.log


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [9_000, 20_000, 30_000])
@pytest.mark.parametrize("how", ["a cookie", "many fields", "the target"])
async def test_h04_heads_up_to_the_limit_pass_both_ways(kind, size, how):
    """mathworks/matlab-proxy#94: both directions failed at 8190 bytes."""
    fields, target = [("Cookie", "c=" + "x" * size)], "/"
    if how == "many fields":
        fields = [(f"X-{number}", "y" * 20) for number in range(min(size // 30, 900))]
    elif how == "the target":
        fields, target = [], "/" + "z" * size
    async with (
        upstream(Reply(fields=[(name.replace("Cookie", "X-Big"), value) for name, value in fields], body=b"ok")) as up,
        gateway_for(up, kind=kind) as gateway,
        connect(gateway) as client,
    ):
        response = await client.ask("GET", target, fields)
        assert (response.status, response.body) == (200, b"ok")
        assert len(up.last.raw_head) > size * 0.6
        assert up.last.target == target.encode()
        for name, value in fields:
            assert up.last.values(name) == [value.encode()]
            assert response.values(name.replace("Cookie", "X-Big")) == [value.encode()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("feed", ["one write", "pieces"])
@pytest.mark.parametrize("how", ["one field", "many fields", "the target", "never ends"])
async def test_h04_a_head_over_the_limit_is_431_and_closed(kind, feed, how):
    raw = {
        "one field": head_bytes("GET / HTTP/1.1", [("Host", "gw"), ("X-A", "x" * 40_000)]),
        "many fields": head_bytes("GET / HTTP/1.1", [("Host", "gw"), *((f"X-{number}", "y" * 20) for number in range(2000))]),
        "the target": head_bytes("GET /" + "z" * 40_000 + " HTTP/1.1", [("Host", "gw")]),
        "never ends": b"GET / HTTP/1.1\r\nHost: gw\r\nX-A: " + b"x" * 40_000,
    }[how]
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        with contextlib.suppress(ConnectionResetError):
            if feed == "one write":
                await client.send(raw)
            else:
                for start in range(0, len(raw), 1000):
                    await client.send(raw[start : start + 1000])
                    await asyncio.sleep(0)
        response = await client.response()
        assert response.status in ((431, 414) if how == "the target" else (431,))
        assert b"urn:packhorse:headers-too-large" in response.body
        assert await client.some() == b""
        assert up.requests == []
        assert (await ask(gateway, "GET", "/")).status == 200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["one field", "many fields"])
async def test_h04_an_upstreams_head_over_the_limit_is_a_clear_502(kind, how):
    fields = [("X-A", "x" * 40_000)] if how == "one field" else [(f"X-{number}", "y" * 20) for number in range(3000)]
    async with upstream(Reply(fields=fields, body=b"ok")) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", "/")
        assert response.status == 502
        assert b"urn:packhorse:upstream-" in response.body
        assert len(up.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_h04_twin_with_130_fields_and_9_kb_deltas_are_used(kind):
    fields = [("X-Big", "x" * 9_000), *((f"X-{number}", "1") for number in range(130))]
    async with upstream(growing(kind, fields)) as up, gateway_for(up, kind=kind) as gateway:
        turn = await uses_delta(gateway, kind, fields=fields)
        assert len(turn.response.values("x-big")[0]) == 9_000
        assert all(up.last.values(name) == [value.encode()] for name, value in fields)


@pytest.mark.limit(60)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "unix"])
async def test_h06_a_proxy_in_the_environment_is_not_used(host):
    """apecloud/ApeRAG#1812: loopback was sent to a proxy by surprise."""
    async with upstream(Reply(502, body=b"the proxy")) as proxy, upstream(growing(), host=host) as up:
        dead = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), proxy.url)
        async with gateway_process(up, environment={**dead, "NO_PROXY": "", "no_proxy": ""}) as gateway:
            await uses_delta(gateway)
        assert proxy.peers == []


@pytest.mark.limit(60)
async def test_h06_a_netrc_and_other_surprises_of_the_environment_are_not_used(tmp_path):
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login surprise password surprise\ndefault login surprise password surprise\n")
    netrc.chmod(0o600)
    async with upstream(growing()) as up:
        async with gateway_process(up, environment={"NETRC": str(netrc), "HOME": str(tmp_path)}) as gateway:
            await uses_delta(gateway)
        assert all(request.values("authorization") == [] for request in up.requests)


TIMEOUTS = {"connect": "400ms", "first_byte": "400ms", "idle": "400ms"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_h08_an_upstream_that_never_answers_is_a_504_and_others_go_on(kind, method):
    """Mirrowel/LLM-API-Key-Proxy#39."""

    async def answers(peer: Peer, request: Request) -> None:
        if request.target == b"/silent":
            await peer.gone()
        else:
            await peer.respond(body=b"ok")

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind, timeouts=TIMEOUTS) as gateway:
        async with connect(gateway) as waiting, connect(gateway) as other:
            started = time.monotonic()
            await waiting.send(request_bytes(method, "/silent", [], b"{}" if method == "POST" else b""))
            await up.seen(1)
            assert (await other.ask("GET", "/")).body == b"ok"
            response = await waiting.response()
            assert 0.3 < time.monotonic() - started < 3
            assert response.status == 504
            assert b"urn:packhorse:upstream-timeout" in response.body
            await up.peers[0].gone(2)
            assert up.targets().count(b"/silent") == 1, "a request that timed out was sent again"
        metrics = await counted(gateway, "packhorse_upstream_errors_total")
        assert metrics.total("packhorse_upstream_errors_total") == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_h08_an_upstream_that_drops_the_handshake_times_out_connecting(kind):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    fillers = []
    try:
        for _ in range(4):  # the backlog is full: further SYNs are dropped
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(("127.0.0.1", port))
            fillers.append(filler)
        await asyncio.sleep(0.05)
        timeouts = {"connect": "400ms", "first_byte": "30s", "idle": "30s"}
        async with gateway_for(f"http://127.0.0.1:{port}", kind=kind, timeouts=timeouts) as gateway:
            started = time.monotonic()
            response = await ask(gateway, "POST", "/", [], b"{}")
            assert time.monotonic() - started < 3
            assert response.status in (502, 504)
            assert b"urn:packhorse:upstream-" in response.body
    finally:
        for filler in fillers:
            filler.close()
        listener.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_h08_nobody_listening_is_a_502_at_once(kind, method):
    for url in (
        f"http://127.0.0.1:{closed_port()}",
        f"http://localhost:{closed_port()}",
        "unix:/nonexistent/socket",
        "http://does-not-exist.invalid",
    ):
        async with gateway_for(url, kind=kind) as gateway:
            response = await ask(gateway, method, "/", [], b"{}" if method == "POST" else b"")
            assert response.status == 502
            assert b"urn:packhorse:upstream-unreachable" in response.body
            assert b"invalid" not in response.body, "where the upstream is, is nobody's business"
            assert response.text("content-type") == "application/problem+json"


@pytest.mark.parametrize("kind", KINDS)
async def test_h08_a_half_open_pooled_connection_is_a_504_and_the_next_is_fine(kind):
    """The pooled connection's upstream has gone silent without a FIN."""

    async def script(peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            if peer.index == 0 and request.target == b"/second":
                await peer.gone()
                return
            await peer.respond(body=b"ok")

    async with upstream(script) as up, gateway_for(up, kind=kind, timeouts=TIMEOUTS) as gateway, connect(gateway) as client:
        assert (await client.ask("GET", "/first")).status == 200
        assert (await client.ask("GET", "/second")).status == 504
        assert (await client.ask("GET", "/second")).body == b"ok"


@pytest.mark.parametrize("kind", KINDS)
async def test_h08_slow_uploads_and_long_answers_are_no_timeouts(kind):
    """The first byte is waited for from the whole request sent on; a client that is slow is not a slow upstream."""
    async with (
        upstream(growing(kind)) as up,
        gateway_for(up, kind=kind, timeouts=TIMEOUTS) as gateway,
        connect(gateway) as client,
    ):
        whole = request_bytes("POST", PATHS[kind], [], chat_request(kind))
        third = len(whole) // 3
        for start in (0, third, 2 * third):
            await client.send(whole[start : start + third if start < 2 * third else None])
            await asyncio.sleep(0.3)
        assert (await client.response()).status == 200
        await uses_delta(gateway, kind)
        assert up.last.body


@pytest.mark.parametrize("kind", KINDS)
async def test_h09_sni_and_verification_follow_the_upstream(kind, ca):
    """groundlight/edge-endpoint#423: by IP with a name of its own; verification is on by default."""
    names: list[str | None] = []
    context = ca.server("llm.example")
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with upstream(growing(kind), tls=context) as up:
        for route in ({}, {"tls": {"server_name": "llm.example"}}, {"tls": {"ca": str(ca.ca)}}):
            async with gateway_for(up, kind=kind, route=route) as gateway:
                response = await ask(gateway, "GET", "/")
                assert response.status == 502, "a certificate that nobody vouches for, or of another name, was taken"
                assert b"urn:packhorse:upstream-unreachable" in response.body
        assert up.requests == []
        names.clear()
        route: dict[str, Any] = {"tls": {"ca": str(ca.ca), "server_name": "llm.example"}, "host": "llm.example"}
        async with gateway_for(up, kind=kind, route=route) as gateway:
            await uses_delta(gateway, kind)
        assert set(names) == {"llm.example"}
        assert up.last.values("host") == [b"llm.example"]


@pytest.mark.parametrize("kind", UNDERSTOOD)
async def test_h09_only_http_1_1_is_spoken_to_upstreams(kind, ca):
    context = ca.server("127.0.0.1")
    context.set_alpn_protocols(["http/1.1"])
    async with upstream(growing(kind), tls=context) as up:
        async with gateway_for(up, kind=kind, route={"tls": {"ca": str(ca.ca)}}) as gateway:
            await uses_delta(gateway, kind)
        assert up.last.version == b"HTTP/1.1"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )


BROKEN = {
    "an unknown key": ({"deltass": {}}, ["deltass", "deltas"]),
    "an unknown key within": ({"deltas": {"min_byte": 1}}, ["min_byte", "min_bytes"]),
    "a bad upstream": ({"routes": [{"name": "r", "upstream": "ftp://x"}]}, ["routes", "upstream"]),
    "two routes at one place": (
        {
            "routes": [
                {"name": "a", "match": "/x", "upstream": "http://x"},
                {"name": "b", "match": "/x/", "upstream": "http://x"},
            ]
        },
        ["match"],
    ),
    "an unreadable certificate": ({"tls": {"certificate": "/nonexistent.pem", "key": "/nonexistent.key"}}, ["tls"]),
    "a word for a size": ({"limits": {"request": "many"}}, ["limits.request"]),
}


@pytest.mark.parametrize("case", list(BROKEN))
@pytest.mark.parametrize("command", ["check-config", "serve"])
def test_h10_a_broken_setting_is_exit_2_with_its_key(case, command, tmp_path):
    """Oaklight-like upgrades (BerriAI/litellm#27502): a setting that is not understood must never be passed over."""
    changes, words = BROKEN[case]
    config = tmp_path / "c.yaml"
    config.write_bytes(orjson.dumps({**settings("http://127.0.0.1:1"), **changes}))
    done = run(command, str(config)) if command == "check-config" else run("serve", "--config", str(config))
    assert done.returncode == 2
    said = done.stdout + done.stderr
    assert all(word in said for word in words), said
    assert "Traceback" not in said


def test_h10_twin_a_good_file_is_exit_0(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_bytes(orjson.dumps(settings("http://127.0.0.1:1")))
    done = run("check-config", str(config))
    assert done.returncode == 0, done.stdout + done.stderr


def test_h10_show_config_says_what_is_in_force_and_hides_secrets(tmp_path):
    config = tmp_path / "c.yaml"
    secret = "token-that-nobody-may-see"
    config.write_bytes(orjson.dumps({**settings("http://127.0.0.1:1"), "admin": {"listen": "127.0.0.1:0", "token": secret}}))
    done = run("show-config", "--config", str(config))
    assert done.returncode == 0
    assert secret not in done.stdout + done.stderr
    for word in ("deltas", "bases", "limits", "access", "sessions"):
        assert word in done.stdout


@pytest.mark.limit(60)
async def test_h10_what_is_not_by_default_is_said_at_start():
    """So that an upgrade that changes a default, or a file that overrides one, is seen."""
    async with upstream(growing()) as up, gateway_process(up, bases={"keep": 7}, access={"keys": []}) as gateway:
        await uses_delta(gateway)
        assert "bases.keep" in gateway.log


async def test_h_a_taken_port_is_a_clear_message(tmp_path):
    async with upstream(Reply(body=b"ok")) as up:
        config = tmp_path / "c.yaml"
        config.write_bytes(orjson.dumps({**settings(up), "listen": f"127.0.0.1:{up.port}"}))
        done = await asyncio.to_thread(run, "serve", "--config", str(config))
        assert done.returncode in (1, 2)
        assert str(up.port) in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
async def test_h_too_many_at_one_time_are_429_and_the_rest_goes_on(kind):
    go = asyncio.Event()

    async def answers(peer: Peer, request: Request) -> None:
        await go.wait()
        await peer.stream(events(kind, ["a"]))

    async with (
        upstream(each(answers)) as up,
        gateway_for(up, kind=kind, limits={"in_flight": 2}) as gateway,
        connect(gateway) as a,
        connect(gateway) as b,
        connect(gateway) as c,
    ):
        for client in (a, b):
            await client.send(request_bytes("GET", "/"))
        await up.seen(2)
        refused = await c.ask("GET", "/")
        assert refused.status == 429
        assert b"urn:packhorse:rate-limited" in refused.body
        go.set()
        for client in (a, b):
            assert (await client.response()).complete
        assert (await c.ask("GET", "/")).status == 200
