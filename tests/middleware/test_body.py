"""A body is written once, ends once, says how, and lets go of its source; what was collected is never lost."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from middleware.body import Body, BodyCut, NeverWritten, collect, set_body


class Writer(AbstractStreamWriter):
    """A connection that takes everything, or breaks at the given piece; notes when the head went out by itself."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.written: list[bytes] = []
        self.head_sent_before: int | None = None
        self._breaks_at = breaks_at

    async def write(self, chunk: Any) -> None:
        if len(self.written) == self._breaks_at:
            raise ConnectionResetError("the client left")
        self.written.append(bytes(chunk))
        await asyncio.sleep(0)

    async def write_eof(self, chunk: bytes = b"") -> None: ...
    async def drain(self) -> None: ...
    def enable_compression(self, *args: Any, **settings: Any) -> None: ...
    def enable_chunking(self) -> None: ...
    async def write_headers(self, status_line: str, headers: Any) -> None: ...

    def send_headers(self) -> None:
        self.head_sent_before = len(self.written)


class Source:
    """Pieces in turn; waits for ``go`` before piece number ``waits_at``, raises ``error`` at the end. Survives cancellation."""

    def __init__(self, *pieces: bytes, waits_at: int | None = None, error: Exception | None = None) -> None:
        self.pieces = list(pieces)
        self.waits_at = waits_at
        self.error = error
        self.go = asyncio.Event()
        self.waiting = asyncio.Event()
        self.given = 0
        self.closed = 0

    def __aiter__(self) -> "Source":
        return self

    async def __anext__(self) -> bytes:
        if self.given == self.waits_at and not self.go.is_set():
            self.waiting.set()
            await self.go.wait()
        if self.given == len(self.pieces):
            if self.error is not None:
                raise self.error
            raise StopAsyncIteration
        self.given += 1
        return self.pieces[self.given - 1]

    async def aclose(self) -> None:
        self.closed += 1


class Ends:
    """What ``on_end`` was told."""

    def __init__(self, body: Body) -> None:
        self.told: list[BaseException | None] = []
        body.on_end.append(self.told.append)

    @property
    def only(self) -> BaseException | None:
        assert len(self.told) == 1, f"it ended {len(self.told)} times"
        return self.told[0]


async def generated(*pieces: bytes, closed: "list[str] | None" = None) -> AsyncIterator[bytes]:
    try:
        for piece in pieces:
            await asyncio.sleep(0)
            yield piece
    finally:
        if closed is not None:
            closed.append("closed")


async def written(body: Any) -> bytes:
    writer = Writer()
    await body.write(writer)
    return b"".join(writer.written)


# Written


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 100_000])
async def test_a_whole_body_is_one_write(content: bytes) -> None:
    body = Body(content)
    ends, writer = Ends(body), Writer()
    assert (body.size, body.content, body.interruptible) == (len(content), content, True)
    await body.write(writer)
    assert (b"".join(writer.written), body.sent, ends.only) == (content, len(content), None)
    assert writer.head_sent_before is None


async def test_an_arriving_body_is_a_write_a_piece_and_its_source_is_closed() -> None:
    source = Source(b"one", b"two", b"three")
    body = Body(source)
    ends, writer = Ends(body), Writer()
    assert (body.size, body.content, body.interruptible) == (None, None, False)
    await body.write(writer)
    assert writer.written == [b"one", b"two", b"three"]
    assert (body.sent, ends.only, source.closed) == (11, None, 1)


async def test_the_head_need_not_wait_for_the_first_piece() -> None:
    source = Source(b"late", waits_at=0)
    writer = Writer()
    writing = asyncio.ensure_future(Body(source).write(writer))
    await source.waiting.wait()
    assert writer.head_sent_before == 0
    source.go.set()
    await writing
    assert writer.written == [b"late"]


async def test_a_generator_is_closed_when_the_client_breaks_off() -> None:
    closed: list[str] = []
    body = Body(generated(b"a", b"b", b"c", closed=closed))
    ends = Ends(body)
    with pytest.raises(ConnectionResetError):
        await body.write(Writer(breaks_at=1))
    assert isinstance(ends.only, ConnectionResetError)
    assert (body.sent, closed) == (1, ["closed"])


async def test_a_cancelled_write_ends_as_cancelled_and_stays_cancelled() -> None:
    source = Source(b"a", b"b", waits_at=1)
    body = Body(source)
    ends = Ends(body)
    writing = asyncio.ensure_future(body.write(Writer()))
    await source.waiting.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert isinstance(ends.only, asyncio.CancelledError)
    assert (body.sent, source.closed) == (1, 1)


async def test_a_source_that_breaks_off_cuts_the_connection_and_is_named_as_the_reason() -> None:
    fault = ValueError("the source's own")
    source = Source(b"a", error=fault)
    body = Body(source)
    ends = Ends(body)
    with pytest.raises(BodyCut) as cut:
        await body.write(Writer())
    assert cut.value.__cause__ is fault
    assert ends.only is fault
    assert (body.sent, source.closed) == (1, 1)


