"""What a client takes and holds, as one value."""

from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from support.client import ask
from support.messages import FieldsLike

from middleware.offers import DELTA, PACK, Offers, offers_of, taken

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("accept", "by_script", "expected"),
    # expected: pack, delta, dictionary, identity, made, outer
    [
        ((), (), (False, False, False, True, (), ())),
        (("",), (), (False, False, False, True, (), ())),
        (("gzip",), (), (False, False, False, True, ("gzip",), ("gzip",))),
        (("zstd, gzip, br",), (), (False, False, False, True, ("gzip", "zstd"), ("gzip", "zstd"))),
        (("*",), (), (False, False, False, True, ("gzip", "zstd"), ("gzip", "zstd"))),
        (("gzip;q=0, *",), (), (False, False, False, True, ("zstd",), ("zstd",))),
        ((f"{PACK}, {DELTA}, dcz",), (), (True, True, True, True, (), ())),
        ((f"{PACK};q=0, {DELTA};q=0.1", "dcz;q=0"), (), (False, True, False, True, (), ())),
        (("identity;q=0, gzip",), (), (False, False, False, False, ("gzip",), ("gzip",))),
        # a script in a browser: its own field is appended, and only its own zstd may go around a delta
        (("gzip, deflate, br, zstd",), (DELTA,), (False, True, False, True, ("gzip", "zstd"), ("gzip",))),
        (("gzip, zstd",), (f"{DELTA}, zstd",), (False, True, False, True, ("gzip", "zstd"), ("gzip", "zstd"))),
        (("gzip, zstd",), (f"{DELTA}, zstd;q=0",), (False, True, False, True, ("gzip",), ("gzip",))),
        (("zstd",), (DELTA,), (False, True, False, True, ("zstd",), ())),
        ((), (DELTA,), (False, True, False, True, (), ())),
        ((), (f"{DELTA}, gzip",), (False, True, False, True, ("gzip",), ("gzip",))),
        (("gzip",), ("*",), (False, False, False, True, ("gzip", "zstd"), ("gzip",))),
    ],
)
def test_what_a_client_takes(accept: tuple[str, ...], by_script: tuple[str, ...], expected: tuple[Any, ...]) -> None:
    found = taken(accept, by_script)
    assert (found.pack, found.delta, found.dictionary, found.identity, found.made, found.outer) == expected
    assert found.ctxpack == (found.pack or found.delta)
    assert found.takes_part == (found.pack or found.delta or found.dictionary)


def test_equal_ones_are_worked_out_once_and_long_ones_are_not_kept() -> None:
    assert taken(("gzip", PACK), ()) is taken(("gzip", PACK), ())
    long = ("gzip, " * 200,)
    assert taken(long, ()) == taken(long, ())
    assert taken(long, ()) is not taken(long, ())


@settings(deadline=None)
@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_nothing_a_client_says_raises(accept: list[str], by_script: list[str]) -> None:
    found = taken(tuple(accept), tuple(by_script))
    assert set(found.outer) <= set(found.made) <= {"gzip", "zstd"}


async def offers(aiohttp_server: Any, fields: FieldsLike) -> Offers:
    seen: list[Offers] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(offers_of(request))
        assert offers_of(request) is seen[0]  # read once an exchange
        return web.Response()

    app = web.Application()
    app.router.add_get("/", handler)
    await ask((await aiohttp_server(app)).port, "GET", "/", fields)
    return seen[0]


@pytest.mark.parametrize(
    ("fields", "bases", "asks_pack"),
    [
        ([], (), False),
        ([("Ctxpack-Base", "none")], (), True),
        ([("Ctxpack-Base", DIGEST)], (DIGEST,), False),
        ([("Ctxpack-Base", f"none, {DIGEST}")], (DIGEST,), False),
        ([("Ctxpack-Base", ""), ("Ctxpack-Base", DIGEST)], (DIGEST,), False),
        ([("Ctxpack-Base", "nonsense")], (), False),
    ],
)
async def test_what_a_client_holds(aiohttp_server: Any, fields: FieldsLike, bases: tuple[str, ...], asks_pack: bool) -> None:
    found = await offers(aiohttp_server, fields)
    assert (found.bases, found.asks_pack) == (bases, asks_pack)


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ([], False),
        ([("Packhorse-Debug", "1")], True),
        ([("Packhorse-Debug", " 1 ")], True),
        ([("Packhorse-Debug", "0")], False),
        ([("Packhorse-Debug", "true")], False),
        ([("Packhorse-Debug", "")], False),
    ],
)
async def test_who_asks_why(aiohttp_server: Any, fields: FieldsLike, asks: bool) -> None:
    assert (await offers(aiohttp_server, fields)).asks_why is asks


async def test_both_fields_are_one_list(aiohttp_server: Any) -> None:
    fields = [("Accept-Encoding", "gzip"), ("Ctxpack-Accept", PACK), ("Accept-Encoding", "zstd"), ("Ctxpack-Accept", DELTA)]
    found = (await offers(aiohttp_server, fields)).taken
    assert (found.pack, found.delta, found.made) == (True, True, ("gzip", "zstd"))
