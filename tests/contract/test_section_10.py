"""Contract, section 10: configuration."""

import json

import pytest
import yaml
from contract.kit import ask, fresh, gateway, get, packhorse, text_reply
from support.texts import lines

GOOD = {"routes": [{"name": "r", "match": "/", "upstream": "http://127.0.0.1:9000"}]}
EXAMPLE = """
listen: 127.0.0.1:8080
admin: {listen: 127.0.0.1:8081}
store: {kind: sqlite, path: var/packhorse.sqlite3}     # memory | sqlite | redis
routes:
  - {name: chat, match: /v1/, upstream: https://api.openai.com, kind: openai}
  - {name: prepare, match: /, upstream: http://127.0.0.1:9000, kind: prepare}      # kinds: prepare, openai, anthropic, plain
deltas: {links: [weak, metered], min_bytes: 256, max_bytes: 16MiB, wait: 500ms}
bases: {keep: 4, max_bytes: 64MiB, ttl: 2h}
link: {assume: metered}
gzip_comparison: {level: 6, cpu_share: 0.1}
limits: {request: 64MiB, ratio: 200, layers: 4, headers: 32KiB}
timeouts: {connect: 10s, first_byte: 300s, idle: 600s}
drain: 30s                                              # grace after SIGTERM
sessions: {max: 100000}
forwarded: off                                          # off | forwarded | x-forwarded; trusted_proxies: [CIDR, ...]
"""


def check(tmp_path, document, **environment: str):
    file = tmp_path / "c.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return packhorse("check-config", str(file), environment=environment, cwd=tmp_path)


def shown(tmp_path, document, *arguments: str, **environment: str):
    file = tmp_path / "c.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    done = packhorse("show-config", "--config", str(file), "--json", *arguments, environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told.get("settings", told)


def test_the_example_of_the_contract(tmp_path):
    """the YAML of section 10 is valid, and says the defaults"""
    assert check(tmp_path, EXAMPLE).returncode == 0
    mine, defaults = shown(tmp_path, EXAMPLE), shown(tmp_path, GOOD)
    for section in (
        "listen",
        "admin",
        "deltas",
        "bases",
        "link",
        "gzip_comparison",
        "limits",
        "timeouts",
        "drain",
        "forwarded",
    ):
        assert mine[section] == defaults[section], section
    assert mine["sessions"]["max"] == defaults["sessions"]["max"] == 100_000


UNKNOWN = [
    ({"delta": {}}, "delta", "deltas"),
    ({"deltas": {"min_byte": 1}}, "min_byte", "min_bytes"),
    ({"routes": [{"name": "r", "match": "/", "upstream": "http://h:1", "stripprefix": True}]}, "stripprefix", "strip_prefix"),
    ({"admin": {"lissten": "x"}}, "lissten", "listen"),
    ({"link": {"asume": "weak"}}, "asume", "assume"),
    ({"timeouts": {"first-byte": "1s"}}, "first-byte", "first_byte"),
]


def test_unknown_keys(tmp_path):
    """unknown keys are errors that name the key and the nearest known one."""
    for document, unknown, nearest in UNKNOWN:
        done = check(tmp_path, {**GOOD, **document})
        assert done.returncode == 2, unknown
        said = done.stdout + done.stderr
        assert unknown in said
        assert nearest in said


WRONG = [
    {"deltas": {"min_bytes": -1}}, {"deltas": {"wait": "soon"}}, {"deltas": {"links": ["bad"]}}, {"bases": {"keep": 0}}, {"bases": {"ttl": "2 fortnights"}},
    {"store": {"kind": "postgres"}}, {"link": {"assume": "fast"}}, {"gzip_comparison": {"level": 10}}, {"gzip_comparison": {"cpu_share": 2}},
    {"limits": {"ratio": 0}}, {"forwarded": "maybe"}, {"listen": "nonsense"}, {"routes": []}, {"routes": [{"name": "r", "upstream": "nonsense"}]},
    {"routes": [{"name": "r", "match": "v1", "upstream": "http://h:1"}]}, {"routes": [{"name": "r", "upstream": "http://h:1", "kind": "x"}]},
    {"routes": [{"name": "a", "upstream": "http://h:1"}, {"name": "b", "upstream": "http://h:2"}]},
    {"routes": [{"name": "a", "upstream": "http://h:1"}, {"name": "a", "match": "/x", "upstream": "http://h:2"}]},
    {"tls": {"certificate": "/nonexistent.pem", "key": "/nonexistent.pem"}}, {"trusted_proxies": ["nonsense"]}, {"link": {"networks": [{"cidr": "x", "link": "weak"}]}},
    {"listen": "127.0.0.1:8081"},
]  # fmt: skip


