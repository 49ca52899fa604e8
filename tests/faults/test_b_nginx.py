"""(b) and (c) with a real nginx before and behind the gateway: what servers in the field do, not what we script."""

import asyncio

import pytest
from support.client import ask, connect, request_bytes
from support.gateways import gateway_for
from support.nginx import BINARY, nginx
from support.packs import pack_client
from support.texts import document
from support.twins import growing, turn_of
from support.upstream import Peer, each, upstream

pytestmark = pytest.mark.skipif(BINARY is None, reason="nginx is not installed")


async def test_b17_events_pass_an_nginx_in_front_as_they_come(tmp_path):
    """theopenconversationkit/tock#1895: an nginx with its default buffering held the stream back to its end."""
    go = asyncio.Event()

    async def answers(peer: Peer, request) -> None:
        await peer.begin([("Content-Type", "text/event-stream")])
        await peer.chunk(b"data: 1\n\n")
        await go.wait()
        await peer.end()

    async with upstream(each(answers)) as up, gateway_for(up, kind="openai") as gateway:
        server = f"location / {{ proxy_pass {gateway.url}; proxy_http_version 1.1; proxy_read_timeout 30; }}"
        async with nginx(tmp_path, server) as port, connect(port) as client:
            await client.send(request_bytes("POST", "/v1/chat/completions", [("Content-Type", "application/json")], b"{}"))
            await client.arrives(b"data: 1\n\n", 3)
            go.set()


async def test_deltas_pass_an_nginx_in_front_that_gzips(tmp_path):
    """Its gzip must leave a coded body alone, and Ctxpack fields must reach both sides."""
    async with upstream(growing("prepare")) as up, gateway_for(up) as gateway:
        server = f"gzip on; gzip_proxied any; gzip_types *; location / {{ proxy_pass {gateway.url}; proxy_http_version 1.1; }}"
        async with nginx(tmp_path, server) as port, pack_client(port) as client:
            assert not (await turn_of(client, "prepare", 1)).delta
            assert (await turn_of(client, "prepare", 2)).delta


async def test_files_of_an_nginx_behind_get_deltas_tags_and_ranges(tmp_path):
    """A strong tag of nginx's own goes down weak with a coded body and comes back strong; a range passes untouched."""
    (tmp_path / "docs").mkdir()
    file = tmp_path / "docs" / "minutes.txt"
    file.write_bytes(document(1))
    async with (
        nginx(tmp_path, f"root {tmp_path}/docs; default_type text/plain;") as port,
        gateway_for(f"http://127.0.0.1:{port}") as gateway,
        pack_client(gateway) as client,
    ):
        assert (await client.ask("GET", "/minutes.txt")).content == document(1)
        file.write_bytes(document(2))
        turn = await client.ask("GET", "/minutes.txt")
        assert (turn.delta, turn.content == document(2)) == (True, True)
        coded = await ask(gateway, "GET", "/minutes.txt", [("Accept-Encoding", "gzip")])
        tag = coded.text("etag")
        assert tag.startswith('W/"')
        same = await ask(gateway, "GET", "/minutes.txt", [("Accept-Encoding", "gzip"), ("If-None-Match", tag)])
        assert (same.status, same.text("etag"), same.body) == (304, tag, b"")
        part = await ask(gateway, "GET", "/minutes.txt", [("Accept-Encoding", "gzip"), ("Range", "bytes=10-19")])
        assert (part.status, part.body, part.values("content-encoding")) == (206, document(2)[10:20], [])
