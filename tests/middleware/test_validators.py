"""Validators through a gateway that codes: weakened down, mapped back up, tags of our own, 304."""

from typing import Any

import pytest
from multidict import CIMultiDict
from support.client import ask
from support.gateways import gateway_for
from support.messages import Request
from support.packs import decoded, gzipped
from support.texts import document
from support.upstream import Reply, upstream

from middleware.conditional import TagMemory
from middleware.exchange import Exchange
from middleware.validators import to_upstream

BODY = document(1)
GZIP = ("Accept-Encoding", "gzip")
TEXT = ("Content-Type", "text/plain")
OWN = 'W/"sha256-' + "0123456789abcdef" * 2 + '"'
STRONG = '"v1"'
WEAK = 'W/"v1"'


def tagged(*tags: str, status: int = 200, **fields: str) -> Any:
    """An upstream that honours If-None-Match by the weak and If-Match by the strong comparison."""

    def respond(request: Request) -> Reply:
        tag = tags[0] if tags else None
        extra = [(name.replace("_", "-"), value) for name, value in fields.items()]
        named = [value.decode() for value in request.values("if-none-match")]
        matched = [value.decode() for value in request.values("if-match")]
        tag_field = [("ETag", tag)] if tag else []
        if tag and any(tag.removeprefix("W/") in line for line in named):
            return Reply(304, [*tag_field, *extra])
        if matched and not any(line == tag and not line.startswith("W/") for line in matched):
            return Reply(412, [], b"precondition failed")
        return Reply(status, [TEXT, *tag_field, *extra], BODY)

    return respond


# Down


@pytest.mark.parametrize(
    ("upstreams", "clients"), [(STRONG, WEAK), (WEAK, WEAK), ('""', 'W/""'), ('"a b"', 'W/"a b"'), ("malformed", "malformed")]
)
async def test_a_body_coded_here_has_a_weak_tag(upstreams: str, clients: str) -> None:
    async with upstream(tagged(upstreams)) as up, gateway_for(up) as gateway:
        response = await ask(gateway, "GET", "/", [GZIP])
        assert response.members("content-encoding") == ["gzip"]
        assert (response.text("etag"), decoded(response)) == (clients, BODY)


@pytest.mark.parametrize("accept", [[], [("Accept-Encoding", "identity")], [("Accept-Encoding", "br")]])
async def test_a_body_left_alone_keeps_its_tag(accept: list[tuple[str, str]]) -> None:
    async with upstream(tagged(STRONG)) as up, gateway_for(up) as gateway:
        assert (await ask(gateway, "GET", "/", accept)).text("etag") == STRONG


async def test_a_body_decoded_here_has_a_weak_tag_too() -> None:
    reply = Reply(200, [TEXT, ("ETag", STRONG), ("Content-Encoding", "gzip")], gzipped(BODY))
    async with upstream(reply) as up, gateway_for(up) as gateway:
        response = await ask(gateway, "GET", "/", [("Accept-Encoding", "identity")])
        assert (response.body, response.text("etag")) == (BODY, WEAK)
        assert (await ask(gateway, "GET", "/", [GZIP])).text("etag") == STRONG  # passed as it came


# Up


def mapped(known: tuple[str, ...], **fields: str) -> dict[str, list[str]]:
    """The request's conditions as they go up, where ``known`` are strong tags of the route that went down weak."""
    tags = TagMemory()
    for tag in known:
        tags.weaken("r", tag)
    exchange = Exchange(CIMultiDict((name.replace("_", "-"), value) for name, value in fields.items()), route="r")
    to_upstream(exchange, tags)
    return {name: exchange.outgoing.getall(name) for name in exchange.outgoing}


@pytest.mark.parametrize(
    ("known", "fields", "sent"),
    [
        ((STRONG,), {"If_None_Match": WEAK}, {"If-None-Match": [STRONG]}),
        ((), {"If_None_Match": WEAK}, {"If-None-Match": [WEAK]}),
        ((STRONG,), {"If_None_Match": 'W/"v2", W/"v1"'}, {"If-None-Match": ['W/"v2", "v1"']}),
        ((STRONG,), {"If_None_Match": "*"}, {"If-None-Match": ["*"]}),
        ((), {"If_None_Match": OWN}, {}),
        ((STRONG,), {"If_None_Match": f"{OWN}, {WEAK}"}, {"If-None-Match": [STRONG]}),
        ((STRONG,), {"If_Match": WEAK}, {"If-Match": [STRONG]}),
        ((), {"If_Match": WEAK}, {"If-Match": [WEAK]}),
        ((), {"If_Match": OWN}, {"If-Match": [OWN]}),  # answered 412, and rightly
        ((STRONG,), {"If_Range": WEAK, "Range": "bytes=5-"}, {}),
        ((), {"If_Range": OWN, "Range": "bytes=5-"}, {}),
        ((), {"If_Range": WEAK, "Range": "bytes=5-"}, {"If-Range": [WEAK], "Range": ["bytes=5-"]}),
        ((STRONG,), {"If_Range": STRONG, "Range": "bytes=5-"}, {"If-Range": [STRONG], "Range": ["bytes=5-"]}),
        ((), {"Range": "bytes=5-"}, {"Range": ["bytes=5-"]}),
        ((), {}, {}),
    ],
)
def test_conditions_on_their_way_up(known: tuple[str, ...], fields: dict[str, str], sent: dict[str, list[str]]) -> None:
    assert mapped(known, **fields) == sent


