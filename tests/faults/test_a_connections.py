"""Faults (a): upgrades, the upstream's name, and what the upstream is spoken to over."""

import pytest
from support.channel import eventually
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for
from support.messages import head_bytes
from support.scrapes import counted
from support.texts import KINDS
from support.twins import growing, uses_delta
from support.upstream import Peer, Reply, each, upstream
from support.websockets import AGREE, ASK, closing, frame

MASK = b"\x01\x02\x03\x04"
DEFLATE = "permessage-deflate; client_max_window_bits"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize(("offered", "accepted"), [(None, None), (DEFLATE, None), (DEFLATE, "permessage-deflate")])
@pytest.mark.parametrize("feed", ["one write", "bytes"])
async def test_a26_a_websocket_is_tunnelled_with_its_extensions_and_close_codes(kind, host, offered, accepted, feed):
    """WSH032/fastapi-proxy-lib#53: extensions relayed by one hop and frames decoded by another: 1002, reserved bits."""
    compressed = accepted is not None
    hello, echo = frame(b"hello" * 50, mask=MASK, compressed=compressed), frame(b"welcome" * 50, compressed=compressed)
    bye, goodbye = closing(4001, b"done", MASK), closing(4002, b"too")

    async def script(peer: Peer) -> None:
        request = await peer.request()
        assert request is not None
        extension = [("Sec-WebSocket-Extensions", accepted)] if accepted else []
        head = head_bytes("HTTP/1.1 101 Switching Protocols", [*AGREE, *extension, ("X-A", "1")])
        if feed == "one write":
            await peer.send(head + echo)
        else:
            await peer.trickle(head + echo)
        assert await peer.exactly(len(hello)) == hello
        await peer.send(echo)
        assert await peer.exactly(len(bye)) == bye
        await peer.send(goodbye)
        peer.close()

    async with upstream(script, host=host) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        extension = [("Sec-WebSocket-Extensions", offered)] if offered else []
        await client.send(request_bytes("GET", "/socket?a=%20", [*ASK, *extension]))
        response = await client.response_head()
        assert response.status == 101
        assert [value.lower() for value in response.values("upgrade")] == [b"websocket"]
        assert "upgrade" in response.members("connection")
        assert response.text("sec-websocket-extensions") == accepted
        assert response.text("x-a") == "1"
        assert up.last.target == b"/socket?a=%20"
        sent_on = up.last.value("sec-websocket-extensions")
        assert sent_on == (offered.encode() if offered else None)
        assert "upgrade" in b",".join(up.last.values("connection")).decode().lower()
        assert await client.exactly(len(echo)) == echo
        if feed == "one write":
            await client.send(hello)
        else:
            await client.trickle(hello)
        assert await client.exactly(len(echo)) == echo
        await client.send(bye)
        assert await client.to_end() == goodbye


@pytest.mark.parametrize("side", ["client", "upstream"])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a26_when_one_side_leaves_the_other_is_told(side, how):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE))
        await peer.exactly(1)
        if side == "upstream":
            getattr(peer, how)()
        else:
            await peer.gone()
            peer.close()

    async with upstream(script) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", ASK))
        assert (await client.response_head()).status == 101
        await client.send(b"x")
        if side == "client":
            await eventually(lambda: up.peers[0].received > 0)
            getattr(client, how)()
            await up.all_gone(2)
        else:
            await client.gone(2)
        await counted(gateway, "packhorse_requests_total", method="GET", route="r")


@pytest.mark.parametrize("kind", KINDS)
async def test_a26_a_refused_upgrade_is_an_ordinary_answer(kind):
    async with (
        upstream(Reply(403, [("Content-Type", "text/plain")], b"no")) as up,
        gateway_for(up, kind=kind) as gateway,
        connect(gateway) as client,
    ):
        for _ in range(2):
            response = await client.ask("GET", "/", ASK)
            assert (response.status, response.body) == (403, b"no")


async def test_a26_a_tunnel_carries_megabytes_both_ways_and_counts_them():
    blob = bytes(range(256)) * 4096

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE))
        assert await peer.exactly(len(blob)) == blob
        await peer.send(blob)
        await peer.gone()
        peer.close()

    async with upstream(script) as up, gateway_for(up) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", ASK))
        assert (await client.response_head()).status == 101
        await client.send(blob)
        assert await client.exactly(len(blob)) == blob
        client.close()
        await up.all_gone()
        scrape = await counted(gateway, "packhorse_link_bytes_total", client.received, direction="down")
        assert scrape.total("packhorse_link_bytes_total", direction="down") == client.received
        scrape = await counted(gateway, "packhorse_link_bytes_total", client.sent, direction="up")
        assert scrape.total("packhorse_link_bytes_total", direction="up") == client.sent


