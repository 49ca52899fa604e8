"""What an operator reads when the settings are wrong: the words themselves."""

from collections.abc import Callable

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.errors import ConfigError
from config.keys import OPTIONS
from config.loader import read

Refusal = Callable[..., list[str]]
ROUTES = "routes: [{name: all, upstream: http://u}]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delta: {}", "packhorse.yaml:2: delta: is not a setting; the nearest is deltas"),
        ("deltas: {min: 1}", "packhorse.yaml:2: deltas.min: is not a setting; the nearest is deltas.min_bytes"),
        ("admin: {tokn: x}", "packhorse.yaml:2: admin.tokn: is not a setting; the nearest is admin.token"),
        ("admin: {token:0123456789}", "packhorse.yaml:2: admin.(hidden): is not a setting; the nearest is admin.token"),
        ("deltas: {min-bytes: 1}", "packhorse.yaml:2: deltas.min-bytes: is not a setting; the nearest is deltas.min_bytes"),
        ("xyzzy: 1", "packhorse.yaml:2: xyzzy: is not a setting"),
        ("listen: 8080", "packhorse.yaml:2: listen: expected text in quotes: host:port, [v6]:port or unix:/path, given 8080"),
        ("listen: '8080'", "packhorse.yaml:2: listen: expected host:port, [v6]:port or unix:/path, given '8080'"),
        ("drain: soon", "packhorse.yaml:2: drain: expected a time such as 500ms, 30s, 2h or plain seconds, given 'soon'"),
        ("drain: -1", "packhorse.yaml:2: drain: expected a time such as 500ms, 30s, 2h or plain seconds, given -1"),
        ("drain: .inf", "packhorse.yaml:2: drain: expected a time such as 500ms, 30s, 2h or plain seconds, given inf"),
        ("bases: {max_bytes: 1.5x}",
         "packhorse.yaml:2: bases.max_bytes: expected a size such as 256KiB, 16MiB or plain bytes, given '1.5x'"),
        ("bases: {keep: 65}", "packhorse.yaml:2: bases.keep: expected a whole number from 1 to 64, given 65"),
        ("bases: {keep: many}", "packhorse.yaml:2: bases.keep: expected a whole number from 1 to 64, given 'many'"),
        ("bases: 5", "packhorse.yaml:2: bases: expected a mapping, given 5"),
        ("bases: [x]", "packhorse.yaml:2: bases: expected a mapping, given a list"),
        ("deltas: {links: weak}",
         "packhorse.yaml:2: deltas.links: expected a list of weak, metered or normal, given 'weak'"),
        ("deltas:\n  links:\n  - weak\n  - wobbly",
         "packhorse.yaml:5: deltas.links.1: expected weak, metered or normal, given 'wobbly'"),
        ("link: {networks: [{cidr: 10.0.0.0/33, link: weak}]}", "packhorse.yaml:2: link.networks.0.cidr: "
         "'10.0.0.0/33' does not appear to be an IPv4 or IPv6 network, given '10.0.0.0/33'"),
        ("store: {kind: redsi}", "packhorse.yaml:2: store.kind: expected memory or sqlite, given 'redsi'"),
        ("tls: {certificate: x}", "packhorse.yaml:2: tls.key: is required: PEM file with the private key"),
        ("drain: ${SOON}", "packhorse.yaml:2: drain: the environment has no SOON"),
        ("store: {path: \"a\\0b\"}", "packhorse.yaml:2: store.path: expected text without control characters"),
        ("\"we ird\\n\": 1", "packhorse.yaml:2: 'we ird\\n': is not a setting"),
        ("bases: {ttl: " + "9" * 500 + "}", "packhorse.yaml:2: bases.ttl: "
         "expected a time such as 500ms, 30s, 2h or plain seconds, given a huge number"),
    ],
)  # fmt: skip
def test_one_mistake_is_one_line(text: str, message: str, refusal: Refusal) -> None:
    assert refusal(ROUTES + text) == [message]


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ("[]", "packhorse.yaml:1: routes: expected at least one, given a list"),
        ("{}", "packhorse.yaml:1: routes: expected a list of mappings, given a mapping"),
        ("[{upstream: http://u}]", "packhorse.yaml:1: routes.0.name: is required: Label of the route in metrics and logs"),
        ("[{name: a}]", "packhorse.yaml:1: routes.0.upstream: is required: "
         "http://host:port/path, https://... or unix:/path/to/socket. Its path comes before the request's"),
        ("[{name: A, upstream: http://u}]",
         "packhorse.yaml:1: routes.0.name: expected text that matches ^[a-z0-9][a-z0-9_-]{0,39}$, given 'A'"),
        ("[{name: a, upstream: ftp://u}]", "packhorse.yaml:1: routes.0.upstream: "
         "expected http://host[:port][/path], https://... or unix:/path/to/socket, given 'ftp://u'"),
        ("[{name: a, upstream: http://u, kind: opneai}]",
         "packhorse.yaml:1: routes.0.kind: expected prepare, openai, anthropic or plain, given 'opneai'"),
        ("[{name: a, upstream: http://u, macth: /x}]",
         "packhorse.yaml:1: routes.0.macth: is not a setting; the nearest is routes.0.match"),
        ("[{name: a, match: /v1, upstream: http://u},\n {name: b, match: /v1/, upstream: http://u}]",
         "packhorse.yaml:2: routes.1.match: '/v1/' is already that of routes.0"),
        ("[{name: a, upstream: http://u},\n {name: a, match: /b, upstream: http://u}]",
         "packhorse.yaml:2: routes.1.name: 'a' is already that of routes.0"),
    ],
)  # fmt: skip
def test_routes_that_are_wrong(routes: str, message: str, refusal: Refusal) -> None:
    assert refusal(f"routes: {routes}") == [message]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(refusal: Refusal) -> None:
    text = """\
listen: nowhere
store: {kind: sqlite, path: 5}
routes:
  - {name: all, upstream: "${UPSTREAM}", macth: /}
session: {headers: [ok, "not ok"]}
drain: never
"""
    assert [line.split(": ")[:2] for line in refusal(text, PACKHORSE_LISTN="x")] == [
        ["packhorse.yaml:1", "listen"],
        ["packhorse.yaml:2", "store.path"],
        ["packhorse.yaml:4", "routes.0.upstream"],
        ["packhorse.yaml:4", "routes.0.macth"],
        ["packhorse.yaml:5", "session.headers.1"],
        ["packhorse.yaml:6", "drain"],
        ["environment", "PACKHORSE_LISTN"],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "admin: {token: [sk-secret-1]}",
        "admin: {token: {sk-secret-1: 1}}",
        "admin: sk-secret-1",
        "admin: [sk-secret-1]",
        "access: {keys: [sk-secret-1]}",
        "access: {keys: sk-secret-1}",
        "access: {keys: [{name: a, key: sk-secret-1}]}",
        "access: sk-secret-1",
        "admin: {token:sk-secret-1}",
        "admin: {token:sk-secret-1, token:sk-secret-1}",
        "admin: {sk-secret-1}",
        "admin:\n  token:sk-secret-1",
        "access: {keys: [{name: a, key:sk-secret-1}]}",
        "access: {keys: [{name: a, sk-secret-1}]}",
        "access: {keys: {sk-secret-1}}",
        "access: {keys: [{name: a, key: 'sk-secret-1 \\0'}]}",
    ],
)
def test_a_secret_is_never_repeated(text: str, refusal: Refusal) -> None:
    assert "sk-secret" not in "\n".join(refusal(ROUTES + text))


