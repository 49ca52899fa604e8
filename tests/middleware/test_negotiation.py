"""What a client takes and holds: C01, C12, C13, C16."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from middleware.codings import DECODABLE
from middleware.negotiation import (
    NO_BASE,
    AcceptEncoding,
    available_dictionary,
    delta_allowed,
    merge_vary,
    opt_in,
    parse_ctxpack_base,
)

ANY_FIELD = st.lists(st.text(alphabet=st.one_of(st.characters(), st.sampled_from(list('gzip,;q=01.*"\\ \t:W/\udcff')))))
DIGEST = "sha256:" + "0123456789abcdef" * 4


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


# C01
@pytest.mark.parametrize(
    ("value", "gzip", "br", "identity"),
    [
        (None, 1, 1, 1),
        ("", 0, 0, 1),
        ("gzip;q=0", 0, 0, 1),
        ("gzip, identity", 1, 0, 1),
        ("br;q=0, gzip", 1, 0, 1),
        ("GZIP;Q=0.5", 0.5, 0, 1),
        ("gzip;q=0.0", 0, 0, 1),
        ("gzip;q=0.000", 0, 0, 1),
        ("gzip ; q=0", 0, 0, 1),
        ("gzip ;\tq=0.5 ,\tbr", 0.5, 1, 1),
        ("gzip;q = 0", 0, 0, 1),
        ("x-gzip", 1, 0, 1),
        ("gzip;q=1.000", 1, 0, 1),
        ("gzip;q=0.", 0, 0, 1),
        ("identity;q=0", 0, 0, 0),
        ("*", 1, 1, 1),
        ("*;q=0", 0, 0, 0),
        ("*;q=0, identity", 0, 0, 1),
        ("*;q=0, gzip", 1, 0, 0),
        ("*;q=0.3, br;q=0", 0.3, 0, 0.3),
        ("identity;q=0, *", 1, 1, 0),
        ("identity;q=0.5, *;q=0", 0, 0, 0.5),
        (" , gzip,, ", 1, 0, 1),
        # malformed members count as not there
        ("gzip;q=2", 0, 0, 1),
        ("gzip;q=-1", 0, 0, 1),
        ("gzip;q=", 0, 0, 1),
        ("gzip;q=1.001", 0, 0, 1),
        ("gzip;q=nan", 0, 0, 1),
        ("gzip;q=1e0", 0, 0, 1),
        ("gzip;q=٠", 0, 0, 1),
        ("gzip;level=9", 0, 0, 1),
        ("gzip br", 0, 0, 1),
        ("xgzip, gzipx, br;q=0.1", 0, 0.1, 1),
        ('"gzip"', 0, 0, 1),
        ("\udcff, br", 0, 1, 1),
        # named twice: a refusal wins, else the first
        ("gzip;q=0.2, gzip", 0.2, 0, 1),
        ("gzip, x-gzip;q=0", 0, 0, 1),
        ("gzip;q=0, gzip", 0, 0, 1),
    ],
)
def test_what_a_field_accepts(value, gzip, br, identity):
    accept = AcceptEncoding.parse([] if value is None else [value])
    assert (accept.q("gzip"), accept.q("br"), accept.q("identity")) == (gzip, br, identity)
    assert accept.accepts("GZIP") == (gzip > 0)
    assert accept.q("x-gzip") == gzip
    assert accept.absent == (value is None)


# C12, the half that is parsing
@pytest.mark.parametrize("value", [None, "", "*", "*;q=1, gzip", "gzip", "dcz;q=0", "xdcz", "dcz;q=0, *", "dcz;q=7"])
@pytest.mark.parametrize("coding", ["dcz", "dcb", "ctxpack.pack.v1", "ctxpack.delta.v1", "ctxpack.anything"])
def test_codings_with_a_base_are_never_guessed(value, coding):
    assert not AcceptEncoding.parse([] if value is None else [value]).accepts(coding)


def test_codings_with_a_base_are_taken_where_named():
    accept = AcceptEncoding.parse(["gzip, DCZ;q=0.5", "Ctxpack.Delta.V1"])
    assert accept.q("dcz") == 0.5
    assert accept.q("ctxpack.delta.v1") == 1
    assert not accept.accepts("ctxpack.pack.v1")


def test_several_lines_are_one_field():
    accept = AcceptEncoding.parse(["gzip;q=0.5", "br"])
    assert (accept.q("gzip"), accept.q("br")) == (0.5, 1)
    assert accept.text == "gzip;q=0.5, br"


def test_equal_values_share_one_result_and_long_ones_are_not_kept():
    assert AcceptEncoding.parse(["gzip, br"]) is AcceptEncoding.parse(["gzip, br"])
    long = ["gzip," * 4000]
    assert AcceptEncoding.parse(long) == AcceptEncoding.parse(long)
    assert AcceptEncoding.parse(long) is not AcceptEncoding.parse(long)
    assert AcceptEncoding.parse([long[0] + "dcz"]).forwarded() == ", ".join(["gzip"] * 4000)


@given(ANY_FIELD, st.text())
def test_accept_encoding_never_raises(values, coding):
    accept = AcceptEncoding.parse(values)
    assert 0 <= accept.q(coding) <= 1
    assert accept.absent == (not values)
    for sent in (accept.forwarded(), accept.forwarded(DECODABLE)):
        assert (sent is None) == accept.absent
        if sent is not None and sent != accept.text:
            again = AcceptEncoding.parse([sent])
            assert again.accepts("identity") or any(again.weights.values())
            assert not any(opt_in(name) for name in again.weights)


# C16
@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("gzip, br", "gzip, br"),
        ("GZip;Q=0.5 ,  br", "GZip;Q=0.5 ,  br"),  # nothing taken away: byte for byte
        (" ,, gzip", " ,, gzip"),
        ("", ""),
        ("*", "*"),
        ("foo;bar baz, gzip", "foo;bar baz, gzip"),
        ("zstd, br, dcz, foo", "zstd, br, foo"),
        ("DCZ;q=0.9,GZip;Q=0.5 , dcb,Ctxpack.Delta.v1, br", "GZip;Q=0.5, br"),
        ("dcz", "identity"),
        ("dcz, ctxpack.pack.v1, ,", "identity"),
        ("dcz;q=2", "identity"),
        ("dcz, identity;q=0", "identity"),  # or the upstream could answer nothing
        ("ctxpack.pack.v1, *;q=0", "identity"),
        ("dcz, gzip;q=0", "gzip;q=0"),
        ("dcz, gzip, *;q=0", "gzip, *;q=0"),
    ],
)
def test_what_the_upstream_is_offered(value, sent):
    accept = AcceptEncoding.parse([value])
    assert accept.forwarded() == sent
    assert accept.without(opt_in) == sent


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("zstd, br, dcz, foo", "zstd, br"),
        ("gzip, *;q=0.5", "gzip"),
        ("gzip, *;q=0, foo;q=0", "gzip, *;q=0, foo;q=0"),
        ("x-gzip", "x-gzip"),
        ("foo", "identity"),
        ("*", "identity"),
        ("gzip;q=0.3, identity", "gzip;q=0.3, identity"),
    ],
)
def test_what_the_upstream_is_offered_where_its_answer_must_be_read(value, sent):
    assert AcceptEncoding.parse([value]).forwarded(DECODABLE) == sent


def test_an_absent_field_stays_absent():
    assert AcceptEncoding.parse([]).forwarded() is None
    assert AcceptEncoding.parse([]).without(lambda _: True) is None


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ([], ()),
        ([""], ()),
        (["none"], NO_BASE),
        ([" None "], NO_BASE),
        ([DIGEST], (DIGEST,)),
        ([f"{digest(1)},{digest(2)}", digest(3)], (digest(1), digest(2), digest(3))),
        ([f"none, {DIGEST}"], (DIGEST,)),
        ([f"{DIGEST}, {DIGEST}"], (DIGEST,)),
        ([DIGEST.upper(), DIGEST[:-1], DIGEST + "0", "sha512:" + DIGEST[7:], DIGEST + "\n", "nonesuch"], ()),
        ([f"junk, {DIGEST}"], (DIGEST,)),
        ([", ".join(map(digest, range(20)))], tuple(map(digest, range(8)))),
    ],
)
def test_ctxpack_base(values, held):
    assert parse_ctxpack_base(values) == held


HASH = bytes(range(32))
COLONS = ":" + base64.b64encode(HASH).decode() + ":"


@pytest.mark.parametrize(
    ("values", "dictionary"),
    [
        ([], None),
        ([COLONS], HASH),
        ([f"  {COLONS} "], HASH),
        ([COLONS + ";a=1"], HASH),  # parameters nobody defined are ignored (RFC 9651)
        ([COLONS, COLONS], None),
        ([f"{COLONS}, {COLONS}"], None),
        ([":abc:"], None),
        ([COLONS.strip(":")], None),
        ([":" + base64.b64encode(HASH[:31]).decode() + ":"], None),
        ([":" + base64.b64encode(HASH + b"x").decode() + ":"], None),
        ([HASH.hex()], None),
        (['"' + HASH.hex() + '"'], None),
        (["(" + COLONS + ")"], None),
        ([""], None),
        (["1"], None),
        (["\udcff"], None),
        (["é"], None),
    ],
)
def test_available_dictionary(values, dictionary):
    assert available_dictionary(values) == dictionary


@given(ANY_FIELD)
def test_the_other_fields_never_raise(values):
    available_dictionary(values[:1])
    available_dictionary([":" + value for value in values[:1]])
    assert len(parse_ctxpack_base(values)) <= 8
    merge_vary(values, ["Accept-Encoding"])


@pytest.mark.parametrize(
    ("site", "mode", "origin", "allow_origin", "allowed"),
    [
        (None, None, None, None, True),
        (None, "no-cors", "https://a.example", None, True),
        ("same-origin", "no-cors", None, None, True),
        ("same-site", "cors", "https://a.example", None, True),
        ("none", "navigate", None, None, True),
        ("cross-site", "no-cors", None, None, False),
        ("cross-site", "no-cors", "https://a.example", "*", False),
        ("cross-site", "navigate", None, "*", False),
        ("cross-site", None, "https://a.example", "*", False),
        ("cross-site", "cors", "https://a.example", None, False),
        ("cross-site", "cors", "https://a.example", "*", True),
        ("cross-site", "cors", "https://a.example", "https://a.example", True),
        ("cross-site", "cors", "https://a.example", "https://b.example", False),
        ("cross-site", "cors", "https://a.example", "https://a.example, https://b.example", False),
        ("cross-site", "cors", None, "https://a.example", False),
        ("Same-Origin", "no-cors", None, None, False),
        ("", "cors", "https://a.example", None, False),
        ("\udcff", "\udcff", "\udcff", "\udcff", False),
    ],
)
def test_deltas_only_where_the_page_may_read_the_response(site, mode, origin, allow_origin, allowed):
    assert delta_allowed(site, mode, origin, allow_origin) is allowed


# C13
@pytest.mark.parametrize(
    ("existing", "add", "merged"),
    [
        ([], [], None),
        ([""], [], None),
        ([], ["Accept-Encoding", "Available-Dictionary"], "Accept-Encoding, Available-Dictionary"),
        (["accept-encoding"], ["Accept-Encoding", "Available-Dictionary"], "accept-encoding, Available-Dictionary"),
        (["Origin ,Accept", "ORIGIN"], ["accept"], "Origin, Accept"),
        (["Origin, *"], ["Accept-Encoding"], "*"),
        (["*"], [], "*"),
        (["Origin"], [], "Origin"),
    ],
)
def test_vary_is_merged(existing, add, merged):
    assert merge_vary(existing, add) == merged