def test_wrong_values(tmp_path):
    """`check-config` ... 2 with the key and what was expected"""
    for document in WRONG:
        done = check(tmp_path, {**GOOD, **document})
        assert done.returncode == 2, document
        said = done.stdout + done.stderr
        assert next(iter(document)) in said, (document, said)
        assert "Traceback" not in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "5",
        "a: b: c",
        "a: [",
        "\x00",
        "listen: *x",
        "- a\n- b",
        "{a: 1, a: 2}",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_files_that_are_no_settings(tmp_path, text):
    """YAML, validated by one schema"""
    done = check(tmp_path, text)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_environment_in_values(tmp_path):
    """`${NAME}` reads the environment"""
    document = {"routes": [{"name": "r", "match": "/", "upstream": "http://${UP_HOST}:9000/${UP_PATH}"}], "drain": "${GRACE}"}
    settings = shown(tmp_path, document, UP_HOST="127.0.0.1", UP_PATH="x", GRACE="7s")
    assert settings["routes"][0]["upstream"] == "http://127.0.0.1:9000/x"
    assert settings["drain"] in (7, 7.0, "7s")
    done = check(tmp_path, document)
    assert done.returncode == 2
    assert "UP_HOST" in done.stdout + done.stderr


def test_a_variable_cannot_change_the_shape(tmp_path):
    """`${NAME}` reads the environment: a value, not YAML"""
    document = {"routes": [{"name": "r", "match": "/", "upstream": "${UP}"}]}
    done = check(tmp_path, document, UP="http://127.0.0.1:1\nadmin: {listen: 0.0.0.0:1}")
    assert done.returncode == 2


def test_precedence(tmp_path):
    """Precedence: command line, `PACKHORSE_*` environment, file, defaults."""
    document = {**GOOD, "listen": "127.0.0.1:1001", "bases": {"keep": 2}}
    assert shown(tmp_path, GOOD)["listen"] == "127.0.0.1:8080"
    assert shown(tmp_path, document)["listen"] == "127.0.0.1:1001"
    assert shown(tmp_path, document, PACKHORSE_LISTEN="127.0.0.1:1002")["listen"] == "127.0.0.1:1002"
    assert (
        shown(tmp_path, document, "--listen", "127.0.0.1:1003", PACKHORSE_LISTEN="127.0.0.1:1002")["listen"] == "127.0.0.1:1003"
    )
    assert shown(tmp_path, document, PACKHORSE_BASES__KEEP="9")["bases"]["keep"] == 9
    done = check(tmp_path, document, PACKHORSE_BASES__KEPT="9")
    assert done.returncode == 2
    assert "PACKHORSE_BASES__KEPT" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("1KiB", 1024),
        ("16MiB", 16 * 2**20),
        ("262144", 262144),
        (262144, 262144),
        ("1.5MB", 1_500_000),
        ("1 GiB", 2**30),
        ("64kb", 64_000),
        ("0", 0),
    ],
)
def test_sizes(tmp_path, given, meant):
    """Sizes and times take units or plain numbers (bytes, seconds)."""
    settings = shown(tmp_path, {**GOOD, "deltas": {"max_bytes": given, "min_bytes": 0}})
    assert _number(settings["deltas"]["max_bytes"]) == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), (7, 7), (0.25, 0.25), ("90", 90), ("1d", 86400)],
)
def test_times(tmp_path, given, meant):
    """Sizes and times take units or plain numbers (bytes, seconds)."""
    assert _number(shown(tmp_path, {**GOOD, "drain": given})["drain"]) == meant


def _number(value) -> float:
    """A number, whether it is shown plain or with a unit."""
    if isinstance(value, (int, float)):
        return value
    units = {
        "KiB": 2**10,
        "MiB": 2**20,
        "GiB": 2**30,
        "MB": 10**6,
        "kB": 1000,
        "KB": 1000,
        "ms": 0.001,
        "s": 1,
        "m": 60,
        "h": 3600,
        "d": 86400,
        "B": 1,
        "": 1,
    }
    digits = value.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    return float(digits) * units[value[len(digits) :].strip()]