async def test_callbacks_are_called_in_order_and_once_whatever_follows() -> None:
    order: list[int] = []
    body = Body(Source(b"a"))
    for number in range(3):
        body.on_end.append(lambda _, number=number: order.append(number))
    await body.write(Writer())
    await body.close()
    await body.close()
    assert order == [0, 1, 2]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_body_nobody_wrote_ends_as_such_when_it_is_let_go(whole: bool) -> None:
    source = Source(b"a")
    body = Body(b"a" if whole else source)
    ends = Ends(body)
    await body.close()
    assert isinstance(ends.only, NeverWritten)
    assert (body.sent, source.closed) == (0, 0 if whole else 1)


async def test_closing_a_broken_source_adds_nothing() -> None:
    class Stubborn(Source):
        async def aclose(self) -> None:
            raise RuntimeError("and it does not even close")

    fault = ValueError("first")
    body = Body(Stubborn(error=fault))
    ends = Ends(body)
    with pytest.raises(BodyCut):
        await body.write(Writer())
    assert ends.only is fault


@pytest.mark.parametrize("sizes", [[], [10], [511, 1], [512], [600, 3], [1] * 700, [5000]])
async def test_the_tail_is_the_last_bytes_for_who_asked(sizes: list[int]) -> None:
    pieces = [bytes([65 + index % 26]) * size for index, size in enumerate(sizes)]
    asked, silent = Body(Source(*pieces)), Body(Source(*pieces))
    asked.tail = b""
    await asked.write(Writer())
    await silent.write(Writer())
    assert (asked.tail, silent.tail) == (b"".join(pieces)[-512:], None)


def test_only_a_whole_body_has_a_text() -> None:
    assert Body("Grüße".encode()).decode() == "Grüße"
    with pytest.raises(TypeError):
        Body(Source()).decode()


async def test_what_is_taken_is_the_takers_to_end() -> None:
    source = Source(b"a", b"b")
    body = Body(source)
    ends = Ends(body)
    assert [piece async for piece in body.take()] == [b"a", b"b"]
    await body.close()
    assert (ends.told, source.closed) == ([], 0)
    assert [piece async for piece in Body(b"whole").take()] == [b"whole"]
    assert [piece async for piece in Body(b"").take()] == []


# Collected


def answering(body: Any, **settings: Any) -> web.Response:
    return web.Response(body=body, **settings)


@pytest.mark.parametrize("kind", ["none", "bytes", "whole body", "interruptible", "generator body", "generator"])
async def test_what_is_complete_in_time_is_collected_whole(kind: str) -> None:
    made = {
        "none": lambda: None,
        "bytes": lambda: b"abc",
        "whole body": lambda: Body(b"abc"),
        "interruptible": lambda: Body(Source(b"a", b"bc"), interruptible=True),
        "generator body": lambda: Body(generated(b"a", b"bc")),
        "generator": lambda: generated(b"a", b"bc"),
    }[kind]()
    response = answering(made)
    expected = b"" if kind == "none" else b"abc"
    assert await collect(response, limit=3, wait=5) == expected
    assert await collect(response, limit=3, wait=5) == expected  # and again: nothing is spent
    if isinstance(response.body, Body):
        assert await written(response.body) == b"abc"


async def test_a_payload_of_aiohttps_own_is_collected() -> None:
    import io

    response = answering(io.BytesIO(b"from a file"))
    assert await collect(response, limit=100, wait=5) == b"from a file"


@pytest.mark.parametrize("interruptible", [True, False])
@pytest.mark.parametrize("pieces", [(b"abcd",), (b"abc", b"d"), (b"a", b"b", b"c", b"d", b"e")])
async def test_what_is_too_large_goes_on_as_it_comes(pieces: tuple[bytes, ...], interruptible: bool) -> None:
    source = Source(*pieces)
    body = Body(source, interruptible=interruptible)
    ends = Ends(body)
    response = answering(body)
    assert await collect(response, limit=3, wait=5) is None
    assert isinstance(response.body, Body)
    assert response.body is not body
    assert await written(response.body) == b"".join(pieces)
    assert (ends.only, source.closed) == (None, 1)


@pytest.mark.parametrize("kind", ["interruptible", "generator body", "generator"])
@pytest.mark.parametrize("at", [0, 1, 2])
async def test_what_is_late_goes_on_as_it_comes_and_nothing_is_lost(kind: str, at: int) -> None:
    source = Source(b"one", b"two", b"three", waits_at=at)

    async def wrapped() -> AsyncIterator[bytes]:
        async for piece in source:
            yield piece

    made = {
        "interruptible": lambda: Body(source, interruptible=True),
        "generator body": lambda: Body(wrapped()),
        "generator": wrapped,
    }[kind]()
    ends = Ends(made) if isinstance(made, Body) else None
    response = answering(made)
    assert await collect(response, limit=100, wait=0.01) is None
    assert isinstance(response.body, Body)
    source.go.set()
    assert await written(response.body) == b"onetwothree"
    if ends is not None:
        assert ends.only is None


