"""Pools towards upstreams: shared by routes that connect the same way, closed as a whole, and deaf to the environment."""

import os
from pathlib import Path

import pytest
from support.certificates import authority
from support.client import ask, connect
from support.gateways import gateway_for, gateway_process
from support.messages import Request, head_bytes
from support.upstream import Peer, Reply, each, upstream

from config.schema import Route
from gateway.clients import Clients


def route(upstream_url: str = "http://127.0.0.1:1", **more: object) -> Route:
    return Route.model_validate({"name": "r", "upstream": upstream_url, **more})


async def test_routes_that_connect_the_same_way_share_a_pool(tmp_path: Path) -> None:
    ca = str(authority(tmp_path).ca)
    clients = Clients(32768)
    try:
        plain = clients.for_route(route())
        assert clients.for_route(route("https://other.example/base", kind="openai")) is plain
        unix = clients.for_route(route("unix:/tmp/a"))
        assert unix is not plain
        assert clients.for_route(route("unix:/tmp/a", name="s")) is unix
        assert clients.for_route(route("unix:/tmp/b")) is not unix
        trusting = clients.for_route(route("https://h", tls={"ca": ca}))
        assert trusting is not plain
        assert clients.for_route(route("https://i", tls={"ca": ca, "server_name": "x"})) is trusting
    finally:
        await clients.close()


async def test_a_ca_that_cannot_be_read_fails_when_it_is_asked_for(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate")
    clients = Clients(32768)
    for file in (tmp_path / "none.pem", empty):
        with pytest.raises(OSError):
            clients.for_route(route(tls={"ca": str(file)}))
    await clients.close()


async def test_closing_closes_every_connection_and_may_be_done_twice() -> None:
    async with upstream(Reply(200, [], b"x")) as up, gateway_for(up) as gateway:
        for _ in range(3):
            assert (await ask(gateway, "GET", "/")).status == 200
        assert len(up.peers) == 1, "connections are kept and used again"
        await gateway.services.clients.close()
        await up.all_gone(1)
        await gateway.services.clients.close()


async def test_the_heads_of_answers_have_a_limit_and_many_fields_pass() -> None:
    """H04: 9 KB of one field and 130 fields are refused by aiohttp as it comes."""

    def answer(request: Request) -> Reply:
        match request.target:
            case b"/large":
                return Reply(200, [("X", "a" * 20_000)], b"x")
            case b"/many":
                return Reply(200, [(f"X-{number}", "1") for number in range(1000)], b"x")
        return Reply(200, [("X", "a" * 70_000)], b"x")

    async with upstream(answer) as up, gateway_for(up, kind="plain") as gateway, connect(gateway) as client:
        assert len((await client.ask("GET", "/large")).value("x") or b"") == 20_000
        assert len((await client.ask("GET", "/many")).fields) >= 1000
        refused = await client.ask("GET", "/huge")
        assert refused.status == 502
        assert b"urn:packhorse:upstream-cut" in refused.body
        assert (await client.ask("GET", "/large")).status == 200


NO_STATUS = ["000 X", "099 X", "1 X", "20 X", "2000 X", "abc X"]


@pytest.mark.parametrize("line", [*(f"HTTP/1.1 {rest}" for rest in NO_STATUS), "HTP/1.1 200 OK"])
@pytest.mark.parametrize("kind", ["plain", "prepare"])
async def test_an_answer_without_a_status_is_a_502(line: str, kind: str) -> None:
    """RFC 9110 15: a status is three digits from 100 on; ``HTTP/1.1 0 X`` to the client would be no HTTP."""

    async def answer(peer: Peer, request: Request) -> None:
        await peer.send(head_bytes(line, [("Content-Length", "1")]) + b"x")
        peer.close()

    async with upstream(each(answer)) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", "/")
        assert response.status == 502
        assert b"urn:packhorse:upstream-cut" in response.body


async def test_cookies_are_not_kept_for_the_next_caller() -> None:
    reply = Reply(200, [("Set-Cookie", "who=first; Path=/")], b"x")
    async with upstream(reply, host="localhost") as up, gateway_for(up.url.replace("127.0.0.1", "localhost")) as gateway:
        for _ in range(2):
            await ask(gateway, "GET", "/")
        assert not up.last.values("cookie")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_proxies_and_credentials_of_the_environment_are_not_used(host: str, tmp_path: Path) -> None:
    """H06: a loopback upstream behind HTTP_PROXY; .netrc names a password for it."""
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine {host} login someone password secret\n")
    os.chmod(netrc, 0o600)
    proxy = "http://127.0.0.1:1"
    environment = {"HTTP_PROXY": proxy, "http_proxy": proxy, "ALL_PROXY": proxy, "NETRC": str(netrc)}
    async with upstream(Reply(200, [], b"ok"), host=host) as up, gateway_process(up, environment=environment) as gateway:
        assert (await ask(gateway, "GET", "/")).body == b"ok"
        assert not up.last.values("authorization")


async def test_pools_outlive_what_was_built_on_them() -> None:
    """A reload builds routes anew: they find the warm connections."""
    from gateway.pipeline import build

    async with upstream(Reply(200, [], b"x")) as up, gateway_for(up) as gateway:
        await ask(gateway, "GET", "/")
        gateway._router = build(gateway.configuration, gateway.services)
        await ask(gateway, "GET", "/")
        assert len(up.peers) == 1
