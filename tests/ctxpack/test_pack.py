from __future__ import annotations

import copy
import hashlib
import json
import pickle
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxpack import ContextPack, ContextPackDelta, ContextPackError, apply_delta
from ctxpack.minutes import minutes

pieces = st.sampled_from(["\n", "a", "b\n", "é", "始", "\U0001f6a2", "word " * 20, "始" * 171, "x" * 511, "y" * 700 + "\n"])
texts = st.one_of(st.lists(pieces, max_size=12).map("".join), st.text(alphabet=st.characters(exclude_categories=["Cs"])))
limits = st.sampled_from([4, 64, 512])


def state(pack: ContextPack) -> tuple[object, ...]:
    """Everything a pack shows."""
    return (pack.chunk_bytes, pack.base64_chunks, pack.digest, pack.total_bytes, pack.byte_count, pack.to_bytes(),
            pack.content, pack.content_bytes)  # fmt: skip


@given(texts, limits)
def test_any_text_comes_back(text: str, limit: int) -> None:
    pack = ContextPack.from_content(text, limit)
    assert pack.content == text
    assert state(ContextPack.from_bytes(pack.to_bytes())) == state(pack)
    assert state(ContextPack.from_utf8(text.encode(), limit)) == state(pack)


@given(texts, limits)
def test_the_fields_are_what_the_format_says(text: str, limit: int) -> None:
    pack = ContextPack.from_content(text, limit)
    fields = json.loads(pack.to_bytes())
    assert pack.to_bytes() == json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    hashed = {"chunk_bytes": fields["chunk_bytes"], "schema": "ctxpack.pack.v1"}
    digest = hashlib.sha256(json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    assert fields["digest"] == pack.digest == "sha256:" + digest
    assert fields["total_bytes"] == pack.total_bytes == len(text.encode())
    assert fields["byte_count"] == pack.byte_count == len(pack.to_bytes())


@given(st.lists(texts, min_size=2, max_size=6), limits, st.data())
def test_continuing_a_pack_gives_the_same_pack(parts: list[str], limit: int, data: st.DataObject) -> None:
    """Turns append, cut back, edit in the middle, or start anew; the pack before may be any of the earlier ones."""
    text, packs = "", [ContextPack.from_content("", limit)]
    for part in parts:
        cut = data.draw(st.integers(0, len(text)))
        text = data.draw(st.sampled_from([text + part, text[:cut] + part, text[:cut] + part + text[cut:], text[:cut], part]))
        after = data.draw(st.sampled_from(packs))
        pack = ContextPack.from_utf8(text.encode(), limit, after=after)
        assert state(pack) == state(ContextPack.from_content(text, limit))
        packs.append(pack)
    for base, target in pairwise(packs):
        assert apply_delta(base, ContextPackDelta.between(base, target)) == target


@given(texts, texts, limits)
def test_a_pack_of_unknown_origin_does_no_harm(text: str, more: str, limit: int) -> None:
    expected = ContextPack.from_content(text + more, limit)
    one = ContextPack.from_content(text, limit)
    odd = ContextPack([character.encode() for character in text])
    read = ContextPack.from_bytes(one.to_bytes())
    rebuilt = apply_delta(odd, ContextPackDelta.between(odd, one))
    for after in (odd, read, rebuilt, ContextPack.from_content(text, 32)):
        assert state(ContextPack.from_utf8((text + more).encode(), limit, after=after)) == state(expected)


def test_the_content_is_the_object_given_and_an_unchanged_pack_is_the_same() -> None:
    turns = [text.encode() for text in minutes()]
    pack = ContextPack.from_utf8(turns[0])
    for turn in turns[1:]:
        pack = ContextPack.from_utf8(turn, after=pack)
        assert pack.content_bytes is turn
    assert ContextPack.from_utf8(bytes(bytearray(turns[-1])), after=pack) is pack
    assert pack.content_bytes is turns[-1]


@pytest.mark.parametrize("kind", ["made", "read", "rebuilt"])
def test_appending_encodes_and_hashes_only_what_is_new(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ctxpack import canonical

    before = ContextPack.from_utf8(b"some line of text\n" * 20_000)
    if kind != "made":
        before = ContextPack.from_bytes(before.to_bytes())
    if kind == "rebuilt":
        base = ContextPack.from_content("some line of text\n" * 10_000)
        before = apply_delta(base, ContextPackDelta.between(base, before))
    data = before.content_bytes + b"one more\n"
    assert before.digest
    encoded = 0
    encode = canonical.encode_chunks

    def count(chunks: Iterable[bytes]) -> bytes:
        nonlocal encoded
        made = list(chunks)
        encoded += len(made)
        return encode(made)

    monkeypatch.setattr(canonical, "encode_chunks", count)
    grown = ContextPack.from_utf8(data, after=before)
    assert ContextPackDelta.between(before, grown).to_bytes()
    assert encoded <= 5
    assert grown == ContextPack.from_utf8(data)


def test_an_edit_encodes_little_more_than_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that grows before its last lines, turn after turn."""
    from ctxpack import canonical

    encoded = 0
    encode = canonical.encode_chunks

    def count(chunks: Iterable[bytes]) -> bytes:
        nonlocal encoded
        made = list(chunks)
        encoded += len(made)
        return encode(made)

    monkeypatch.setattr(canonical, "encode_chunks", count)
    text = b"some line of text\n" * 20_000
    pack = ContextPack.from_utf8(text + b"end\n" * 500)
    assert encoded == 0
    points = 0
    for _ in range(50):
        assert pack.digest
        points = max(points, len(pack._points))
        text += b"one more\n" * 50
        encoded = 0
        pack = ContextPack.from_utf8(text + b"end\n" * 500, after=pack)
        assert pack.digest
        assert encoded <= 128 + 10
    assert points < 2 * (len(text) / 512 / 128) + 3
    assert pack == ContextPack.from_utf8(text + b"end\n" * 500)


def test_the_digest_is_the_same_whatever_was_asked_before() -> None:
    text = "line\n" * 5000
    base, expected = ContextPack.from_content(text), ContextPack.from_content(text + "more\n").digest
    for ask in (ContextPack.to_bytes, hash, repr, len_of_chunks):
        for first in (base, ContextPack.from_content(text)):
            pack = ContextPack.from_utf8(text.encode() + b"more\n", after=first)
            ask(pack)
            assert pack.digest == expected
            assert ContextPack.from_bytes(pack.to_bytes()).digest == expected
            assert first.digest == base.digest


def len_of_chunks(pack: ContextPack) -> int:
    return len(pack.chunk_bytes) + len(pack.base64_chunks) + pack.byte_count


def test_threads_that_ask_at_once_find_the_same() -> None:
    data = b"one line of some bytes\n" * 3000
    expected = ContextPack.from_utf8(data + b"more\n").to_bytes()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            pack = ContextPack.from_utf8(data)
            turns = [pool.submit(lambda pack=pack: ContextPack.from_utf8(data + b"more\n", after=pack)) for _ in range(4)]
            digests = [pool.submit(lambda pack=pack: pack.digest) for _ in range(4)]
            assert {turn.result().to_bytes() for turn in turns} == {expected}
            assert len({digest.result() for digest in digests}) == 1


@given(st.binary(max_size=60))
def test_bytes_that_are_not_utf8_are_refused(data: bytes) -> None:
    before = ContextPack.from_utf8(b"line\n" * 400)
    for after in (None, before):
        whole = data if after is None else before.content_bytes + data
        try:
            whole.decode()
        except UnicodeDecodeError as error:
            with pytest.raises(ContextPackError, match=f"byte {error.start}$") as refused:
                ContextPack.from_utf8(whole, after=after)
            assert refused.value.code == "invalid_utf8"
        else:
            assert ContextPack.from_utf8(whole, after=after).content_bytes == whole


@pytest.mark.parametrize("make", [bytearray, memoryview])
def test_other_buffers_are_copied(make: type) -> None:
    data = bytearray(b"line\n")
    pack = ContextPack.from_utf8(make(data))
    data[0] = 0x4C
    assert pack.content_bytes == b"line\n"
    assert ContextPack.from_bytes(make(pack.to_bytes())) == pack


def test_chunks_are_checked() -> None:
    for chunks, code in (([b"a", b""], "empty_chunk"), ([b"a", b"\xe5\xa7"], "invalid_utf8")):
        with pytest.raises(ContextPackError) as refused:
            ContextPack(chunks)
        assert refused.value.code == code
    assert ContextPack([b"a", b"b"]) != ContextPack([b"ab"])


def test_a_pack_does_not_change() -> None:
    pack = ContextPack.from_content("a\n")
    for name in ("digest", "_digest", "new", "chunk_bytes"):
        with pytest.raises(AttributeError):
            setattr(pack, name, None)
    with pytest.raises(AttributeError):
        del pack._digest
    assert not hasattr(pack, "__dict__")
    assert isinstance(pack.chunk_bytes, tuple)


def test_equality_hash_repr_and_copies_know_the_content_alone() -> None:
    plain = ContextPack.from_content("a\n" * 900)
    base = ContextPack.from_content("a\n" * 300)
    continued = ContextPack.from_utf8(b"a\n" * 900, after=base)
    rebuilt = apply_delta(base, ContextPackDelta.between(base, plain))
    for other in (continued, rebuilt, pickle.loads(pickle.dumps(continued)), copy.copy(plain), copy.deepcopy(plain)):
        assert other == plain
        assert hash(other) == hash(plain)
        assert repr(other) == repr(plain)
        assert pickle.dumps(other) == pickle.dumps(plain)
    assert plain != base
    assert plain != plain.digest
    assert "a\\n" not in repr(plain)  # content stays out of logs


def test_of_two_fixed_points_the_smaller_counts() -> None:
    packs = [ContextPack([b"k" * size, b"k", b"k"]) for size in range(560, 700)]
    sizes = {pack.byte_count for pack in packs}
    assert 999 in sizes
    assert 1000 not in sizes
    assert all(len(pack.to_bytes()) == pack.byte_count for pack in packs)


def test_a_limit_on_bytes() -> None:
    data = ContextPack.from_content("a\n").to_bytes()
    assert ContextPack.from_bytes(data, max_bytes=len(data)).content == "a\n"
    for bad in (data, b"[" * len(data)):
        with pytest.raises(ContextPackError) as refused:
            ContextPack.from_bytes(bad, max_bytes=len(data) - 1)
        assert refused.value.code == "too_large"


def test_text_is_no_serialisation() -> None:
    with pytest.raises(TypeError):
        ContextPack.from_bytes("{}")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ContextPack.from_utf8("text")  # type: ignore[arg-type]