async def test_collecting_twice_what_was_late_once_loses_nothing_either() -> None:
    source = Source(b"one", b"two", waits_at=1)
    response = answering(Body(generated_from(source)))
    assert await collect(response, limit=100, wait=0.01) is None
    assert await collect(response, limit=100, wait=0.01) is None
    source.go.set()
    assert await collect(response, limit=100, wait=5) == b"onetwo"


async def generated_from(source: Source) -> AsyncIterator[bytes]:
    async for piece in source:
        yield piece


@settings(max_examples=50, deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=9), max_size=8),
    limit=st.integers(0, 40),
    waits_at=st.one_of(st.none(), st.integers(0, 8)),
    interruptible=st.booleans(),
)
def test_whatever_comes_of_collecting_the_bytes_are_the_same(
    pieces: list[bytes], limit: int, waits_at: int | None, interruptible: bool
) -> None:
    async def scene() -> None:
        source = Source(*pieces, waits_at=waits_at)
        response = answering(Body(source if interruptible else generated_from(source), interruptible=interruptible))
        late = waits_at is not None and waits_at <= len(pieces)
        whole = await collect(response, limit=limit, wait=0.001 if late else 60)
        content = b"".join(pieces)
        assert whole == (None if late or len(content) > limit else content)
        source.go.set()
        assert await written(response.body) == content

    asyncio.run(scene())


async def test_what_is_late_is_closed_with_the_wait_it_left_behind() -> None:
    closed: list[str] = []
    never = asyncio.Event()

    async def silent() -> AsyncIterator[bytes]:
        try:
            yield b"a"
            await never.wait()
        finally:
            closed.append("closed")

    response = answering(Body(silent()))
    assert await collect(response, limit=100, wait=0.01) is None
    assert isinstance(response.body, Body)
    await response.body.close()
    assert closed == ["closed"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("interruptible", [True, False])
async def test_what_the_source_raises_is_raised_before_any_head_is_out(interruptible: bool) -> None:
    fault = ValueError("the source's own")
    source = Source(b"a", error=fault)
    response = answering(Body(source, interruptible=interruptible))
    with pytest.raises(ValueError) as raised:
        await collect(response, limit=100, wait=5)
    assert raised.value is fault
    assert source.closed == 1


@pytest.mark.parametrize("interruptible", [True, False])
async def test_a_fault_after_the_wait_cuts_what_goes_on(interruptible: bool) -> None:
    fault = ValueError("the source's own")
    source = Source(b"a", waits_at=1, error=fault)
    body = Body(source, interruptible=interruptible)
    ends = Ends(body)
    response = answering(body)
    assert await collect(response, limit=100, wait=0.01) is None
    source.go.set()
    with pytest.raises(BodyCut):
        await response.body.write(Writer())  # type: ignore[union-attr]
    assert (ends.only, source.closed) == (fault, 1)


async def test_a_fault_that_nobody_waits_for_any_more_is_not_left_lying_about() -> None:
    """The client left before what was late had failed: there is nobody to tell, and the loop must not tell either."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    source = Source(b"a", waits_at=1, error=ValueError("the source's own"))
    response = answering(Body(generated_from(source)))
    assert await collect(response, limit=100, wait=0.01) is None
    source.go.set()
    for _ in range(5):
        await asyncio.sleep(0)  # now it has failed
    assert isinstance(response.body, Body)
    await response.body.close()
    del response
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


@pytest.mark.parametrize("interruptible", [True, False])
async def test_a_cancelled_collection_closes_the_source(interruptible: bool) -> None:
    source = Source(b"a", b"b", waits_at=1)
    collecting = asyncio.ensure_future(collect(answering(Body(source, interruptible=interruptible)), limit=100, wait=60))
    await source.waiting.wait()
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    assert source.closed == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_callbacks_move_to_what_takes_the_bodys_place() -> None:
    body = Body(Source(b"a"))
    ends = Ends(body)
    response = answering(body)
    await collect(response, limit=100, wait=5)
    assert response.body is not body
    assert ends.told == []
    await response.body.write(Writer())  # type: ignore[union-attr]
    assert ends.only is None


async def test_what_has_all_arrived_is_taken_without_waiting() -> None:
    class Arrived(Source):
        def arrived(self, read: list[bytes], limit: int) -> bool:
            if sum(map(len, self.pieces)) > limit:
                return False
            read.extend(self.pieces)
            return True

    response = answering(Body(Arrived(b"a", b"b"), interruptible=True))
    assert await collect(response, limit=2, wait=0) == b"ab"
    response = answering(Body(Arrived(b"a", b"b"), interruptible=True))
    assert await collect(response, limit=1, wait=5) is None
    assert await written(response.body) == b"ab"


@pytest.mark.parametrize("typed", [True, False])
def test_putting_a_body_in_place_leaves_the_fields_alone(typed: bool) -> None:
    response = web.Response(body=b"x", headers={"X-A": "1"})
    response.headers.popall("Content-Type", None)
    if typed:
        response.headers["Content-Type"] = "text/odd"
    before = list(response.headers.items())
    set_body(response, Body(b"y"))
    assert list(response.headers.items()) == before