@pytest.mark.parametrize(
    "upstream", ["http://me:sk-secret-1@u/", "http://u/?key=sk-secret-1", "ftp://sk-secret-1@u", "http://u/#sk-secret-1"]
)
def test_what_may_be_secret_in_a_url_is_never_repeated(upstream: str, refusal: Refusal) -> None:
    lines = refusal(f"routes: [{{name: a, upstream: '{upstream}'}}]")
    assert "sk-secret" not in "\n".join(lines)
    assert "routes.0.upstream" in lines[0]


_KEYS = st.sampled_from(sorted({part for option in OPTIONS for part in option.path})) | st.text(max_size=5)
_TEXTS = [
    "http://u",
    "1KiB",
    "2h",
    "127.0.0.1:1",
    "unix:/x",
    "weak",
    "${X}",
    "${",
    "9" * 400 + "GiB",
    "1e999",
    "http://[",
    "http://u:x",
]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
    | st.sampled_from(_TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    tree=st.dictionaries(st.sampled_from([o.path[0] for o in OPTIONS]) | _KEYS, _VALUES, max_size=5),
    environ=st.dictionaries(
        st.sampled_from(["X", "PACKHORSE_LISTEN", "PACKHORSE_ROUTES", "PACKHORSE_ROUTES__0", "PACKHORSE_DELTAS__LINKS"]),
        st.text(max_size=9),
        max_size=2,
    ),
)
@example(tree={"limits": {"request": "9" * 400 + "GiB"}}, environ={})
@example(tree={"routes": [{"name": "a", "upstream": "http://["}]}, environ={})
def test_loading_raises_nothing_else(
    tree: dict[str, object], environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the file says: a configuration, or a ConfigError that can be printed."""
    _load(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass"), environ, tmp_path_factory)


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=60) | st.text(alphabet="ab:{}[]-,&*!|>'\"#%@` \n\t\\?<0.~", max_size=40).map(str.encode))
def test_loading_any_bytes_raises_nothing_else(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever the file is: a configuration, or a ConfigError that can be printed."""
    _load(content, {}, tmp_path_factory)


def _load(content: bytes, environ: dict[str, str], folders: pytest.TempPathFactory) -> None:
    file = folders.getbasetemp() / "any.yaml"
    file.write_bytes(content)
    try:
        read(file, environ=environ, overrides={"upstream": "http://u"} if b"routes" not in content else {})
    except ConfigError as error:
        told = str(error).encode()
    else:
        told = b"good"
    assert told
