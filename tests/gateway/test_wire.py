"""The meter of one direction of a connection: exact whatever comes, in whatever pieces."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import FrameType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.wire import MessageMeter, Tally

LIMIT = 32 * 2**10
POST = b"POST /a HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A meter that turns in circles would hang the run: it is interrupted and says where."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError("the meter does not come to an end")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 20)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Message:
    """Bytes as they cross the wire, and how many of them are body."""

    raw: bytes
    body: int

    @property
    def figures(self) -> tuple[int, int]:
        return len(self.raw) - self.body, self.body


def mixed_case(text: str) -> st.SearchStrategy[str]:
    return st.lists(st.booleans(), min_size=len(text), max_size=len(text)).map(
        lambda ups: "".join(letter.upper() if up else letter for letter, up in zip(text, ups, strict=True))
    )


BLANK = st.text(" \t", max_size=2)
DECOYS = [  # fields that look like framing and are none
    b"X-Content-Length: 7\r\n", b"Content-Length-X: 7\r\n", b"X: content-length: 7\r\n", b"X: chunked\r\n",
    b"Transfer-Encodings: chunked\r\n", b"TE: chunked\r\n", b"X: transfer-encoding:chunked\r\n", b"X: \xe9\xff\r\n", b"X:\r\n",
]  # fmt: skip


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """None, Content-Length or chunked; with fields that look like framing, extensions, trailers, zeros, either case."""
    before, after = draw(st.lists(st.sampled_from(DECOYS), max_size=2)), draw(st.lists(st.sampled_from(DECOYS), max_size=2))
    lead = b"\r\n" * draw(st.integers(0, 3))
    pad, end = draw(BLANK), draw(BLANK)
    framing = draw(st.sampled_from(["none", "length", "chunked"]))
    rest, body = b"", 0
    match framing:
        case "none":
            field = ""
        case "length":
            rest = draw(st.binary(max_size=60))
            body = len(rest)
            field = f"{draw(mixed_case('content-length'))}:{pad}{'0' * draw(st.integers(0, 2))}{body}{end}\r\n"
        case "chunked":
            pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
            body = sum(map(len, pieces))
            rest = b"".join(draw(chunk(piece)) for piece in pieces) + draw(last_chunk())
            first = draw(st.sampled_from(["", "gzip, ", "gzip,"]))
            field = f"{draw(mixed_case('transfer-encoding'))}:{pad}{first}{draw(mixed_case('chunked'))}{end}\r\n"
    head = b"".join([POST, *before, field.encode(), *after, b"\r\n"])
    return Message(lead + head + rest, body)


EXTENSIONS = st.sampled_from([b"", b";", b";a=b", b' ; a="b c"', b";\t5"])


@st.composite
def chunk(draw: st.DrawFn, piece: bytes) -> bytes:
    size = draw(st.sampled_from([b"%x", b"%X", b"00%x"])) % len(piece)
    return size + draw(EXTENSIONS) + b"\r\n" + piece + b"\r\n"


@st.composite
def last_chunk(draw: st.DrawFn) -> bytes:
    trailers = draw(st.lists(st.sampled_from([b"X-Sum: 1\r\n", b"Content-Length: 5\r\n", b"A:\r\n"]), max_size=2))
    return draw(st.sampled_from([b"0", b"000"])) + draw(EXTENSIONS) + b"\r\n" + b"".join(trailers) + b"\r\n"


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


def fed(pieces: list[bytes], limit: int = LIMIT) -> MessageMeter:
    meter = MessageMeter(limit)
    for piece in pieces:
        meter.feed(piece)
    return meter


def figures(meter: MessageMeter) -> list[tuple[int, int]]:
    return [(tally.head, tally.body) for tally in meter.tallies]


def total(meter: MessageMeter) -> int:
    return sum(tally.head + tally.body for tally in meter.tallies)


CUTS = st.lists(st.integers(0, 4000), max_size=12)


@settings(deadline=None)
@given(st.lists(messages(), min_size=1, max_size=5), CUTS)
def test_each_message_has_its_own_head_and_body_wherever_the_bytes_are_split(sent: list[Message], cuts: list[int]) -> None:
    meter = fed(split(b"".join(message.raw for message in sent), cuts))
    assert figures(meter) == [message.figures for message in sent]
    assert all(tally.complete for tally in meter.tallies)
    assert not meter.head_too_large


@settings(deadline=None)
@given(st.lists(messages(), min_size=1, max_size=3))
def test_so_it_is_byte_by_byte(sent: list[Message]) -> None:
    whole = b"".join(message.raw for message in sent)
    assert figures(fed([whole[at : at + 1] for at in range(len(whole))])) == [message.figures for message in sent]


@settings(deadline=None)
@given(messages(), st.data())
def test_a_message_that_is_cut_off_is_not_complete_and_all_its_bytes_are_counted(message: Message, data: st.DataObject) -> None:
    lead = len(message.raw) - len(message.raw.lstrip(b"\r\n"))
    at = data.draw(st.integers(lead, len(message.raw) - 1))
    meter = fed(split(message.raw[:at], data.draw(CUTS)))
    assert total(meter) == at
    assert [tally.complete for tally in meter.tallies] == ([False] if at else [])


def test_a_head_that_came_in_two_pieces_ends_where_it_ends() -> None:
    """The framing of a message pipelined behind it is not its own."""
    first, second = POST + b"\r\n", POST + b"Content-Length: 3\r\n\r\nabc"
    for cut in range(len(first)):
        whole = first + second
        assert figures(fed([whole[:cut], whole[cut:]])) == [(len(first), 0), (len(second) - 3, 3)], f"cut at {cut}"


def test_blank_lines_before_a_message_are_part_of_its_head_however_they_arrive() -> None:
    """RFC 9112 2.2; a parser skips any number of them."""
    raw = b"\r\n\r\n\r\n" + POST + b"\r\n"
    for size in range(1, len(raw)):
        meter = fed([raw[at : at + size] for at in range(0, len(raw), size)])
        assert figures(meter) == [(len(raw), 0)], f"in pieces of {size}"


@settings(deadline=None)
@given(st.lists(messages(), max_size=2), st.binary(max_size=300), CUTS)
@example([], b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcde", [])
@example([], b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabcde", [51])
@example([], b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 70000, [])
@example([], b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\nabc", [])
@example([], b"POST / HTTP/1.1\r\nContent-Length: 000000000000000000000003\r\n\r\nabc", [])
def test_what_cannot_be_followed_raises_nothing_and_every_byte_is_counted_once(
    before: list[Message], garbage: bytes, cuts: list[int]
) -> None:
    whole = b"".join(message.raw for message in before) + garbage
    meter = fed(split(whole, cuts))
    assert total(meter) == len(whole)
    assert all(tally.head >= 0 and tally.body >= 0 for tally in meter.tallies)


CHUNK_LINES = st.text("0123456789abcdefABCDEFx_+-; \t\r\n\x00", max_size=30).map(str.encode)


@settings(deadline=None)
@given(st.lists(CHUNK_LINES, max_size=6), CUTS)
@example([b"-5\r\n"], [])
@example([b"-1\r\n", b"-1\r\n"], [60])
@example([b"0x5\r\n", b"1_0\r\n", b"+5\r\n"], [])
def test_chunk_lines_of_any_kind_come_to_an_end(lines: list[bytes], cuts: list[int]) -> None:
    """The meter reads before the parser refuses: ``-5`` must not send it backwards."""
    whole = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"\r\n".join(lines)
    meter = fed(split(whole, cuts))
    assert total(meter) == len(whole)
    assert all(tally.head >= 0 and tally.body >= 0 for tally in meter.tallies)


@settings(deadline=None)
@given(st.binary(max_size=200), messages())
def test_after_a_chunk_line_that_is_none_the_rest_is_head_of_the_message(garbage: bytes, message: Message) -> None:
    """Nothing after it can be told apart any more; the parser has closed the connection."""
    lost = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"zz\r\n" + garbage + message.raw
    meter = fed([lost])
    assert figures(meter) == [(len(lost), 0)]
    assert not meter.tallies[0].complete


@pytest.mark.parametrize("size", [1, 7, 100, 4096, 100_000])
def test_a_head_over_the_limit_is_said_as_soon_as_it_is_over(size: int) -> None:
    raw = POST + b"X: " + b"a" * 5000 + b"\r\n\r\n"
    meter = MessageMeter(1000)
    for start in range(0, len(raw), size):
        meter.feed(raw[start : start + size])
        assert meter.head_too_large is (min(start + size, len(raw)) > 1000)
    assert total(meter) == len(raw)


def test_a_head_at_the_limit_is_within_it_and_bodies_do_not_count() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n"
    meter = fed([head, b"x" * 5000, head, b"x" * 5000], limit=len(head))
    assert not meter.head_too_large
    assert figures(meter) == [(len(head), 5000)] * 2
    assert fed([head], limit=len(head) - 1).head_too_large


def test_an_endless_head_takes_no_endless_memory() -> None:
    meter = MessageMeter(1000)
    for _ in range(200):
        meter.feed(b"a" * 1000)
    assert len(meter._held) <= 1000
    assert total(meter) == 200_000


@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_in_a_tunnel_all_is_body_of_the_message_that_opened_it(first: bytes, second: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"
    meter = fed([head])
    meter.tunnel()
    meter.feed(first)
    meter.feed(second)
    assert total(meter) == len(head + first + second)
    assert meter.tallies[0].head == len(head)
    assert sum(tally.body for tally in meter.tallies) == len(first + second)


def test_a_tally_reports_each_byte_once() -> None:
    meter = fed([POST + b"Content-Length: 10\r\n\r\n", b"abcd"])
    tally = meter.tallies[0]
    first = tally.unreported()
    assert first == (len(POST) + 22 + 0, 4)
    assert tally.unreported() == (0, 0)
    meter.feed(b"efghij")
    assert tally.unreported() == (0, 6)
    assert tally.complete


def test_settled_messages_may_be_taken_away_while_the_next_arrives() -> None:
    meter = fed([POST + b"\r\n" + POST])
    done = meter.tallies.popleft()
    assert isinstance(done, Tally)
    assert done.complete
    meter.feed(b"Content-Length: 3\r\n\r\nabc")
    assert figures(meter) == [(len(POST) + 21, 3)]