@pytest.mark.parametrize("kind", KINDS)
async def test_a26_twin_beside_a_tunnel_deltas_are_used(kind):
    async def answers(peer: Peer, request) -> None:
        if request.values("upgrade"):
            await peer.send(head_bytes("HTTP/1.1 101 Switching Protocols", AGREE) + frame(b"hi"))
            await peer.gone()
            peer.close()
        else:
            await peer.reply(growing(kind)(request))

    async with upstream(each(answers)) as up, gateway_for(up, kind=kind) as gateway, connect(gateway) as client:
        await client.send(request_bytes("GET", "/", ASK))
        assert (await client.response_head()).status == 101
        assert await client.exactly(len(frame(b"hi"))) == frame(b"hi")
        await uses_delta(gateway, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("mode", ["off", "x-forwarded", "forwarded"])
async def test_a28_the_upstream_sees_its_own_name_in_host_and_sni(kind, tls, mode, ca):
    """mostlygeek/llama-swap#931: the client's Host went to an https upstream: 421."""
    names: list[str | None] = []
    context = ca.server("localhost") if tls else None
    if context is not None:
        context.sni_callback = lambda _socket, name, _context: names.append(name)
    route = {"tls": {"ca": str(ca.ca)}}
    async with upstream(growing(kind), host="localhost", tls=context) as up:
        async with gateway_for(up, kind=kind, route=route, forwarded=mode) as gateway:
            turn = await uses_delta(gateway, kind, fields=[("Host", "gw.local:8080")])
            assert turn.status == 200
        assert [request.values("host") for request in up.requests] == [[up.authority.encode()]] * 2
        assert set(names) == ({"localhost"} if tls else set())
        told = {"off": None, "x-forwarded": "x-forwarded-host", "forwarded": "forwarded"}[mode]
        if told is None:
            assert b"gw.local" not in up.last.raw_head
        else:
            assert b"gw.local:8080" in (up.last.value(told) or b"")


@pytest.mark.parametrize("kind", KINDS)
async def test_a28_a_host_may_be_set(kind):
    async with upstream(growing(kind)) as up, gateway_for(up, kind=kind, route={"host": "llm.example"}) as gateway:
        await uses_delta(gateway, kind)
        assert up.last.values("host") == [b"llm.example"]


@pytest.mark.parametrize("hostile", ["good/../x?y#z", "evil@gw", "", "gw:99999", "169.254.169.254", "a b", "[::1"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a28_a_hostile_host_goes_nowhere(kind, hostile):
    """Traps 10: accepted by aiohttp, and a 500 where the URL is rebuilt from it."""
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind, forwarded="x-forwarded") as gateway:
        response = await ask(gateway, "GET", "/", [("Host", hostile)])
        assert response.status in (200, 400)
        if response.status == 200:
            assert up.last.values("host") == [up.authority.encode()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "unix"])
async def test_a_every_kind_of_upstream_address_has_deltas(kind, host):
    """Issue 2, section 2: IPv4, IPv6, unix sockets."""
    async with upstream(growing(kind), host=host) as up, gateway_for(up, kind=kind) as gateway:
        await uses_delta(gateway, kind)


@pytest.mark.parametrize("where", ["127.0.0.1:0", "[::1]:0", "unix"])
async def test_a_every_kind_of_listener_has_deltas(where, tmp_path):
    listen = f"unix:{tmp_path}/gw.sock" if where == "unix" else where
    async with upstream(growing()) as up, gateway_for(up, listen=listen) as gateway:
        await uses_delta(gateway)


async def test_a_a_listener_with_tls(ca):
    chain, key = ca.certificate("localhost", "127.0.0.1")
    async with (
        upstream(growing()) as up,
        gateway_for(up, tls={"certificate": str(chain), "key": str(key)}) as gateway,
        connect(gateway, tls=ca.client()) as client,
    ):
        response = await client.ask("GET", "/")
        assert (response.status, len(response.body) > 5000) == (200, True)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_options_star_and_connect(kind):
    """Contract 6."""
    async with upstream(Reply(body=b"ok")) as up, gateway_for(up, kind=kind) as gateway:
        star = await ask(gateway, "OPTIONS", "*")
        assert star.status == 204
        assert "get" in star.members("allow")
        tunnel = await ask(gateway, "CONNECT", "evil.example:443", framing="none")
        assert tunnel.status == 405
        assert up.requests == []
        assert (await ask(gateway, "OPTIONS", "/a")).status == 200
        assert up.last.method == b"OPTIONS"
