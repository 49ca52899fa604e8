"""The order of evidence for the class of a link (contract 3)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from pydantic import ValidationError

from middleware.link import CLASSES, Link, LinkClass, LinkClassifier, NetworkLink, hints

OFFICE = (NetworkLink(cidr="10.0.0.0/8", link="normal"), NetworkLink(cidr="2001:db8::/32", link="weak"))


def fields(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


SAID, HINT = ("Packhorse-Link", "normal"), ("Save-Data", "on")


@pytest.mark.parametrize(
    ("given", "route", "address", "decided"),
    [
        # each kind of evidence beside all that is weaker
        ([SAID, HINT], "weak", "10.1.1.1", ("normal", "said")),
        ([HINT], "weak", "10.1.1.1", ("metered", "hint")),
        ([], "weak", "10.1.1.1", ("weak", "route")),
        ([], None, "10.1.1.1", ("normal", "network")),
        ([], None, "192.0.2.1", ("metered", "assumed")),
        # and beside all that is stronger but says nothing
        ([("Packhorse-Link", "fast"), HINT], None, None, ("metered", "hint")),
        ([("Packhorse-Link", ""), ("ECT", "4g")], "normal", None, ("normal", "route")),
        ([("Packhorse-Link", "weak"), ("Packhorse-Link", "normal")], None, None, ("metered", "assumed")),
        ([("Packhorse-Link", "weak, normal")], None, None, ("metered", "assumed")),
        ([("Packhorse-Link", " WEAK ")], None, None, ("weak", "said")),
        ([("Packhorse-Link", "normal"), ("ECT", "2g")], None, None, ("normal", "said")),
        # networks: the first that matches, of either family
        ([], None, "::ffff:10.1.1.1", ("normal", "network")),
        ([], None, "2001:db8::7", ("weak", "network")),
        ([], None, "2001:db9::7", ("metered", "assumed")),
        ([], None, None, ("metered", "assumed")),
        ([], None, "nonsense", ("metered", "assumed")),
    ],
)
def test_the_order_of_evidence(
    given: list[tuple[str, str]], route: LinkClass | None, address: str | None, decided: tuple[str, str]
) -> None:
    assert LinkClassifier(Link(networks=OFFICE), route).classify(fields(*given), address) == decided


@pytest.mark.parametrize("assume", CLASSES)
def test_where_nothing_is_known_it_is_what_the_settings_assume(assume: LinkClass) -> None:
    assert LinkClassifier(Link(assume=assume), None).classify(fields(), None) == (assume, "assumed")


def test_the_first_network_that_matches_decides() -> None:
    nested = (NetworkLink(cidr="10.1.0.0/16", link="weak"), *OFFICE)
    assert LinkClassifier(Link(networks=nested), None).classify(fields(), "10.1.2.3")[0] == "weak"
    assert LinkClassifier(Link(networks=nested[::-1]), None).classify(fields(), "10.1.2.3")[0] == "normal"


@pytest.mark.parametrize(
    ("given", "hinted"),
    [
        ([], None),
        ([("Save-Data", "on")], "metered"),
        ([("Save-Data", " On ")], "metered"),
        ([("Save-Data", "?1")], "metered"),
        ([("Save-Data", "off")], None),
        ([("Save-Data", "?0")], None),
        ([("ECT", "slow-2g")], "weak"),
        ([("ECT", "2g")], "weak"),
        ([("ECT", '"3g"')], "weak"),
        ([("ECT", "4g")], None),
        ([("ECT", "5g")], None),
        ([("Downlink", "0.7")], "weak"),
        ([("Downlink", "0")], "weak"),
        ([("Downlink", "1")], None),
        ([("Downlink", "100")], None),
        ([("RTT", "401")], "weak"),
        ([("RTT", "400")], None),
        ([("RTT", "0")], None),
        ([("Save-Data", "on"), ("ECT", "3g")], "weak"),  # the worse of two
        ([("ECT", "4g"), ("RTT", "2000")], "weak"),
        # no numbers
        ([("Downlink", "")], None),
        ([("Downlink", "-1")], None),
        ([("Downlink", "nan")], None),
        ([("RTT", "inf")], None),
        ([("RTT", "1e9")], None),
        ([("RTT", "much")], None),
        ([("RTT", "\udcff")], None),
    ],
)
def test_what_hints_say(given: list[tuple[str, str]], hinted: str | None) -> None:
    assert hints(fields(*given)) == hinted


HINTS = st.sampled_from(["Save-Data", "ECT", "Downlink", "RTT"])


@settings(deadline=None)
@given(st.lists(st.tuples(HINTS, st.text()), max_size=5))
def test_hints_never_raise_and_never_make_a_link_normal(given: list[tuple[str, str]]) -> None:
    assert hints(fields(*given)) in (None, "weak", "metered")


@settings(deadline=None)
@given(st.lists(st.text(), max_size=2), st.one_of(st.none(), st.text()))
def test_no_word_and_no_address_raises(said: list[str], address: str | None) -> None:
    words = fields(*(("Packhorse-Link", word) for word in said))
    assert LinkClassifier(Link(networks=OFFICE), None).classify(words, address)[0] in CLASSES


@pytest.mark.parametrize("cidr", ["", "10.0.0.0/33", "office", "10.0.0.0.0/8", "::/129"])
def test_a_network_that_is_none_is_refused_at_load(cidr: str) -> None:
    with pytest.raises(ValidationError, match="cidr"):
        NetworkLink(cidr=cidr, link="weak")
