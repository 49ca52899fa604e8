"""Entity tags: weakened down, mapped back up, everything else byte for byte."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from middleware.conditional import Condition, TagMemory, if_match, if_none_match, if_range_is_ours, matches, own_tag, weaken

OWN = 'W/"sha256-0123456789abcdef0123456789abcdef"'
OTHER = 'W/"sha256-00000000000000000000000000000000"'
LINES = st.lists(st.text(alphabet=st.one_of(st.characters(), st.sampled_from(list('W/"x,* \t\udcff')))))


def known(opaque: str) -> bool:
    return opaque in {'"x"', '"a,b"', '""', '"sha256-ffffffffffffffffffffffffffffffff"'}


def test_the_tag_of_our_own_making():
    assert own_tag("sha256:" + "0123456789abcdef" * 4) == OWN


@pytest.mark.parametrize(
    ("etag", "weak"),
    [
        ('"x"', 'W/"x"'),
        ('""', 'W/""'),
        (' "x" ', 'W/"x"'),
        ('"a,b c"', 'W/"a,b c"'),
        ('"\udce9"', 'W/"\udce9"'),
        ('W/"x"', 'W/"x"'),
        ('w/"x"', 'w/"x"'),  # "W" is case-sensitive; malformed stays
        ("x", "x"),
        ('"x', '"x'),
        ('"x""y"', '"x""y"'),
        ("", ""),
        ("*", "*"),
    ],
)
def test_weakening(etag, weak):
    assert weaken(etag) == weak
    assert weaken(weak) == weak
    assert TagMemory().weaken("r", etag) == weak


@pytest.mark.parametrize(
    ("values", "sent", "own"),
    [
        ([], (), ()),
        (["*"], ("*",), ()),
        ([""], ("",), ()),
        (['W/"x"'], ('"x"',), ()),
        (['"x"'], ('"x"',), ()),
        (['W/"y"'], ('W/"y"',), ()),
        ([' W/"x" ,\tW/"y","z"'], (' "x" ,\tW/"y","z"',), ()),
        (['W/"a,b"', 'W/""'], ('"a,b"', '""'), ()),
        (['w/"x", W/x, W/ "x", xW/"x", W/"x"y'], ('w/"x", W/x, W/ "x", xW/"x", W/"x"y',), ()),
        (['"W/"x""'], ('"W/"x""',), ()),
        ([OWN], (), (OWN,)),
        ([f" {OWN} , {OTHER},,"], (), (OWN, OTHER)),
        ([f'"y" , {OWN},W/"x"'], ('"y" ,"x"',), (OWN,)),
        ([f'{OWN}, W/"a,b" ,junk'], ('"a,b" ,junk',), (OWN,)),
        ([OWN, '"y"'], ('"y"',), (OWN,)),
        ([OWN[2:]], (OWN[2:],), ()),  # a strong one is not of our making
        ([OWN[:-2] + '"'], (OWN[:-2] + '"',), ()),
        ([OWN.upper()], (OWN.upper(),), ()),
        # the upstream's own tag of that form, which we weakened, goes back to it
        (['W/"sha256-' + "f" * 32 + '"'], ('"sha256-' + "f" * 32 + '"',), ()),
        (['\udcff, "\udcff, W/"x"'], ('\udcff, "\udcff, W/"x"',), ()),
    ],
)
def test_if_none_match_for_the_upstream(values, sent, own):
    assert if_none_match(values, known) == Condition(sent, own)


@pytest.mark.parametrize(
    ("values", "sent"),
    [
        ([], ()),
        (["*"], ("*",)),
        (['W/"x", "y"'], ('"x", "y"',)),
        ([f'{OWN}, W/"x"'], (f'{OWN}, "x"',)),
        ([OWN], (OWN,)),  # taken out, the request would be unconditional
    ],
)
def test_if_match_for_the_upstream(values, sent):
    assert if_match(values, known) == Condition(sent)


@pytest.mark.parametrize(
    ("value", "ours"),
    [
        ('W/"x"', True),
        (f" {OWN}\t", True),
        ('"x"', False),
        ('W/"y"', False),
        ("Sat, 29 Oct 1994 19:43:31 GMT", False),
        ("", False),
        ("\udcff", False),
    ],
)
def test_if_range(value, ours):
    assert if_range_is_ours(value, known) is ours


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([OWN], True),
        ([OWN[2:]], True),  # weak comparison
        (['"a,b" , junk', f'"y",{OWN}'], True),
        ([f"{OTHER}, {OWN}"], True),
        ([OTHER], False),
        ([f'"{OWN}"'], False),
        ([f'"x, {OWN[2:-1]}'], False),
        (["*"], False),
        ([], False),
    ],
)
def test_matching_our_own_tag(values, match):
    assert matches(values, OWN) is match


@given(LINES, st.text())
def test_nothing_raises_and_strangers_pass_byte_for_byte(values, etag):
    assert if_none_match(values, lambda _: False).values == tuple(values)
    assert if_match(values, lambda _: False).values == tuple(values)
    if_none_match([*values, OWN, *(f"{OWN},{value}" for value in values)], lambda _: True)
    matches(values, etag)
    TagMemory().weaken(etag, etag)
    for value in values:
        if_range_is_ours(value, lambda _: True)


@given(st.text(st.characters(exclude_characters='"')), st.text())
def test_a_weakened_tag_comes_back_as_it_was(opaque, route):
    memory = TagMemory()
    weak = memory.weaken(route, f'"{opaque}"')
    assert if_match([f"{weak}, {weak}"], memory.known(route)).values == (f'"{opaque}", "{opaque}"',)
    assert if_none_match([weak], memory.known(route)).values == (f'"{opaque}"',)
    assert not memory.known(route + "x")(f'"{opaque}"')


def test_the_memory_is_bounded_and_forgets_the_least_used():
    memory = TagMemory(limit=3)
    for name in "abc":
        memory.weaken("r", f'"{name}"')
    known_here = memory.known("r")
    assert known_here('"a"')
    memory.weaken("r", '"d"' + " ")
    memory.weaken("r", 'W/"weak"')
    assert [name for name in "abcd" if known_here(f'"{name}"')] == ["a", "c", "d"]
    assert len(memory) == 3
    assert not known_here('"weak"')


@pytest.mark.parametrize("unit", ['"', 'W/"x",', ',"', OWN + ",", 'W/"', ","])
def test_a_long_field_is_read_in_linear_time(unit):
    started = time.perf_counter()
    if_none_match([unit * (64 * 1024 // len(unit)) + OWN], known)
    assert time.perf_counter() - started < 0.5
