"""The request target taken apart: every byte kept, nothing decoded, and no authority of a client's ever used."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.target import Target, climbs_out, split_target, under
from middleware.problems import Problem

SEGMENTS = st.sampled_from(
    ["a", "v1", "", ".", "..", "...", "%2e", "%2E%2e", ".%2E", "%2e.", "a%2Fb", "%2f", "%zz", "..a", "é"]
)
PATHS = st.lists(SEGMENTS, max_size=7).map(lambda parts: "/" + "/".join(parts))


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        ("/", "/", ""),
        ("/a/b?c=d", "/a/b", "?c=d"),
        ("/a?", "/a", "?"),
        ("/a??x?y", "/a", "??x?y"),
        ("/a%2Fb/%zz/%", "/a%2Fb/%zz/%", ""),
        ("/a;p=1/b", "/a;p=1/b", ""),
        ("//evil.example/admin", "//evil.example/admin", ""),
        ("///", "///", ""),
        ("/a/../b/./c", "/a/../b/./c", ""),
        ("/http://x/y", "/http://x/y", ""),
        ("http://evil.example/admin?x=1", "/admin", "?x=1"),
        ("HTTPS://evil.example:99999/admin", "/admin", ""),
        ("http://evil.example", "/", ""),
        ("http://evil.example?x=1", "/", "?x=1"),
        ("http://user@evil.example//x", "//x", ""),
        ("http:///x", "/x", ""),
        ("/\udce9?\udcff", "/\udce9", "?\udcff"),
    ],
)
def test_path_and_query_are_what_the_client_wrote(raw: str, path: str, query: str) -> None:
    assert split_target(raw) == Target(path, query)


@pytest.mark.parametrize("raw", ["", "*", "a", "?x", "ftp://h/x", "h:443", "http:/x", "/a#b", "/a?b#c", "http://h/a#b", "\\a"])
def test_what_is_neither_a_path_nor_an_http_url_is_refused(raw: str) -> None:
    with pytest.raises(Problem) as refused:
        split_target(raw)
    assert (refused.value.code, refused.value.status) == ("bad-request", 400)
    assert raw not in refused.value.detail or len(raw) < 2


@settings(deadline=None)
@given(st.text(max_size=80))
@example("http://")
@example("http://\x00/\ud800")
def test_any_text_is_taken_apart_or_refused_as_a_problem(raw: str) -> None:
    try:
        target = split_target(raw)
    except Problem:
        return
    assert target.path.startswith("/")
    assert "?" not in target.path
    assert target.query == "" or target.query.startswith("?")
    assert raw.endswith(target.path.removeprefix("/") + target.query)


@pytest.mark.parametrize(
    ("path", "prefix", "covered"),
    [
        ("/v1", "/v1", True),
        ("/v1", "/v1/", True),
        ("/v1/", "/v1", True),
        ("/v1/a", "/v1/", True),
        ("/v1a", "/v1", False),
        ("/v1a/b", "/v1/", False),
        ("/v1%2Fa", "/v1", False),
        ("/V1/a", "/v1", False),
        ("/%761/a", "/v1", False),
        ("//v1/a", "/v1", False),
        ("/v1//a", "/v1", True),
        ("/v", "/v1", False),
        ("/", "/", True),
        ("/anything", "/", True),
        ("//", "/", True),
    ],
)
def test_a_prefix_covers_whole_segments_of_the_raw_path(path: str, prefix: str, covered: bool) -> None:
    assert under(path, prefix) is covered


@settings(deadline=None)
@given(PATHS, PATHS)
def test_covering_is_by_segments(path: str, prefix: str) -> None:
    segments, wanted = path.split("/"), prefix.rstrip("/").split("/")
    assert under(path, prefix) is (segments[: len(wanted)] == wanted)


def resolved(path: str) -> list[str]:
    """Segments after dot segments are removed (RFC 3986 5.2.4), encoded dots read as dots as many servers do (WHATWG URL)."""
    out: list[str] = []
    for part in path.split("/")[1:]:
        match part.lower().replace("%2e", "."):
            case ".":
                continue
            case "..":
                del out[-1:]
            case _:
                out.append(part)
    return out


@settings(deadline=None)
@given(PATHS, st.sampled_from(["/", "/v1", "/v1/", "/v1/a", "/a/v1"]))
@example("/v1/%2e%2e/a", "/v1")
@example("/v1/a/.%2E/%2E./b", "/v1")
@example("/v1/..", "/v1/")
def test_a_path_that_stays_is_under_its_prefix_once_the_upstream_resolves_it(path: str, prefix: str) -> None:
    if not under(path, prefix) or climbs_out(path, prefix):
        return
    floor = [part for part in prefix.split("/") if part]
    assert resolved(path)[: len(floor)] == floor


@pytest.mark.parametrize(
    "path",
    ["/v1//../x", "/v1///../../x", "/v1/a//../../x", "/v1/..%2fx", "/v1/a/..%2F..%2Fx", "/v1/a/..%2f../../x", "/v1/%2e%2e%2fx"],
)
def test_what_upstreams_make_of_slashes_buys_no_way_out(path: str) -> None:
    """nginx and Go's ServeMux merge slashes before they resolve dots, others decode ``%2F`` before: each of these is outside there."""
    assert climbs_out(path, "/v1")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/a",
        "/v1/a/..",
        "/v1/a/../b",
        "/v1/./a",
        "/v1/...",
        "/v1/..a",
        "/v1/a..",
        "/v1/a/b/../../c",
        "/v1/%2e/a",
        "/v1/.."[:4],
    ],
)
def test_dots_that_stay_are_let_through(path: str) -> None:
    assert not climbs_out(path, "/v1")


@pytest.mark.parametrize("path", ["/v1/..", "/v1/../x", "/v1/a/../..", "/v1/%2e%2E/x", "/v1/./../x", "/v1/../v1/x", "/v1/.%2e"])
def test_dots_that_lead_out_are_seen(path: str) -> None:
    assert climbs_out(path, "/v1")
    assert climbs_out(path, "/v1/")
