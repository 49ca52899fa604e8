"""The never-larger rule of contract 3, as a property; which form wins a tie; and the one word for why."""

import gzip
import random

import brotli
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.packs import undo
from support.texts import lines

from ctxpack import ContextPack
from middleware.codings import gzip_encode, zstd_encode
from middleware.forms import Chosen, Form, Material, choose, pack_of
from middleware.offers import DELTA, PACK, Offers, taken
from middleware.stores import Base


def offers(
    accept: str | None, bases: tuple[str, ...] = (), *, asks_pack: bool = False, by_script: tuple[str, ...] = ()
) -> Offers:
    lines_of = () if accept is None else (accept,)
    return Offers(taken(lines_of, by_script), bases, asks_pack, False)


def base_of(text: str, *, with_pack: bool = True) -> Base:
    pack = ContextPack.from_content(text)
    return Base(text.encode(), (pack.digest,), pack if with_pack else None)


def material(text: str, *bases: str, came: Form | None = None, may_delta: bool = True, speaks: bool = True) -> Material:
    target = ContextPack.from_content(text) if speaks else None
    return Material(text.encode(), target, [base_of(base) for base in bases], came, may_delta)


def names(*texts: str) -> tuple[str, ...]:
    return tuple(ContextPack.from_content(text).digest for text in texts)


def codings_of(form: Form) -> list[str]:
    return [part.strip() for part in form.coding.split(",")]


def content_of(form: Form, bases: "list[Base] | tuple[Base, ...]" = ()) -> bytes:
    """What a client gets out of a form with the bases it named."""
    held = {pack_of(base).digest: pack_of(base) for base in bases}
    data = form.body
    for coding in reversed(codings_of(form)):
        data = undo(coding, data, held)
    return data


# The rule as a property

CHINESE = "".join(map(chr, range(0x4E00, 0x4F80)))
PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"


def drawn(alphabet: str, size: int, seed: int) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=size))


def rewritten(text: str, seed: int) -> str:
    """The same with a line in ten written anew."""
    chance = random.Random(seed)
    written = text.splitlines(keepends=True)
    return "".join(drawn(PRINTABLE, 60, seed) + "\n" if chance.random() < 0.1 else line for line in written)


SEED = st.integers(0, 99)
TINY = st.text(max_size=40)
TEXTS = st.one_of(
    st.builds(lines, st.integers(1, 120), st.integers(1, 3)),
    st.builds(rewritten, st.builds(lines, st.integers(1, 120), st.just(1)), SEED),
    TINY,
    st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=12), st.integers(1, 1500)),
    st.builds(drawn, st.just(CHINESE), st.integers(1, 3000), SEED),
    st.builds(drawn, st.just(PRINTABLE), st.integers(1, 6000), SEED),
)
SPOKEN = ("gzip", "zstd", "br", "identity", "*", PACK, DELTA, "dcz", "deflate")
WEIGHTS = ("", ";q=1", ";q=0.5", ";q=0.001", ";q=0", ";q=0.000")
MEMBERS = st.lists(st.tuples(st.sampled_from(SPOKEN), st.sampled_from(WEIGHTS)), max_size=7)
RELATED = st.sampled_from(["same", "grown", "rewritten", "other", "cut"])


def accepted(members: "list[tuple[str, str]] | None", coding: str) -> bool:
    """RFC 9110 12.5.3 once more, by other means than the product's: a refusal wins, silence takes identity alone."""
    if members is None:
        return coding == "identity"
    said = {name: all(float(weight[3:] or "1") > 0 for other, weight in members if other == name) for name, _ in members}
    if coding in said:
        return said[coding]
    if coding in ("dcz", PACK, DELTA):
        return False
    return said.get("*", coding == "identity")


