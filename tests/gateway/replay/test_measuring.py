"""Passes over real sockets, before a gateway that tells the truth and before ones that do not."""

import asyncio
import gzip
import itertools

import pytest
from aiohttp import web

from ctxpack import ContextPack, ContextPackDelta
from ctxpack.minutes import minutes
from gateway.replay.forms import FORMS, Form
from gateway.replay.measuring import Client, ReplayFailed, Turn

TEXTS = [text.encode() for text in minutes(6)]
TURNS = [Turn(f"/turns/{number}", text) for number, text in enumerate(TEXTS, 1)]
BY_KEY = {form.key: form for form in FORMS}


async def passed(url: str, form: Form, turns: list[Turn] = TURNS) -> list[tuple[int, str]]:
    async with Client(url) as client:
        return [(arrival.body, arrival.coding) async for arrival in client.run(form, turns)]


def packs() -> list[ContextPack]:
    return [ContextPack.from_utf8(text) for text in TEXTS]


async def test_every_form_counts_the_bytes_of_its_coding(stranger) -> None:
    made = packs()
    deltas = [ContextPackDelta.between(old, new).to_bytes() for old, new in itertools.pairwise(made)]
    squeezed = [(len(gzip.compress(text)), "gzip") for text in TEXTS]
    expected = {
        "raw": [(len(text), "identity") for text in TEXTS],
        "packs": [(len(pack.to_bytes()), "ctxpack.pack.v1") for pack in made],
        "deltas": [(len(TEXTS[0]), "identity"), *((len(delta), "ctxpack.delta.v1") for delta in deltas)],
        "deltas-gzip": [squeezed[0], *((len(gzip.compress(delta)), "ctxpack.delta.v1, gzip") for delta in deltas)],
        "gzip": squeezed,
    }
    async with stranger(TEXTS) as url:
        for form in FORMS:
            assert await passed(url, form) == expected[form.key]


async def test_posts_go_with_body_and_type(stranger) -> None:
    posts = [Turn("/echo", text, text, "text/x-mine") for text in TEXTS]
    kinds = []
    async with stranger(TEXTS, lambda request, _: kinds.append(request.headers["Content-Type"])) as url:
        assert len(await passed(url, BY_KEY["deltas"], posts)) == 6
    assert set(kinds) == {"text/x-mine"}


async def test_a_text_nobody_knows_is_taken_as_it_comes(stranger) -> None:
    async with stranger(TEXTS) as url, Client(url) as client:
        unknown = [Turn(turn.path, None) for turn in TURNS]
        assert [arrival.text async for arrival in client.run(BY_KEY["deltas"], unknown)] == TEXTS


async def test_each_form_has_its_session_and_says_only_what_it_holds(stranger) -> None:
    said = []

    def note(request: web.Request, _answer: web.Response) -> None:
        said.append((request.headers["Packhorse-Session"], request.headers.get("Ctxpack-Base")))

    async with stranger(TEXTS, note) as url, Client(url, {"X-Api-Key": "k"}) as client:
        for form in FORMS:
            async for _ in client.run(form, TURNS[:2]):
                pass
    digest = packs()[0].digest
    assert [base for _, base in said] == [None, None, "none", "none", None, digest, None, digest, None, None]
    assert len({session for session, _ in said}) == 5


async def test_head_bytes_are_those_on_the_wire(stranger) -> None:
    async with stranger(TEXTS) as url, Client(url) as client:
        arrivals = [arrival async for arrival in client.run(BY_KEY["raw"], TURNS[:1])]
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /turns/1 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n")
        whole = await reader.read()
        writer.close()
        await writer.wait_closed()
    head = whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    assert arrivals[0].head == len(head) - len(b"Connection: close\r\n")


def _altered(_request: web.Request, answer: web.Response) -> None:
    assert isinstance(answer.body, bytes)
    answer.body = answer.body.replace(b"berth", b"birth")


def _wrong_digest(_request: web.Request, answer: web.Response) -> None:
    answer.headers["Ctxpack-Digest"] = "sha256:" + "0" * 64


def _cut(_request: web.Request, answer: web.Response) -> None:
    assert isinstance(answer.body, bytes)
    answer.body = answer.body[:-1]


def _refused(_request: web.Request, answer: web.Response) -> None:
    answer.set_status(503)


@pytest.mark.parametrize(
    ("key", "lie", "says"),
    [
        ("raw", _altered, "turn 2, raw: the answer is not the text"),
        ("raw", _cut, "turn 2, raw: the answer is not the text"),
        ("deltas", _wrong_digest, "turn 2, deltas: Ctxpack-Digest is not"),
        ("deltas", _cut, r"turn 2, deltas: ctxpack\.delta\.v1 was refused"),
        ("packs", _cut, r"turn 2, full packs: ctxpack\.pack\.v1 was refused"),
        ("gzip", _cut, "turn 2, gzip: gzip does not end"),
        ("gzip", _refused, "turn 2, gzip: GET /turns/2 was answered 503"),
    ],
)
async def test_a_lie_ends_the_pass_at_its_turn(stranger, key: str, lie, says: str) -> None:
    def spoil(request: web.Request, answer: web.Response) -> None:
        if request.path == "/turns/2":
            lie(request, answer)

    async with stranger(TEXTS, spoil) as url:
        with pytest.raises(ReplayFailed, match=says):
            await passed(url, BY_KEY[key])


async def test_nobody_there_is_a_sentence() -> None:
    with pytest.raises(ReplayFailed, match=r"turn 1, raw: no answer from http://127\.0\.0\.1:1"):
        await passed("http://127.0.0.1:1", BY_KEY["raw"])
