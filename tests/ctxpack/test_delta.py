from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxpack import ContextPack, ContextPackDelta, ContextPackError, apply_delta

chunk_lists = st.lists(st.sampled_from([b"a", b"b\n", "始".encode(), b"c" * 300]), max_size=8)


@given(chunk_lists, chunk_lists)
def test_base_and_wire_alone_rebuild_the_target(one: list[bytes], other: list[bytes]) -> None:
    base, target = ContextPack(one), ContextPack(other)
    delta = ContextPackDelta.between(base, target)
    wire = delta.to_bytes()
    assert delta.byte_count == len(wire)
    rebuilt = apply_delta(ContextPack.from_bytes(base.to_bytes()), ContextPackDelta.from_bytes(wire))
    assert rebuilt == target
    assert rebuilt.chunk_bytes == target.chunk_bytes
    assert rebuilt.to_bytes() == target.to_bytes()


@given(chunk_lists, chunk_lists)
def test_the_longest_common_prefix_stays(one: list[bytes], other: list[bytes]) -> None:
    check_kept(ContextPack(one), ContextPack(other))


@given(st.text(alphabet="a\n", max_size=40), st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40)), st.integers(0, 40))
def test_the_same_content_cut_elsewhere_shares_no_more_than_its_first_equal_chunks(
    text: str, cuts: list[int], others: list[int], changed: int
) -> None:
    data = text.encode()
    other = data[:changed] + b"!" + data[changed + 1 :]
    for one, two in ((data, data), (data, other), (data, data[:changed]), (data, data + b"!")):
        check_kept(cut(one, cuts), cut(two, others))
        check_kept(cut(one, cuts), cut(two, cuts))


def cut(data: bytes, places: list[int]) -> ContextPack:
    """Return the pack of `data` cut at these places."""
    edges = sorted({0, len(data), *(place for place in places if place < len(data))})
    return ContextPack([data[start:end] for start, end in pairwise(edges)])


def check_kept(base: ContextPack, target: ContextPack) -> None:
    """Compare what a delta keeps with the two tuples, walked one by one."""
    one, other = base.chunk_bytes, target.chunk_bytes
    equal = [mine == its for mine, its in zip(one, other, strict=False)]
    delta = ContextPackDelta.between(base, target)
    assert delta.kept_chunks == (equal.index(False) if False in equal else len(equal))
    assert delta.new_chunks == other[delta.kept_chunks :]
    assert apply_delta(base, delta).chunk_bytes == other


def test_rebuilt_packs_are_bases_in_turn() -> None:
    texts = ["line\n" * count for count in (0, 10, 300, 299, 2000, 1)]
    held = ContextPack.from_content(texts[0])
    for text in texts[1:]:
        target = ContextPack.from_content(text)
        held = apply_delta(held, ContextPackDelta.from_bytes(ContextPackDelta.between(held, target).to_bytes()))
        assert held.to_bytes() == target.to_bytes()


def test_the_order_of_checks() -> None:
    base, other = ContextPack.from_content("a"), ContextPack.from_content("b")
    for base_digest, kept, code in (
        (other.digest, 9, "base_mismatch"),
        (base.digest, 9, "kept_out_of_range"),
        (base.digest, 1, "target_mismatch"),
    ):
        with pytest.raises(ContextPackError) as refused:
            apply_delta(base, ContextPackDelta(base_digest, kept, [b"c"], other.digest))
        assert refused.value.code == code


def test_fields_are_checked() -> None:
    digest = ContextPack().digest
    for fields, code in (
        ((digest, -1, [], digest), "invalid_type"),
        ((digest, True, [], digest), "invalid_type"),
        ((digest, 0, [b""], digest), "empty_chunk"),
        ((digest, 0, [b"\xff"], digest), "invalid_utf8"),
        ((digest.upper(), 0, [], digest), "invalid_digest"),
        ((digest, 0, [], None), "invalid_type"),
    ):
        with pytest.raises(ContextPackError) as refused:
            ContextPackDelta(*fields)  # type: ignore[arg-type]
        assert refused.value.code == code


def test_a_delta_does_not_change_and_copies_are_equal() -> None:
    delta = ContextPackDelta.between(ContextPack.from_content("a"), ContextPack.from_content("b"))
    for other in (pickle.loads(pickle.dumps(delta)), copy.deepcopy(delta), ContextPackDelta.from_bytes(delta.to_bytes())):
        assert other == delta
        assert hash(other) == hash(delta)
    assert delta != delta.to_bytes()
    assert "new_chunks=1" in repr(delta)
    with pytest.raises(AttributeError):
        delta._kept_chunks = 1
    with pytest.raises(AttributeError):
        del delta._kept_chunks


def test_a_limit_on_bytes() -> None:
    data = ContextPackDelta.between(ContextPack(), ContextPack()).to_bytes()
    assert ContextPackDelta.from_bytes(data, max_bytes=len(data)).kept_chunks == 0
    with pytest.raises(ContextPackError) as refused:
        ContextPackDelta.from_bytes(data, max_bytes=len(data) - 1)
    assert refused.value.code == "too_large"