@st.composite
def situations(draw: st.DrawFn) -> tuple[Material, Offers, "list[tuple[str, str]] | None"]:
    text = draw(TEXTS)
    members = draw(st.one_of(st.none(), MEMBERS, MEMBERS.map(lambda some: [*some, (DELTA, ""), ("gzip", "")])))
    accept = None if members is None else ", ".join(name + weight for name, weight in members)
    bases: list[Base] = []
    for related in draw(st.lists(RELATED, max_size=3)):
        made = {
            "same": text,
            "grown": text[: len(text) * 9 // 10],
            "rewritten": rewritten(text, 7),
            "other": lines(20, 9),
            "cut": text[len(text) // 2 :],
        }[related]
        bases.append(base_of(made, with_pack=draw(st.booleans())))
    named = tuple(base.names[0] for base in bases) or draw(st.sampled_from([(), ("sha256:" + "0" * 64,)]))
    asks_pack = not named and draw(st.booleans())
    asked = offers(accept, named, asks_pack=asks_pack)
    came = None
    if members is not None and accepted(members, "br") and draw(st.booleans()):
        came = Form("br", brotli.compress(text.encode(), quality=draw(st.sampled_from([1, 9]))), "already-coded")
    target = ContextPack.from_content(text) if asked.taken.ctxpack or draw(st.booleans()) else None
    return Material(text.encode(), target, bases, came, draw(st.integers(0, 4)) > 0), asked, members


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(situations())
def test_no_body_is_larger_than_it_need_be_and_every_one_is_the_content(
    situation: tuple[Material, Offers, "list[tuple[str, str]] | None"],
) -> None:
    made_of, asked, members = situation
    content = made_of.content
    chosen = choose(made_of, asked)
    form = chosen.form

    assert content_of(form, list(made_of.bases)) == content
    if form.why == "not-acceptable":
        assert (form.coding, form.body) == ("identity", content)
        assert not any(accepted(members, coding) for coding in ("identity", "gzip", "zstd"))
        return
    assert all(accepted(members, coding) for coding in codings_of(form)), "a refused coding"
    if not made_of.may_delta:
        assert "ctxpack" not in form.coding
    asked_for_pack = asked.asks_pack and accepted(members, PACK) and made_of.target is not None and made_of.may_delta
    if asked_for_pack:
        assert (codings_of(form)[0], form.why) == (PACK, "pack")
        return
    if accepted(members, "identity"):
        assert len(form.body) <= len(content), "larger than identity"
        assert codings_of(form)[0] != PACK
    tenth = codings_of(form)[0] == DELTA and len(form.body) * 10 < len(content)
    if members is not None and accepted(members, "gzip") and not tenth:
        assert len(form.body) <= len(gzip.compress(content, 6, mtime=0)), "larger than gzip"
        assert chosen.gzip_size is None or chosen.gzip_size <= len(gzip.compress(content, 6, mtime=0))
    if made_of.came is not None and not tenth:
        assert len(form.body) <= len(made_of.came.body), "larger than what the upstream had made"


@settings(max_examples=100, deadline=None)
@given(st.integers(5, 80), st.integers(1, 10))
def test_a_text_that_grew_costs_a_fraction(count: int, more: int) -> None:
    before, now = lines(count), lines(count + more)
    asked = offers(f"{DELTA}, gzip", names(before))
    form = choose(material(now, before), asked).form
    assert len(form.body) <= len(gzip.compress(now.encode(), 6, mtime=0))
    assert content_of(form, [base_of(before)]) == now.encode()
    if len(now) > 4000:
        assert (codings_of(form)[0], form.why) == (DELTA, "delta")


# The exception that is asked for by name


@pytest.mark.parametrize("accept", [PACK, f"{PACK}, gzip", f"{PACK};q=0.1, zstd, gzip", f"{PACK}, identity;q=0"])
def test_who_holds_nothing_and_says_so_gets_a_pack_though_it_is_larger(accept: str) -> None:
    form = choose(material("a few words"), offers(accept, asks_pack=True)).form
    assert (codings_of(form)[0], form.why) == (PACK, "pack")
    assert len(form.body) > len("a few words")
    assert content_of(form) == b"a few words"


@pytest.mark.parametrize(
    ("accept", "asks_pack", "changes", "coding"),
    [
        (f"{PACK}, gzip", False, {}, "gzip"),  # not asked for
        ("gzip", True, {}, "gzip"),  # not taken
        (f"{PACK};q=0, gzip", True, {}, "gzip"),
        (f"{PACK}, gzip", True, {"may_delta": False}, "gzip"),  # a page that may not read the response
        (f"{PACK}, gzip", True, {"speaks": False}, "gzip"),
        (f"{PACK}, identity;q=0", False, {}, PACK),  # identity refused: a pack is what there is
        (f"{PACK}, identity;q=0, gzip", False, {}, "gzip"),  # but not where gzip is smaller
    ],
)
def test_a_pack_is_for_who_asks_or_refuses_identity(
    accept: str, asks_pack: bool, changes: dict[str, bool], coding: str
) -> None:
    form = choose(material(lines(30), **changes), offers(accept, asks_pack=asks_pack)).form
    assert codings_of(form)[0] == coding


# Deltas


def test_the_base_that_shares_most_is_the_one_used() -> None:
    far, near, now = lines(10), lines(90), lines(100)
    for order in ([far, near], [near, far]):
        form = choose(material(now, *order), offers(DELTA, names(*order))).form
        assert form.why == "delta"
        assert content_of(form, [base_of(near)]) == now.encode()


def test_a_delta_under_a_tenth_ends_the_search_and_one_over_it_does_not() -> None:
    now = lines(100)
    small = choose(material(now, lines(99)), offers(f"{DELTA}, gzip", names(lines(99))))
    assert (small.form.why, small.gzip_size) == ("delta", None)
    large = choose(material(now, lines(60)), offers(f"{DELTA}, gzip", names(lines(60))))
    assert large.gzip_size == len(gzip_encode(now.encode(), 6))
    assert content_of(large.form, [base_of(lines(60))]) == now.encode()


@pytest.mark.parametrize("outer", ["gzip", "zstd"])
def test_a_delta_may_have_a_coding_around_it(outer: str) -> None:
    before, now = lines(60), lines(100)
    form = choose(material(now, before), offers(f"{DELTA}, {outer}", names(before))).form
    assert form.coding == f"{DELTA}, {outer}"
    assert content_of(form, [base_of(before)]) == now.encode()


def test_a_script_gets_no_outer_coding_its_browser_only_said() -> None:
    before, now = lines(60), lines(100)
    asked = offers("gzip, deflate, br, zstd", names(before), by_script=(DELTA,))
    assert choose(material(now, before), asked).form.coding == f"{DELTA}, gzip"


def test_a_base_without_its_pack_is_packed_again() -> None:
    before, now = lines(90), lines(100)
    bare = base_of(before, with_pack=False)
    form = choose(Material(now.encode(), ContextPack.from_content(now), [bare]), offers(DELTA, names(before))).form
    assert form.why == "delta"
    assert content_of(form, [bare]) == now.encode()


# Ties


def equal_sized(one: str, other: str) -> str:
    """A text of which two codings are the same size."""
    size = {"gzip": lambda b: len(gzip_encode(b, 6)), "zstd": lambda b: len(zstd_encode(b)), "identity": len}
    for seed in range(3000):
        again = drawn(PRINTABLE, 60, seed)
        text = (drawn("abcdefgh", 20 + seed % 180, seed), again + again[: seed % 60])[seed % 2]
        if size[one](text.encode()) == size[other](text.encode()):
            return text
    raise AssertionError("no such text")


@pytest.mark.parametrize(
    ("one", "other", "accept", "coding"),
    [
        ("identity", "gzip", "gzip", "identity"),
        ("identity", "gzip", "gzip;q=0.5", "identity"),
        ("identity", "gzip", "gzip, identity;q=0.5", "gzip"),
        ("identity", "zstd", "zstd", "identity"),
        ("identity", "zstd", "identity;q=0.9, zstd", "zstd"),
        ("gzip", "zstd", "gzip, zstd, identity;q=0", "gzip"),
        ("gzip", "zstd", "zstd, gzip, identity;q=0", "gzip"),
        ("gzip", "zstd", "gzip;q=0.5, zstd, identity;q=0", "zstd"),
        ("gzip", "zstd", "gzip, zstd;q=0.5, identity;q=0", "gzip"),
    ],
)
def test_a_tie_goes_to_the_clients_weights_then_to_the_cheapest(one: str, other: str, accept: str, coding: str) -> None:
    text = equal_sized(one, other)
    assert choose(material(text, speaks=False), offers(accept)).form.coding == coding


@pytest.mark.parametrize("accept", ["gzip;q=0.001, identity", "gzip;q=0.1"])
def test_weights_do_nothing_but_break_ties(accept: str) -> None:
    assert choose(material(lines(30)), offers(accept)).form.coding == "gzip"


# One word for why

GROWN, NOW = lines(99), lines(100)
NONE_HELD = ("sha256:" + "0" * 64,)


@pytest.mark.parametrize(
    ("held", "named", "accept", "changes", "why"),
    [
        ([GROWN], None, f"{DELTA}, gzip", {}, "delta"),
        ([NOW], None, f"{DELTA}, gzip", {}, "unchanged"),
        ([NOW], None, DELTA, {}, "unchanged"),
        ([], NONE_HELD, f"{DELTA}, gzip", {}, "unknown-base"),
        ([], NONE_HELD, DELTA, {}, "unknown-base"),
        ([], NONE_HELD, "gzip", {}, "no-base"),  # it named one but takes no delta
        ([], (), f"{DELTA}, gzip", {}, "no-base"),
        ([], (), "gzip", {}, "no-base"),
        ([], (), None, {}, "no-base"),
        ([lines(20, 9)], None, f"{DELTA}, gzip", {}, "not-smaller"),
        ([lines(20, 9)], None, DELTA, {}, "not-smaller"),
        ([GROWN], None, f"{DELTA}, gzip", {"may_delta": False}, "no-base"),
        ([GROWN], None, f"{DELTA};q=0, gzip", {}, "no-base"),
        ([], (), "identity;q=0", {}, "not-acceptable"),
        ([], (), "br, identity;q=0", {}, "not-acceptable"),
        ([], (), "*;q=0", {}, "not-acceptable"),
    ],
)
def test_why(held: list[str], named: tuple[str, ...] | None, accept: str | None, changes: dict[str, bool], why: str) -> None:
    asked = offers(accept, names(*held) if named is None else named)
    assert choose(material(NOW, *held, **changes), asked).form.why == why


@pytest.mark.parametrize(
    ("accept", "coding", "why"),
    [
        ("br", "br", "already-coded"),
        ("br, gzip, zstd", "br", "already-coded"),
        (f"br, {DELTA}", f"{DELTA}", "delta"),
    ],
)
def test_what_the_upstream_had_coded_competes_as_it_came(accept: str, coding: str, why: str) -> None:
    came = Form("br", brotli.compress(NOW.encode()), "already-coded")
    held = [GROWN] if DELTA in accept else []
    form = choose(material(NOW, *held, came=came), offers(accept, names(*held))).form
    assert (form.coding, form.why) == (coding, why)


def test_a_worse_gzip_of_the_upstreams_is_no_excuse() -> None:
    """Contract 3: no body is larger than gzip would have made it."""
    came = Form("gzip", gzip_encode(NOW.encode() * 3, 1), "already-coded")
    chosen: Chosen = choose(material(NOW * 3, came=came), offers("gzip"))
    assert len(chosen.form.body) <= len(gzip_encode(NOW.encode() * 3, 6))