@pytest.mark.parametrize("spelled", ["off", '"off"', "'off'", "forwarded", "x-forwarded", "false", "no"])
def test_on_and_off(tmp_path, spelled):
    """YAML reads bare `on` and `off` as booleans: the schema takes both spellings everywhere (`forwarded: off`)."""
    text = yaml.safe_dump(GOOD) + f"forwarded: {spelled}\n"
    assert check(tmp_path, text).returncode == 0
    text = yaml.safe_dump(GOOD) + 'log: {access: "off"}\n'
    assert check(tmp_path, text).returncode == 0
    text = yaml.safe_dump(GOOD) + "log: {access: on}\nadmin: {listen: off}\n"
    assert check(tmp_path, text).returncode == 0
    text = yaml.safe_dump(GOOD).rstrip() + "\n  strip_prefix: on\n"
    assert check(tmp_path, text).returncode == 0


# ---------------------------------------------------------------- routes


def test_routes_match_whole_segments_longest_first(up, second):
    """Routes match whole segments of the raw path, longest first; the prefix is kept"""
    routes = [
        {"name": "root", "match": "/", "upstream": up.url},
        {"name": "a", "match": "/a", "upstream": second.url},
        {"name": "ab", "match": "/a/b/", "upstream": up.url + "/deep"},
    ]
    with gateway(up, routes=routes) as gw:
        for target, where, arrives in [
            ("/a", second, "/a"), ("/a/", second, "/a/"), ("/a/c", second, "/a/c"), ("/ab", up, "/ab"), ("/a/b", up, "/deep/a/b"), ("/a/b/", up, "/deep/a/b/"),
            ("/a/b/c", up, "/deep/a/b/c"), ("/a/bc", second, "/a/bc"), ("/A", up, "/A"), ("/a?x=/a/b", second, "/a"), ("/%61", up, "/%61"), ("/a%2Fb", up, "/a%2Fb"),
            ("//a", up, "//a"),
        ]:  # fmt: skip
            where.at(arrives, text_reply(f"{arrives} there"))
            assert get(gw, target).body == f"{arrives} there".encode(), target


def test_strip_prefix(up, gw):
    """the prefix is kept unless `strip_prefix: true`; the upstream URL's own path comes before it"""
    for target, arrives in [
        ("/strip/a/b?c=d", "/a/b"),
        ("/strip", "/"),
        ("/strip/", "/"),
        ("/strip/a%2520b", "/a%2520b"),
        ("/strip/%25", "/%25"),
        ("/strip//x", "//x"),
    ]:
        up.at(arrives, text_reply("there " + arrives))
        assert get(gw, target).body == f"there {arrives}".encode(), target


RAW_TARGETS = [
    "/echo?b=2&a=1&b=3&uploads&sig=%E9%FF&s=1;2&q=hello%20world&e=", "/v1x/files/a%2Fb/content", "/r/a%2520b", "/r/%25", "/r/a%2fb", "/r/x?%zz",
    "/r/é".encode().decode("latin-1"), "/r/a'b", "/r/[x]", "/r/a|b?c|d", "/r/{x}", "/r/a;b=c", "/r/?", "/r/??x", "/r/a+b?c+d", "/r/~x", "/r/:x@y!$&*(),=", "//evil.example/admin",
    "/r//double///slash", "/r/%", "/r/%zz", "/r/x?a=%", "/r/\"q\"", "/r/a\\b", "/r/x?u=http://evil.example/#", "/r/^`", "/r/<x>",
]  # fmt: skip


@pytest.mark.parametrize("target", RAW_TARGETS)
def test_targets_are_byte_faithful(up, gw, target):
    """Byte-faithful means everything but the case of field names and the proxy fields"""
    path = target.split("?")[0]
    up.at(path, text_reply("fine"))
    response = get(gw, target)
    if response.status == 400:
        return
    assert response.status == 200
    assert up.last(path).target == target.encode("latin-1")


@pytest.mark.parametrize("target", ["/a/../../etc/passwd", "/plain/../v1/x", "/a/./b", "/plain/%2e%2e/x", "/..", "/a/..;/b"])
def test_dot_segments_do_not_leave_a_route(up, gw, target):
    """Routes match whole segments of the raw path: what the upstream could read as another path is passed as it is or refused."""
    path = up.at(target, text_reply("fine"))
    response = get(gw, target)
    if response.status == 200:
        assert up.last(path).target == target.encode()
    else:
        assert response.status in (400, 404)


