"""Who is believed about the client, and what the upstream is told of it (RFC 7239, RFC 9110 7.6.3)."""

import re
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from support.client import ask
from support.messages import FieldsLike

from middleware.exchange import Exchange, exchange_of
from middleware.fields import FORWARDING
from middleware.forwarded import Forwarded, Mode, inside, networks
from middleware.problems import problems

PROXIES = ["127.0.0.1/32", "10.0.0.0/8", "2001:db8:1::/48"]
STRANGERS: list[str] = []
VIA = "packhorse-test"


class Seen:
    """Exchanges as they left the middleware, of a server on loopback: every request comes from 127.0.0.1."""

    def __init__(self, aiohttp_server: Any) -> None:
        self._start = aiohttp_server
        self.status = 0
        self.body = b""

    async def __call__(self, fields: FieldsLike, trusted: list[str] = PROXIES, mode: Mode = "off") -> Exchange:
        seen: list[Exchange] = []

        async def handler(request: web.Request) -> web.Response:
            seen.append(exchange_of(request))
            return web.Response()

        app = web.Application(middlewares=[problems, web.middleware(Forwarded(mode, networks(trusted), VIA))])
        app.router.add_get("/", handler)
        server = await self._start(app)
        response = await ask(server.port, "GET", "/", fields)
        self.status, self.body = response.status, response.body
        return seen[0] if seen else Exchange(outgoing=None)  # type: ignore[arg-type]


@pytest.fixture
def seen(aiohttp_server: Any) -> Seen:
    return Seen(aiohttp_server)


def x_for(*addresses: str) -> list[tuple[str, str]]:
    return [("X-Forwarded-For", ", ".join(addresses))]


def forwarded(value: str) -> list[tuple[str, str]]:
    return [("Forwarded", value)]


# Who the client is


