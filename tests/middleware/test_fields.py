"""Field lists, and which fields end here."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from middleware.fields import FORWARDING, HOP_BY_HOP, OWN_REQUEST, drop, drop_hop_by_hop, tokens


@pytest.mark.parametrize(
    ("values", "members"),
    [
        ([], []),
        ([""], []),
        ([",, ,"], []),
        (["a"], ["a"]),
        (["A , b,C"], ["a", "b", "c"]),
        (["a", "b, c"], ["a", "b", "c"]),
        (["a,a"], ["a", "a"]),
        (["\tx\t"], ["x"]),
    ],
)
def test_members_of_a_list(values: list[str], members: list[str]) -> None:
    assert tokens(values) == members


@pytest.mark.parametrize("names", [HOP_BY_HOP, OWN_REQUEST, FORWARDING])
def test_names_are_lower_case_as_drop_wants_them(names: frozenset[str]) -> None:
    assert all(name == name.lower() for name in names)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["X-A", "x-a", "X-B", "TE", "te", "Via"]), st.text(max_size=3)), max_size=8))
def test_dropping_takes_all_lines_of_a_name_in_any_case_and_nothing_else(pairs: list[tuple[str, str]]) -> None:
    headers = CIMultiDict(pairs)
    drop(headers, frozenset({"x-a", "te"}))
    assert list(headers.items()) == [pair for pair in pairs if pair[0].lower() not in ("x-a", "te")]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([("A", "1")], ["A"]),
        ([("Connection", "close"), ("A", "1")], ["A"]),
        ([("Connection", "X-A, x-b"), ("x-a", "1"), ("X-B", "2"), ("X-C", "3")], ["X-C"]),
        ([("Connection", "X-A"), ("connection", "X-B"), ("X-A", "1"), ("X-B", "2"), ("X-A", "3")], []),
        ([("Connection", ",, X-A ,"), ("X-A", "1")], []),
        ([(name, "1") for name in ("Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "TE", "Trailer", "Upgrade")], []),
        ([(name, "1") for name in ("Proxy-Authorization", "Proxy-Authenticate", "HTTP2-Settings")], []),
        ([("Content-Length", "1"), ("Content-Encoding", "gzip"), ("Trailers", "x")],
         ["Content-Length", "Content-Encoding", "Trailers"]),
    ],
)  # fmt: skip
def test_hop_by_hop_fields_and_those_that_connection_names(given: list[tuple[str, str]], kept: list[str]) -> None:
    headers = CIMultiDict(given)
    drop_hop_by_hop(headers)
    assert list(headers) == kept