def test_absolute_form(up, gw):
    """absolute-form targets; hostile `Host`: only configured upstreams are contacted"""
    path = up.at(fresh(), text_reply("fine"))
    for authority in ("evil.example", "gw:99999", "user:pw@evil.example", "169.254.169.254"):
        response = get(gw, f"http://{authority}{path}")
        assert response.status in (200, 400), authority
        if response.status == 200:
            assert up.last(path).target == path.encode()
            assert up.last(path).value("host") == up.authority.encode()


@pytest.mark.parametrize("host", ["good/../x?y#z", "evil@gw", "", "gw:99999", "a b", "[::1", "\xff", "x" * 3000])
def test_hostile_hosts(up, gw, host):
    """hostile `Host`"""
    path = up.at(fresh(), text_reply("fine"))
    response = ask(gw, "GET", path, [("Host", host)])
    assert response.status in (200, 400)
    if response.status == 200:
        assert up.last(path).value("host") == up.authority.encode()


def test_header_order_duplicates_and_bytes(up, gw):
    """Byte-faithful means everything but the case of field names and the proxy fields `Via` and `Forwarded`/`X-Forwarded-*` (off by default)"""
    sent = [
        ("X-B", "1"), ("X-A", "2"), ("x-b", "3"), ("X-Empty", ""), ("X-Tab", "a\tb"), ("X-Comma", "a ,b,  c"), ("User-Agent", "curl"), ("Accept", "*/*;q=0.1"),
        ("Authorization", "Bearer a.b"), ("Cookie", "a=1; b=2"), ("X-B", "4"), ("X-Quote", '"\\""'),
    ]  # fmt: skip
    back = [
        ("Set-Cookie", "a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
        ("X-B", "1"),
        ("Set-Cookie", "b=2"),
        ("x-b", "2"),
        ("Server", "up"),
        ("Date", "Wed, 21 Oct 2026 07:28:00 GMT"),
    ]
    path = up.at(fresh("/plain"), text_reply("fine", *back))
    response = ask(gw, "GET", path, sent)
    got = [
        (key.decode().lower(), value.decode("latin-1"))
        for key, value in up.last(path).fields
        if key.lower() not in (b"host", b"via")
    ]
    assert got == [(key.lower(), value) for key, value in sent]
    came = [
        (key.decode().lower(), value.decode())
        for key, value in response.fields
        if key.lower() not in (b"via", b"content-length", b"connection")
    ]
    assert came == [("content-type", "text/plain; charset=utf-8"), *[(key.lower(), value) for key, value in back]]
    assert not [n for n in up.last(path).names() if n.startswith(("x-forwarded", "forwarded"))]


def test_nothing_is_invented(up, gw):
    """the client invents `Accept`, `Accept-Encoding`, `User-Agent`, `Content-Type`: the gateway does not"""
    for prefix in ("", "/plain", "/v1"):
        path = up.at(fresh(prefix), text_reply("fine"))
        ask(gw, "POST", path, [], b"x")
        assert set(up.last(path).names()) <= {"host", "content-length", "via"}


@pytest.mark.parametrize("value", [b"caf\xe9", b"\xff\xfe", "始".encode(), b"\x80"])
def test_opaque_bytes(up, gw, value):
    """Header bytes that are not UTF-8 are passed unchanged or refused with a problem, never silently altered."""
    path = up.at(fresh(), b"HTTP/1.1 200 OK\r\nX-A: " + value + b"\r\nContent-Length: 2\r\n\r\nok")
    response = ask(gw, "GET", path, [(b"X-A", value)])
    if response.status == 200:
        assert response.value("x-a") == value
        assert up.last(path).value("x-a") == value
    else:
        assert response.status in (400, 502)


def test_hop_by_hop(up, gw):
    """A01: hop-by-hop fields including those `Connection` names, both directions"""
    path = up.at(
        fresh(), text_reply("fine", ("Connection", "x-down"), ("X-Down", "1"), ("Keep-Alive", "timeout=5"), ("X-Stay", "1"))
    )
    sent = [
        ("Connection", "X-Hop, keep-alive"), ("connection", "x-other"), ("X-Hop", "1"), ("X-Other", "1"), ("X-End", "2"), ("Keep-Alive", "300"), ("Proxy-Connection", "x"),
        ("Proxy-Authorization", "Basic x"), ("Upgrade", "h2c"),
    ]  # fmt: skip
    response = ask(gw, "GET", path, sent)
    names = set(up.last(path).names())
    assert not names & {"x-hop", "x-other", "connection", "keep-alive", "proxy-connection", "upgrade", "te"}
    assert "x-end" in names
    assert "x-down" not in response.names()
    assert "keep-alive" not in response.names()
    assert "x-stay" in response.names()


def test_connection_cannot_take_what_matters(up, gw):
    """A client cannot use `Connection` to have fields removed that the upstream's safety rests on, nor break the framing."""
    path = up.at(fresh(), text_reply("fine"))
    response = ask(
        gw,
        "POST",
        path,
        [("Connection", "content-length, host, transfer-encoding, content-type"), ("Content-Type", "a/b")],
        b"abc",
    )
    assert response.status in (200, 400)
    if response.status == 200:
        assert up.last(path).body == b"abc"
        assert up.last(path).value("host") == up.authority.encode()


@pytest.mark.parametrize("mode", ["off", "forwarded", "x-forwarded"])
def test_forwarded(up, mode):
    """`forwarded: off` # off | forwarded | x-forwarded; trusted_proxies: [CIDR, ...]"""
    claims = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6;proto=https"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil"),
    ]
    with gateway(up, forwarded=mode) as gw:
        path = up.at(fresh(), text_reply("fine"))
        get(gw, path, [("Host", "gw.local")])
        names = set(up.last(path).names())
        assert ("forwarded" in names) is (mode == "forwarded")
        assert ("x-forwarded-for" in names) is (mode == "x-forwarded")
        if mode == "forwarded":
            assert b"127.0.0.1" in up.last(path).value("forwarded")
        if mode == "x-forwarded":
            assert up.last(path).value("x-forwarded-for") == b"127.0.0.1"
            assert up.last(path).value("x-forwarded-host") == b"gw.local"
            assert up.last(path).value("x-forwarded-proto") == b"http"
        get(gw, path, claims)
        if mode != "off":
            sent = b" ".join(value for key, value in up.last(path).fields if b"forwarded" in key.lower())
            assert b"6.6.6.6" not in sent, "a peer that is not trusted was believed"


