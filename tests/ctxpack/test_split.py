from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxpack import ContextPackError, split, split_content
from ctxpack.split import common_prefix, settled, split_ends

limits = st.sampled_from([4, 5, 7, 16, 64, 512])
pieces = st.sampled_from(
    ["\n", "a", "b\n", "\r", "\u2028", "é", "始", "\U0001f6a2", "word " * 3, "始" * 20, "x" * 70, "y" * 600]
)
texts = st.one_of(st.lists(pieces, max_size=40).map("".join), st.text(alphabet=st.characters(exclude_categories=["Cs"])))


def split_by_the_letter(text: str, limit: int) -> list[bytes]:
    """The rule of docs/protocol.md, line by line and character by character, with no thought for speed."""
    lines = [line.encode() for line in text.split("\n")]
    lines = [line + b"\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    chunks: list[bytes] = []
    chunk = b""
    for line in lines:
        if chunk and len(chunk) + len(line) > limit:
            chunks.append(chunk)
            chunk = b""
        if len(line) <= limit:
            chunk += line
            continue
        piece = b""
        for character in line.decode():
            if len(piece) + len(character.encode()) > limit:
                chunks.append(piece)
                piece = b""
            piece += character.encode()
        chunks.append(piece)
    return chunks + [chunk for chunk in [chunk] if chunk]


@given(texts, limits)
def test_is_the_rule_by_the_letter(text: str, limit: int) -> None:
    chunks = split_content(text, limit)
    assert list(chunks) == split_by_the_letter(text, limit)
    assert b"".join(chunks).decode() == text
    assert all(chunk.decode() and len(chunk) <= limit for chunk in chunks)


@given(texts, texts, limits)
def test_appending_changes_no_chunk_but_the_last(text: str, more: str, limit: int) -> None:
    before, after = split_content(text, limit), split_content(text + more, limit)
    assert after[: max(0, len(before) - 1)] == before[:-1]


@given(texts, texts, limits, st.data())
def test_settled_chunks_are_shared_and_splitting_resumes_after_them(
    text: str, other: str, limit: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(text)))
    before, after = text.encode(), (text[:cut] + other).encode()
    ends = split_ends(before, limit)
    common = common_prefix(before, after)
    count = settled(ends, limit, common)
    assert count < len(ends) or count == 0
    start = ends[count - 1] if count else 0
    assert ends[:count] + split_ends(after, limit, start) == split_ends(after, limit)
    assert b"".join(split.pieces(after, split_ends(after, limit, start), start)) == after[start:]


@given(texts, limits)
def test_an_append_gives_up_the_least(text: str, limit: int) -> None:
    """Only chunks that begin within the last `limit` bytes can change."""
    data = text.encode()
    ends = split_ends(data, limit)
    begins = [0, *ends[:-1]] if ends else []
    assert settled(ends, limit, len(data)) == sum(begin < len(data) - limit for begin in begins)


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300), st.sampled_from([0, 1, 65_500, 200_000]))
def test_common_prefix(shared: bytes, one: bytes, other: bytes, more: int) -> None:
    shared = b"." * more + shared
    one, other = shared + one, shared + other
    length = common_prefix(one, other)
    assert one[:length] == other[:length]
    assert one[length : length + 1] != other[length : length + 1] or length == len(one) == len(other)


def test_only_the_line_feed_ends_a_line() -> None:
    for character in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029":
        assert len(split_content((character + "a") * 2, 512)) == 1
        assert split_content("ab" + character + "cdefgh\n", 8)[0] != ("ab" + character).encode()


@pytest.mark.parametrize("limit", [3, 0, -1, True, 512.0, "512", None])
def test_limits_are_integers_of_at_least_4(limit: object) -> None:
    with pytest.raises(ContextPackError) as refused:
        split_content("text", limit)  # type: ignore[arg-type]
    assert refused.value.code == "invalid_type"


@pytest.mark.parametrize("text", ["\ud800", "a\udfff\n", "\udc80\ud800"])
def test_lone_surrogates_are_refused(text: str) -> None:
    with pytest.raises(ContextPackError) as refused:
        split_content(text)
    assert refused.value.code == "invalid_utf8"


def test_bytes_are_no_text() -> None:
    with pytest.raises(TypeError, match="from_utf8"):
        split_content(b"text")  # type: ignore[arg-type]