@pytest.mark.parametrize(
    ("fields", "peer"),
    [
        ([], "127.0.0.1"),
        (x_for("203.0.113.7"), "203.0.113.7"),
        (x_for("203.0.113.7", "10.0.0.9"), "203.0.113.7"),  # through two of our proxies
        (x_for("198.51.100.1", "203.0.113.7", "10.0.0.9"), "203.0.113.7"),  # what came before is the client's own invention
        (x_for("10.0.0.8", "10.0.0.9"), "10.0.0.8"),  # all ours: the farthest
        ([("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "203.0.113.7")], "203.0.113.7"),
        (x_for("2001:db8:1::1", "2001:db8:2::2", "2001:db8:1::3"), "2001:db8:2::2"),
        (x_for("::ffff:203.0.113.7", "::ffff:10.0.0.9"), "203.0.113.7"),
        (x_for("unknown"), "127.0.0.1"),
        (x_for("", "nonsense, 203.0.113.7"), "203.0.113.7"),
        ([("X-Real-IP", "203.0.113.7")], "127.0.0.1"),
        (forwarded("for=203.0.113.7"), "203.0.113.7"),
        (forwarded("For=203.0.113.7;proto=https;by=10.0.0.1"), "203.0.113.7"),
        (forwarded('for="203.0.113.7:8080"'), "203.0.113.7"),
        (forwarded('for="[2001:db8:2::2]:4711"'), "2001:db8:2::2"),
        (forwarded('for="[2001:db8:2::2]", for=10.0.0.1'), "2001:db8:2::2"),
        (forwarded("for=198.51.100.1, for=203.0.113.7,for=10.0.0.9"), "203.0.113.7"),
        (forwarded("for=_hidden, for=10.0.0.9"), "10.0.0.9"),
        (forwarded("for=unknown"), "127.0.0.1"),
        (forwarded("proto=https"), "127.0.0.1"),
        (forwarded('for="'), "127.0.0.1"),
        ([*forwarded("for=203.0.113.7"), *x_for("198.51.100.1")], "203.0.113.7"),  # the standard one is believed
    ],
)
async def test_the_client_is_the_nearest_that_is_no_proxy_of_ours(seen: Seen, fields: FieldsLike, peer: str) -> None:
    assert ((await seen(fields)).peer or "").removeprefix("::ffff:") == peer


@pytest.mark.parametrize(
    ("fields", "peer"),
    [
        (x_for("203.0.113.7:4711"), "203.0.113.7"),
        (x_for("203.0.113.7", "10.0.0.9:4711"), "203.0.113.7"),
        (x_for("[2001:db8:2::2]:4711"), "2001:db8:2::2"),
        (x_for("2001:db8:2::2", "[2001:db8:1::3]:4711"), "2001:db8:2::2"),
    ],
)
async def test_a_port_is_no_part_of_an_address(seen: Seen, fields: FieldsLike, peer: str) -> None:
    """Some proxies write one into X-Forwarded-For; with it the address would be in no network, their own not either."""
    assert (await seen(fields)).peer == peer


UNTOLD = [
    forwarded("for=198.51.100.1, for=_hidden"),
    forwarded("for=198.51.100.1, for=unknown"),
    x_for("198.51.100.1", "unknown"),
]


@pytest.mark.parametrize("fields", UNTOLD)
async def test_a_hop_without_an_address_is_not_passed_over(seen: Seen, fields: FieldsLike) -> None:
    """The trusted proxy says that it does not tell: what stands before that is the client's own invention."""
    assert (await seen(fields)).peer != "198.51.100.1"


@pytest.mark.parametrize("fields", [x_for("203.0.113.7"), forwarded("for=203.0.113.7;proto=https")])
@pytest.mark.parametrize("trusted", [STRANGERS, ["10.0.0.0/8"], ["::1/128"]])
async def test_a_stranger_is_not_believed(seen: Seen, fields: FieldsLike, trusted: list[str]) -> None:
    exchange = await seen([*fields, ("X-Forwarded-Proto", "https")], trusted)
    assert (exchange.peer, exchange.secure) == ("127.0.0.1", False)


async def test_a_quoted_string_is_read_as_one(seen: Seen) -> None:
    """RFC 7239 4: commas and semicolons within quotes divide nothing, so no client can forge an element within its own."""
    exchange = await seen(forwarded('for=203.0.113.7;by="x, for=198.51.100.1", for=10.0.0.9'))
    assert exchange.peer == "203.0.113.7"
    exchange = await seen(forwarded('for=203.0.113.7;host="a;proto=https"'))
    assert (exchange.peer, exchange.secure) == ("203.0.113.7", False)


@pytest.mark.parametrize(
    ("fields", "secure"),
    [
        ([], False),
        ([("X-Forwarded-Proto", "https")], True),
        ([("X-Forwarded-Proto", " HTTPS ")], True),
        ([("X-Forwarded-Proto", "http")], False),
        ([("X-Forwarded-Proto", "https, http")], False),  # the nearest proxy's word
        ([("X-Forwarded-Proto", "http, https")], True),
        (forwarded("for=203.0.113.7;proto=https"), True),
        (forwarded('for=203.0.113.7;proto="https"'), True),
        (forwarded("for=203.0.113.7;Proto=HTTPS"), True),
        (forwarded("for=203.0.113.7;proto=https, for=10.0.0.9;proto=http"), False),
        ([*forwarded("proto=http"), ("X-Forwarded-Proto", "https")], False),
    ],
)
async def test_https_is_a_trusted_proxys_word(seen: Seen, fields: FieldsLike, secure: bool) -> None:
    assert (await seen(fields)).secure is secure


# What the upstream is told

EVERY_CLAIM = [(name.title(), "for=198.51.100.66") for name in sorted(FORWARDING)]


@pytest.mark.parametrize("trusted", [STRANGERS, PROXIES])
async def test_off_tells_the_upstream_nothing(seen: Seen, trusted: list[str]) -> None:
    exchange = await seen([*EVERY_CLAIM, ("X-Other", "1")], trusted)
    assert [name for name in exchange.outgoing if name.lower() in FORWARDING] == []
    assert exchange.outgoing["X-Other"] == "1"


@pytest.mark.parametrize(
    ("fields", "trusted", "told"),
    [
        ([], STRANGERS, "127.0.0.1"),
        (x_for("198.51.100.66"), STRANGERS, "127.0.0.1"),
        (x_for("203.0.113.7"), PROXIES, "203.0.113.7, 127.0.0.1"),
        (forwarded('for="[2001:db8:2::2]:47"'), PROXIES, "2001:db8:2::2, 127.0.0.1"),
    ],
)
async def test_x_forwarded(seen: Seen, fields: FieldsLike, trusted: list[str], told: str) -> None:
    outgoing = (await seen([*fields, ("Host", "gw.example:8080")], trusted, "x-forwarded")).outgoing
    assert outgoing.getall("X-Forwarded-For") == [told]
    assert outgoing.getall("X-Forwarded-Proto") == ["http"]
    assert outgoing.getall("X-Forwarded-Host") == ["gw.example:8080"]
    assert "Forwarded" not in outgoing


@pytest.mark.parametrize(
    ("fields", "trusted", "told"),
    [
        ([], STRANGERS, 'for=127.0.0.1;proto=http;host="gw.example:8080"'),
        (forwarded("for=198.51.100.66"), STRANGERS, 'for=127.0.0.1;proto=http;host="gw.example:8080"'),
        (x_for("203.0.113.7"), PROXIES, 'for=203.0.113.7, for=127.0.0.1;proto=http;host="gw.example:8080"'),
        (x_for("2001:db8:2::2"), PROXIES, 'for="[2001:db8:2::2]", for=127.0.0.1;proto=http;host="gw.example:8080"'),
        ([("X-Forwarded-Proto", "https")], PROXIES, 'for=127.0.0.1;proto=https;host="gw.example:8080"'),
    ],
)
async def test_forwarded(seen: Seen, fields: FieldsLike, trusted: list[str], told: str) -> None:
    outgoing = (await seen([*fields, ("Host", "gw.example:8080")], trusted, "forwarded")).outgoing
    assert outgoing.getall("Forwarded") == [told]
    assert "X-Forwarded-For" not in outgoing


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR = rf'{_TOKEN}=(?:{_TOKEN}|"(?:[^"\\]|\\.)*")'
_FORWARDED = re.compile(rf"{_PAIR}(?:;{_PAIR})*(?:, {_PAIR}(?:;{_PAIR})*)*")
"""RFC 7239 4."""


@pytest.mark.parametrize("host", ["gw", 'g"w', "g\\w", "a;proto=https", "a, for=10.0.0.1", "[::1]:80"])
async def test_no_host_breaks_out_of_its_quotes(seen: Seen, host: str) -> None:
    told = (await seen([("Host", host)], STRANGERS, "forwarded")).outgoing["Forwarded"]
    assert _FORWARDED.fullmatch(told)
    quoted = re.search(r'host="((?:[^"\\]|\\.)*)"$', told)
    assert quoted is not None
    assert re.sub(r"\\(.)", r"\1", quoted[1]) == host


CLAIMS = [
    '203.0.113.7", for="x',
    "203.0.113.7;by=x",
    "fe80::1%eth0",
    'fe80::1%"',
    'fe80::1%";by=x;x="',
    "203.0.113.7:80",
    "::1%a b",
]


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("mode", ["forwarded", "x-forwarded"])
async def test_what_a_claim_says_cannot_add_to_what_is_told(seen: Seen, claim: str, mode: Mode) -> None:
    outgoing = (await seen(x_for(claim), PROXIES, mode)).outgoing
    if mode == "forwarded":
        told = outgoing["Forwarded"]
        assert _FORWARDED.fullmatch(told), told
        assert told.count("by=") == 0
    else:
        for address in outgoing["X-Forwarded-For"].split(", "):
            assert re.fullmatch(r"[0-9a-fA-F.:]+(?:%[0-9A-Za-z]+)?(?::\d+)?", address), address


# Via


@pytest.mark.parametrize(
    ("vias", "sent"),
    [
        ([], f"1.1 {VIA}"),
        (["1.0 fred"], f"1.0 fred, 1.1 {VIA}"),
        (["1.0 fred, 1.1 p.example (x, y)", "2 other"], f"1.0 fred, 1.1 p.example (x, y), 2 other, 1.1 {VIA}"),
        (["1.1 packhorse-other"], f"1.1 packhorse-other, 1.1 {VIA}"),  # another gateway is no loop
    ],
)
@pytest.mark.parametrize("mode", ["off", "forwarded", "x-forwarded"])
async def test_via_grows_by_us(seen: Seen, vias: list[str], sent: str, mode: Mode) -> None:
    exchange = await seen([("Via", via) for via in vias], STRANGERS, mode)
    assert exchange.outgoing.getall("Via") == [sent]


@pytest.mark.parametrize("vias", [[f"1.1 {VIA}"], ["1.0 fred", f"1.1 {VIA}, 1.1 other"], [f"1.1 {VIA}", "1.1 other"]])
async def test_a_request_that_was_here_before_is_a_loop(seen: Seen, vias: list[str]) -> None:
    await seen([("Via", via) for via in vias])
    assert seen.status == 502
    assert b"urn:packhorse:upstream-unreachable" in seen.body


# Addresses


@pytest.mark.parametrize(
    ("address", "is_inside"),
    [
        ("10.1.2.3", True),
        (" 10.1.2.3 ", True),
        ("11.1.2.3", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:a01:203", True),
        ("[2001:db8:1::9]", True),
        ("2001:db8:1::9%eth0", True),
        ("2001:db8:2::9", False),
        ("::10.1.2.3", False),  # not mapped: the old compatible form
        ("010.1.2.3", False),  # ambiguous, so no address
        ("10.1.2", False),
        ("10.1.2.3:80", False),
        ("", False),
        (None, False),
        ("10.1.2.3, 10.1.2.4", False),
    ],
)
def test_inside(address: str | None, is_inside: bool) -> None:
    assert inside(address, networks(PROXIES)) is is_inside


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.none(), st.text(), st.text(alphabet="0123456789abcdef.:[]%/")))
def test_inside_never_raises(address: str | None) -> None:
    assert inside(address, networks(PROXIES)) in (True, False)


@pytest.mark.parametrize("cidr", ["10.0.0.1/8", "::1", "192.0.2.7"])
def test_a_network_may_be_a_host_or_have_host_bits(cidr: str) -> None:
    assert inside(cidr.partition("/")[0], networks([cidr]))
