"""What ends at the gateway, both ways, and what it answers itself (RFC 9110 7.6.1, 10.1.1)."""

import json

import pytest
from support.client import ask
from support.gateways import gateway_for
from support.messages import FieldsLike
from support.packs import SPOKEN
from support.upstream import Reply, upstream

from middleware.fields import OWN_REQUEST

KINDS = ["plain", "prepare"]


async def sent_up(fields: FieldsLike, kind: str = "prepare") -> dict[str, list[bytes]]:
    """The fields that reach an upstream, by lower-case name; without Host and framing."""
    async with upstream(Reply(body=b"x")) as up, gateway_for(up, kind=kind) as gateway:
        assert (await ask(gateway, "GET", "/", fields)).status == 200
        return {name: up.last.values(name) for name in up.last.names() if name not in ("host", "via", "content-length")}


@pytest.mark.parametrize("kind", KINDS)
async def test_hop_by_hop_fields_of_a_request_end_here(kind: str) -> None:
    fields = [
        ("Connection", "X-Private, keep-alive"),
        ("X-Private", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy-Authorization", "Basic abc"),
        ("TE", "trailers, gzip"),
        ("Trailer", "X-T"),
        ("X-Kept", "2"),
    ]
    assert await sent_up(fields, kind) == {"x-kept": [b"2"]}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_client_says_to_the_gateway_ends_here(kind: str) -> None:
    valid = {"packhorse-session": "s", "packhorse-link": "weak", "expect": "100-continue"}
    fields = [(name, valid.get(name, "x")) for name in sorted(OWN_REQUEST)]
    assert await sent_up([*fields, ("X-Kept", "2")], kind) == {"x-kept": [b"2"]}


@pytest.mark.parametrize("kind", KINDS)
async def test_hop_by_hop_fields_of_a_response_end_here(kind: str) -> None:
    reply = Reply(
        200,
        [
            ("Connection", "X-Private"),
            ("X-Private", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Authenticate", "Basic"),
            ("Proxy-Authentication-Info", "x"),
            ("Trailer", "X-T"),
            ("Upgrade", "h2c"),
            ("X-Kept", "2"),
        ],
        b"x",
    )
    async with upstream(reply) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "GET", "/")
        assert (response.status, response.body, response.text("x-kept")) == (200, b"x", "2")
        ended = {"x-private", "keep-alive", "proxy-authenticate", "proxy-authentication-info", "trailer", "upgrade"}
        assert not ended & set(response.names())


@pytest.mark.parametrize(
    ("accept", "sent"),
    [
        ("gzip, br", b"gzip, br"),
        ("GZip;Q=0.5 ,  br", b"GZip;Q=0.5 ,  br"),
        (f"{SPOKEN}, dcz", b"gzip, zstd"),
        ("dcz", b"identity"),
        ("dcz, identity;q=0", b"identity"),
        (None, None),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_codings_between_client_and_gateway_are_not_offered_upstream(
    kind: str, accept: str | None, sent: bytes | None
) -> None:
    fields = await sent_up([] if accept is None else [("Accept-Encoding", accept)], kind)
    assert fields.get("accept-encoding", [None]) == [sent]


@pytest.mark.parametrize("expectation", ["100-continue", "100-Continue", " 100-CONTINUE "])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_one_expectation_that_can_be_met(kind: str, expectation: str) -> None:
    async with upstream(Reply(body=b"x")) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "POST", "/", [("Expect", expectation)], b"body")
        assert (response.status, up.last.body) == (200, b"body")
        assert "expect" not in up.last.names()


@pytest.mark.parametrize("expectation", ["200-ok", "100-continue, 200-ok", "", "100"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_expectation_that_cannot_be_met_is_a_417(kind: str, expectation: str) -> None:
    async with upstream(Reply(body=b"x")) as up, gateway_for(up, kind=kind) as gateway:
        response = await ask(gateway, "POST", "/", [("Expect", expectation)], b"body")
        assert (response.status, json.loads(response.body)["type"]) == (417, "urn:packhorse:bad-request")
        assert up.requests == []
