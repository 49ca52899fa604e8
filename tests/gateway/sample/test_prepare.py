"""Documents in turns, over real sockets."""

import gzip
import itertools
import json

import pytest
from aiohttp import ClientSession

from ctxpack.minutes import minutes
from gateway.sample.documents import DOCUMENTS, turns
from gateway.sample.serving import serving
from gateway.sample.shelf import meeting
from gateway.sample.upstream import application


@pytest.mark.parametrize(("name", "expected"), [("meeting", meeting()), ("minutes", tuple(minutes()))])
async def test_get_and_post_give_the_text_of_a_turn(sample: ClientSession, name: str, expected: tuple[str, ...]) -> None:
    for turn in (1, 7, 40):
        async with sample.get(f"/prepare/{name}?turn={turn}") as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/markdown; charset=utf-8"
            assert await answer.text() == expected[turn - 1]
        async with sample.post("/prepare", json={"document": name, "turn": turn}) as answer:
            assert await answer.text() == expected[turn - 1]
        async with sample.post(f"/prepare/{name}", json={"turn": turn}) as answer:
            assert await answer.text() == expected[turn - 1]


async def test_without_a_turn_it_is_the_last_one(sample: ClientSession) -> None:
    async with sample.get("/prepare/handbook") as answer:
        assert await answer.text() == turns("handbook", 1)[-1]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
async def test_index_says_truly_who_has_a_tag(sample: ClientSession, document) -> None:
    async with sample.get("/", headers={"Accept": "application/json"}) as answer:
        listed = {entry["path"]: entry for entry in (await answer.json())["documents"]}
    said = listed[f"/prepare/{document.name}"]
    async with sample.get(f"/prepare/{document.name}?turn={said['turns']}") as answer:
        tag = answer.headers.get("ETag")
        assert (said["etag"] == "strong") == (tag is not None and tag.startswith('"'))
        assert answer.headers.get("Cache-Control") == said["cache_control"]


async def test_index_is_text_for_people(sample: ClientSession) -> None:
    async with sample.get("/") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert "/prepare/handbook/references" in await answer.text()


async def test_conditional_get(sample: ClientSession) -> None:
    async with sample.get("/prepare/meeting?turn=3") as answer:
        tag = answer.headers["ETag"]
    async with sample.get("/prepare/meeting?turn=3", headers={"If-None-Match": tag}) as answer:
        assert (answer.status, await answer.read()) == (304, b"")
    async with sample.get("/prepare/meeting?turn=4", headers={"If-None-Match": tag}) as answer:
        assert answer.status == 200


async def test_head_has_no_body(sample: ClientSession) -> None:
    async with sample.head("/prepare/meeting?turn=3") as answer:
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) == len(meeting()[2].encode())


async def test_echo_keeps_body_and_type(sample: ClientSession) -> None:
    async with sample.post("/echo", data=b"\x00\xff text", headers={"Content-Type": "text/x-mine"}) as answer:
        assert await answer.read() == b"\x00\xff text"
        assert answer.headers["Content-Type"] == "text/x-mine"


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/prepare/meeting?turn=41", 400, "1 to 40"),
        ("/prepare/meeting?turn=0", 400, "1 to 40"),
        ("/prepare/meeting?turn=x", 400, "1 to 40"),
        ("/prepare/nothing", 404, "handbook/references"),
        ("/nowhere", 404, "GET / lists"),
        ("/echo", 405, "not for this path"),
    ],
)
async def test_refusals_say_what_to_do(sample: ClientSession, path: str, status: int, says: str) -> None:
    async with sample.get(path) as answer:
        assert answer.status == status
        assert says in (await answer.json())["error"]


async def test_coded_request_is_415_and_says_what_is_taken(sample: ClientSession) -> None:
    body = gzip.compress(json.dumps({"turn": 1}).encode())
    for path in ("/prepare/meeting", "/echo"):
        async with sample.post(path, data=body, headers={"Content-Encoding": "gzip"}) as answer:
            assert answer.status == 415
            assert answer.headers["Accept-Encoding"] == "identity"


def test_meeting_grows_by_a_speech_and_is_prose_of_real_size() -> None:
    texts = meeting()
    assert [text.count("\n## ") for text in texts] == list(range(1, 41))
    assert all(after.startswith(before + "\n## ") for before, after in itertools.pairwise(texts))
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in texts)
    assert "are invented" in texts[0][:400]
    whole = texts[-1].encode()
    assert 65_000 < len(whole) < 80_000
    assert 2.2 < len(whole) / len(gzip.compress(whole, 6)) < 2.8
    lines = [line for line in texts[-1].splitlines() if len(line) > 60]
    assert len(set(lines)) == len(lines)


def test_references_change_places_and_the_conversation_grows() -> None:
    texts = turns("handbook/references", 1)
    orders = [tuple(line for line in text.splitlines() if line.startswith("[")) for text in texts]
    assert all(len(order) == 6 for order in orders)
    assert len(set(orders)) == len(orders)
    assert [text.count("\nUser: ") for text in texts] == list(range(1, len(texts) + 1))


def test_revisions_are_edits_in_the_middle() -> None:
    texts = turns("handbook", 1)
    for before, after in itertools.pairwise(texts):
        assert before != after
        assert not after.startswith(before)
        assert before[:150] == after[:150]


def test_same_seed_same_bytes_other_seed_other_bytes() -> None:
    for name in ("handbook", "handbook/references"):
        assert turns(name, 5) == turns.__wrapped__(name, 5)
        assert turns(name, 5) != turns(name, 6)


async def test_seed_decides_the_served_text() -> None:
    async with (
        serving(application(2)) as url,
        ClientSession(url) as client,
        client.get("/prepare/handbook?turn=9") as answer,
    ):
        assert await answer.text() == turns("handbook", 2)[8]