def test_forwarded_of_a_trusted_proxy(up):
    """trusted_proxies: [CIDR, ...]"""
    with gateway(up, forwarded="x-forwarded", trusted_proxies=["127.0.0.0/8"]) as gw:
        path = up.at(fresh(), text_reply("fine"))
        get(gw, path, [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Proto", "https")])
        assert up.last(path).value("x-forwarded-for").replace(b" ", b"") == b"203.0.113.9,127.0.0.1"
        assert up.last(path).value("x-forwarded-proto") == b"https"


def test_plain_is_proxied_only(up, gw):
    """`plain` (proxied only: nothing decoded, stored or recoded)"""
    import gzip

    body = gzip.compress(lines(100).encode())
    path = up.at(fresh("/plain"), text_reply(body, ("Content-Encoding", "gzip"), ("ETag", '"v"')))
    response = ask(gw, "POST", path, [("Accept-Encoding", "identity;q=0"), ("Content-Encoding", "gzip")], b"not gzip")
    assert (response.status, response.body, response.text("content-encoding"), response.text("etag")) == (
        200,
        body,
        "gzip",
        '"v"',
    )
    assert (up.last(path).body, up.last(path).value("content-encoding")) == (b"not gzip", b"gzip")


def test_json_is_never_touched(up, gw):
    """Unknown JSON fields, numbers and key order are never touched."""
    body = b'{"b":1e400,"a":0.1000,"a":1E2,"c":"\\/\\ud800","big":123456789012345678901234567890, "model" : "x"}'
    for prefix in ("", "/v1", "/anthropic", "/plain"):
        path = up.at(fresh(prefix), text_reply(body))
        assert ask(gw, "POST", path, [("Content-Type", "application/json"), ("x-api-key", "k")], body).body == body
        assert up.last(path).body == body


def test_http_proxy_of_the_environment_is_not_used(up):
    """H06: loopback is never proxied by surprise"""
    with gateway(
        up,
        environment={"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"},
    ) as gw:
        assert get(gw, up.at(fresh(), text_reply("fine"))).body == b"fine"
