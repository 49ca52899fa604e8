"""The kit against itself: what it says of a connection is true, before anything is said of the gateway with it."""

import asyncio

import pytest
from support.channel import Ended
from support.client import connect, request_bytes
from support.messages import Malformed, chunked
from support.upstream import Peer, Reply, each, upstream

HOSTS = ["127.0.0.1", "localhost", "::1", "unix"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("feed", ["whole", "bytes"])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_an_exchange_is_what_was_sent(host, feed, framing):
    reply = Reply(200, [("X-A", b"caf\xe9"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")], b"hello", feed, framing)
    async with upstream(reply, host=host) as up, connect(up.url) as client:
        response = await client.ask("POST", "/a%2Fb?c", [("X-B", "1"), ("x-b", "2")], b"x" * 2500, framing="chunked")
        assert (response.status, response.body, response.complete, response.framing) == (200, b"hello", True, framing)
        assert response.values("set-cookie") == [b"a=1", b"b=2"]
        assert response.value("x-a") == b"caf\xe9"
        assert up.last.target == b"/a%2Fb?c"
        assert up.last.values("X-B") == [b"1", b"2"]
        assert up.last.body == b"x" * 2500
        assert client.sent == up.peers[0].received
        assert client.received == up.peers[0].sent


@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_leaving_is_seen_at_once_by_both_sides(leave):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with upstream(script) as up, connect(up.url) as client:
        await client.send(request_bytes("GET", "/"))
        await up.seen(1)
        getattr(client, leave)()
        await up.all_gone(1)
        assert up.peers[0].how_closed == {"close": "fin", "reset": "rst"}[leave]


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_cut_body_is_told_from_a_whole_one(framing):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        if framing == "length":
            await peer.send(b"Content-Length: 10\r\n\r\nhello")
        else:
            await peer.send(b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"hello", end=False))
        await asyncio.sleep(0)
        peer.close()

    async with upstream(script) as up, connect(up.url) as client:
        response = await client.ask("GET", "/")
        assert (response.body, response.complete) == (b"hello", False)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nDate: a\r\nDate: b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A : a\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
    ],
)
async def test_what_a_strict_client_refuses_is_refused(raw):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(raw)
        peer.close()

    async with upstream(script) as up, connect(up.url) as client:
        with pytest.raises((Malformed, Ended)):
            await client.ask("GET", "/")


async def test_pipelining_and_tls(ca):
    async with (
        upstream(each(lambda request: Reply(body=request.target)), tls=ca.server("localhost", "127.0.0.1")) as up,
        connect(up.url, tls=ca.client()) as client,
    ):
        await client.send(request_bytes("GET", "/1") + request_bytes("GET", "/2"))
        assert [(await client.response()).body for _ in range(2)] == [b"/1", b"/2"]
