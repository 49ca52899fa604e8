from collections.abc import Callable
from pathlib import Path

import pytest
from support.certificates import Authority, authority

from config.loader import load

Refusal = Callable[..., list[str]]
ROUTES = "routes: [{name: all, upstream: http://u}]\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("admin: {listen: 0.0.0.0:8081}",
         "admin.listen: needs admin.token, because other machines reach it, given '0.0.0.0:8081'"),
        ("admin: {listen: '[::]:8081', token: ''}", "admin.token: expected a secret, but it is empty"),
        ("admin: {token: '  '}", "admin.token: expected a secret, but it is empty"),
        ("listen: localhost", "listen: expected host:port, [v6]:port or unix:/path, given 'localhost'"),
        ("admin: {listen: nowhere}", "admin.listen: expected host:port, [v6]:port or unix:/path, given 'nowhere'"),
        ("listen: 127.0.0.1:8081", "admin.listen: cannot listen where listen does, given '127.0.0.1:8081'"),
        ("listen: 0.0.0.0:8081", "admin.listen: cannot listen where listen does, given '127.0.0.1:8081'"),
        ("session: {headers: ['x y']}", "session.headers.0: expected the name of a header field, given 'x y'"),
        ("session: {headers: ['x:']}", "session.headers.0: expected the name of a header field, given 'x:'"),
        ("session: {headers: [a, Authorization]}", "session.headers.1: cannot carry a session id, given 'Authorization'"),
        ("session: {headers: [a, A]}", "session.headers.1: given twice, given 'A'"),
        ("cors: {origins: [app.example]}",
         "cors.origins.0: expected an origin such as https://app.example, or *, given 'app.example'"),
        ("cors: {origins: ['*', 'https://app.example/']}",
         "cors.origins.1: expected an origin such as https://app.example, or *, given 'https://app.example/'"),
        ("tls: {certificate: /no, key: /dev/null}", "tls.certificate: cannot be read: no such file or directory, given '/no'"),
        ("tls: {certificate: /dev/null, key: /dev/null}",
         "tls: expected a PEM certificate chain and its unencrypted PEM key"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(text: str, message: str, refusal: Refusal) -> None:
    assert refusal(ROUTES + text) == ["packhorse.yaml:2: " + message] or refusal(ROUTES + text) == [message]


@pytest.mark.parametrize(
    "text",
    [
        "admin: {listen: 0.0.0.0:8081, token: 0123456789abcdef-}",
        "admin: {listen: off}\nlisten: 127.0.0.1:8081",
        "admin: {listen: 'unix:/run/admin.sock'}",
        "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}",
        "cors: {origins: ['https://app.example', 'http://[::1]:3000']}",
        "store: {kind: memory, path: /dev/null/x}",
        "store: {kind: sqlite, path: /dev/null/x}",  # the traffic goes on without it, and /readyz says degraded
        "session: {headers: []}",
    ],
)
def test_what_does(text: str, settings_file: Callable[[str], Path]) -> None:
    load(settings_file(ROUTES + text), environ={}, overrides={})


def test_routes_tls_is_for_https(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nonsense")
    route = "routes: [{name: all, upstream: %s, tls: {%s}}]"
    assert refusal(route % ("http://u", "server_name: x")) == ["packhorse.yaml:1: routes.0.tls: is for https upstreams only"]
    assert "routes.0.tls.ca: cannot be read: no such file" in refusal(route % ("https://u", "ca: /no"))[0]
    assert "routes.0.tls.ca: expected PEM certificates" in refusal(route % ("https://u", f"ca: {tmp_path}/bad.pem"))[0]


def test_a_certificate_and_its_key(made: Authority, settings_file: Callable[[str], Path], refusal: Refusal) -> None:
    chain, key = made.certificate("localhost")
    _, other = made.certificate("elsewhere.example")
    good = settings_file(f"{ROUTES}tls: {{certificate: {chain}, key: {key}}}")
    configuration = load(good, environ={}, overrides={})
    assert configuration.tls is not None
    assert configuration.tls.certificate == chain
    wrong = refusal(f"{ROUTES}tls: {{certificate: {chain}, key: {other}}}")
    assert "packhorse.yaml:2: tls.key: is not the key of tls.certificate" in wrong[0]
    swapped = refusal(f"{ROUTES}tls: {{certificate: {key}, key: {chain}}}")
    assert swapped == ["packhorse.yaml:2: tls: expected a PEM certificate chain and its unencrypted PEM key"]


def test_nothing_is_written(tmp_path: Path, settings_file: Callable[[str], Path]) -> None:
    load(settings_file(f"{ROUTES}store: {{kind: sqlite, path: {tmp_path}/deep/down/store.sqlite3}}"), environ={}, overrides={})
    assert [entry.name for entry in tmp_path.iterdir()] == ["packhorse.yaml"]