async def test_a_tag_is_mapped_back_to_what_the_upstream_knows() -> None:
    async with upstream(tagged(STRONG)) as up, gateway_for(up) as gateway:
        assert (await ask(gateway, "GET", "/", [GZIP])).text("etag") == WEAK
        same = await ask(gateway, "GET", "/", [GZIP, ("If-None-Match", WEAK)])
        assert up.last.value("if-none-match") == STRONG.encode()
        assert (same.status, same.body, same.text("etag")) == (304, b"", WEAK)  # the tag that the 200 had
        put = await ask(gateway, "PUT", "/", [GZIP, ("If-Match", WEAK)], b"new")
        assert (put.status, up.last.value("if-match")) == (200, STRONG.encode())
        other = await ask(gateway, "PUT", "/", [GZIP, ("If-Match", 'W/"v0"')], b"new")
        assert (other.status, up.last.value("if-match")) == (412, b'W/"v0"')


async def test_a_route_does_not_know_the_tags_of_another() -> None:
    async with upstream(tagged(STRONG)) as up:
        routes = [{"name": name, "match": f"/{name}", "upstream": up.url, "kind": "prepare"} for name in ("a", "b")]
        async with gateway_for(routes=routes) as gateway:
            await ask(gateway, "GET", "/a", [GZIP])
            await ask(gateway, "GET", "/b", [("If-None-Match", WEAK)])
            assert up.last.value("if-none-match") == WEAK.encode()


# Tags of our own


async def own_tag_of(gateway: Any, *fields: tuple[str, str]) -> str:
    response = await ask(gateway, "GET", "/", [GZIP, *fields])
    tag = response.text("etag")
    assert tag is not None
    assert tag.startswith('W/"sha256-')
    assert len(tag) == len(OWN)
    return tag


async def test_where_the_upstream_sends_none_a_get_gets_one_and_an_unchanged_body_is_a_304() -> None:
    async with upstream(tagged()) as up, gateway_for(up) as gateway:
        tag = await own_tag_of(gateway)
        for sent in (tag, f'"other", {tag}'):
            same = await ask(gateway, "GET", "/", [GZIP, ("If-None-Match", sent), ("Packhorse-Debug", "1")])
            assert (same.status, same.body, same.text("etag"), same.text("packhorse-why")) == (304, b"", tag, "unchanged")
            assert not {"content-encoding", "content-type", "content-length"} & set(same.names())
            assert "accept-encoding" in same.members("vary")
            assert tag.encode() not in b"".join(up.last.values("if-none-match"))
        assert len(up.requests) == 3  # the upstream was asked each time


async def test_it_is_the_same_for_every_coding_and_another_for_another_body() -> None:
    bodies = [document(1), document(1), document(1), document(2)]
    async with upstream(lambda _: Reply(200, [TEXT], bodies.pop(0))) as up, gateway_for(up) as gateway:
        tags = []
        for accept in ("gzip", "zstd", "ctxpack.pack.v1", "gzip"):
            tags.append((await ask(gateway, "GET", "/", [("Accept-Encoding", accept)])).text("etag"))
        assert tags[0] == tags[1] == tags[2] != tags[3]


async def test_a_body_that_changed_comes_whole() -> None:
    async with upstream(tagged()) as up, gateway_for(up) as gateway:
        response = await ask(gateway, "GET", "/", [GZIP, ("If-None-Match", OWN)])
        assert (response.status, decoded(response)) == (200, BODY)


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("POST", Reply(200, [TEXT], BODY)),
        ("PUT", Reply(200, [TEXT], BODY)),
        ("GET", Reply(201, [TEXT], BODY)),
        ("GET", Reply(404, [TEXT], BODY)),
        ("GET", Reply(200, [TEXT, ("Cache-Control", "no-store")], BODY)),
        ("GET", Reply(200, [TEXT], bytes(range(128, 256)) * 9)),  # no text
        ("GET", Reply(200, [TEXT, ("Cache-Control", "no-transform")], BODY)),
        ("HEAD", Reply(200, [TEXT], b"")),
    ],
)
async def test_no_tag_of_our_own(method: str, reply: Reply) -> None:
    async with upstream(reply) as up, gateway_for(up) as gateway:
        response = await ask(gateway, method, "/", [GZIP], b"x" if method in ("POST", "PUT") else b"")
        assert "etag" not in response.names()


async def test_the_upstreams_own_tag_is_never_replaced() -> None:
    async with upstream(tagged(WEAK)) as up, gateway_for(up) as gateway:
        assert (await ask(gateway, "GET", "/", [GZIP, ("If-None-Match", OWN)])).text("etag") == WEAK


# Ranges


async def test_a_part_of_a_body_coded_here_is_not_completed_by_a_part_of_another() -> None:
    async with upstream(tagged(STRONG)) as up, gateway_for(up) as gateway:
        assert (await ask(gateway, "GET", "/", [GZIP])).text("etag") == WEAK
        whole = await ask(gateway, "GET", "/", [GZIP, ("If-Range", WEAK), ("Range", "bytes=10-")])
        assert (whole.status, decoded(whole)) == (200, BODY)
        assert not {"if-range", "range"} & set(up.last.names())
        await ask(gateway, "GET", "/", [("If-Range", STRONG), ("Range", "bytes=10-")])
        assert (up.last.value("if-range"), up.last.value("range")) == (STRONG.encode(), b"bytes=10-")
