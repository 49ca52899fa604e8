"""Contract, section 7: admin plane."""

import json
import signal
import time

import pytest
from contract.kit import Client, Cut, Holder, ask, closed_port, fresh, gateway, get, packhorse, text_reply, until
from support.texts import lines

ADMIN_PATHS = ["/metrics", "/livez", "/healthz", "/readyz", "/-/reload", "/-/drain", "/api/", "/api/sessions", "/console/"]


def test_own_listener(up, gw):
    """Its own listener ... Nothing of it on the data port."""
    for path in ADMIN_PATHS:
        up.at(path, text_reply("the upstream's"))
        assert get(gw, path).body == b"the upstream's", path
        assert ask(gw, "POST", path, [], b"").body == b"the upstream's", path


def test_default_addresses():
    """default `127.0.0.1:8081`"""
    shown = json.loads(packhorse("show-config", "--upstream", "http://127.0.0.1:1", "--json").stdout)
    settings = shown.get("settings", shown)
    assert settings["admin"]["listen"] == "127.0.0.1:8081"
    assert settings["listen"] == "127.0.0.1:8080"


def test_health_paths(up, gw):
    """`/livez` and `/healthz` (the process), `/readyz` (settings loaded and not draining: 200 ...)"""
    for path in ("/livez", "/healthz", "/readyz"):
        for method in ("GET", "HEAD"):
            response = ask(gw.admin, method, path)
            assert response.status == 200, (method, path)
        assert ask(gw.admin, "POST", path, [], b"").status == 405


def test_readyz_lists_what_is_degraded(up, gw):
    """and its JSON lists under `degraded` what does not work"""
    response = get(gw.admin, "/readyz")
    assert response.text("content-type").split(";")[0] == "application/json"
    assert json.loads(response.body)["degraded"] == []


def test_no_health_path_calls_an_upstream(up, gw):
    """No health path ever calls an upstream."""
    before = up.connections, {path: len(log) for path, log in up.log.items()}
    for path in ("/livez", "/healthz", "/readyz", "/metrics"):
        for _ in range(3):
            get(gw.admin, path)
    assert (up.connections, {path: len(log) for path, log in up.log.items()}) == before


def test_health_works_where_the_upstream_does_not():
    """No health path ever calls an upstream."""
    with gateway("http://127.0.0.1:9") as gw:
        assert {gw.status(path) for path in ("/livez", "/healthz", "/readyz")} == {200}


def test_a_degraded_store_is_said(up, tmp_path):
    """its JSON lists under `degraded` what does not work, such as the store"""
    (tmp_path / "is-a-folder").mkdir()
    (tmp_path / "is-a-folder" / "x").write_text("x")
    with gateway(up, store={"kind": "sqlite", "path": "bases.sqlite3"}, folder=tmp_path) as gw:
        client = Holder(gw)
        path = up.at(fresh(), text_reply(lines(50)))
        assert client.get(path).status == 200
        assert json.loads(get(gw.admin, "/readyz").body)["degraded"] == []


def test_drain(up):
    """503 while draining while `/livez` stays 200; ... `POST /-/drain`"""
    with gateway(up, drain="3s") as gw:
        path = up.at(fresh(), text_reply("fine"))
        assert get(gw.admin, "/-/drain").status == 405
        assert get(gw, path).status == 200
        assert 200 <= ask(gw.admin, "POST", "/-/drain", [], b"").status < 300
        until(lambda: gw.status("/readyz") == 503)
        assert gw.status("/livez") == 200
        assert gw.status("/healthz") == 200
        assert "degraded" in json.loads(get(gw.admin, "/readyz").body)


@pytest.mark.parametrize("how", ["post", "signal"])
def test_reload(up, how):
    """`POST /-/reload` (also SIGHUP: validated, then swapped as a whole)"""
    with gateway(up) as gw:

        def reload() -> int:
            if how == "post":
                return ask(gw.admin, "POST", "/-/reload", [], b"").status
            gw.signal(signal.SIGHUP)
            time.sleep(0.6)
            return 0

        path = up.at(fresh(), text_reply(lines(100)))
        assert get(gw.admin, "/-/reload").status == 405
        assert get(gw, path, [("Accept-Encoding", "gzip")]).members("content-encoding") == ["gzip"]
        with Client(gw) as kept:
            assert kept.ask("GET", path).status == 200
            gw.rewrite(lambda document: document.__setitem__("deltas", {"min_bytes": 100_000}))
            assert reload() in (0, 200, 204)
            until(lambda: get(gw, path, [("Accept-Encoding", "gzip")]).members("content-encoding") == [])
            assert kept.ask("GET", path).status == 200, "a connection outlives the reload"
        assert gw.metrics().total("packhorse_config_last_reload_successful") == 1
        gw.rewrite(lambda document: document.__setitem__("deltas", {"min_bytes": 1, "nonsense": 1}))
        status = reload()
        assert status == 0 or 400 <= status < 600
        until(lambda: gw.metrics().total("packhorse_config_last_reload_successful") == 0)
        assert get(gw, path, [("Accept-Encoding", "gzip")]).members("content-encoding") == [], "half a reload"
        assert gw.status("/readyz") == 200
        gw.rewrite(lambda document: document.__setitem__("deltas", {"min_bytes": 10}))
        assert reload() in (0, 200, 204)
        until(lambda: gw.metrics().total("packhorse_config_last_reload_successful") == 1)
        assert get(gw, path, [("Accept-Encoding", "gzip")]).members("content-encoding") == ["gzip"]


def test_a_reload_keeps_the_bases(up):
    """swapped as a whole: sessions and bases outlive it"""
    from contract.kit import is_delta

    with gateway(up) as gw:
        path = up.at(fresh(), text_reply(lines(100)))
        client = Holder(gw)
        client.get(path)
        assert ask(gw.admin, "POST", "/-/reload", [], b"").status in (200, 204)
        up.at(path, text_reply(lines(104)))
        assert is_delta(client.get(path))


def test_a_reload_that_would_swap_the_routes(up, second):
    """validated, then swapped as a whole"""
    with gateway(up) as gw:
        path = fresh()
        up.at(path, text_reply("first"))
        second.at(path, text_reply("second"))
        assert get(gw, path).body == b"first"
        gw.rewrite(lambda document: document["routes"][0].__setitem__("upstream", second.url))
        assert ask(gw.admin, "POST", "/-/reload", [], b"").status in (200, 204)
        assert get(gw, path).body == b"second"


def test_other_than_loopback_wants_a_token(up, tmp_path):
    """other than loopback it wants a token"""
    import yaml

    file = tmp_path / "c.yaml"
    document = {"admin": {"listen": "0.0.0.0:8081"}, "routes": [{"name": "r", "match": "/", "upstream": up.url}]}
    file.write_text(yaml.safe_dump(document))
    done = packhorse("check-config", str(file))
    assert done.returncode == 2
    assert "token" in done.stderr + done.stdout
    document["admin"]["token"] = "a-token-of-some-length"
    file.write_text(yaml.safe_dump(document))
    assert packhorse("check-config", str(file)).returncode == 0


def test_the_token(up):
    """other than loopback it wants a token"""
    port = closed_port()
    with gateway(up, admin={"listen": f"0.0.0.0:{port}", "token": "a-token-of-some-length"}, wait=False) as gw:
        gw.admin = port
        until(lambda: gw.status("/livez") == 200, 20)
        for path in ("/metrics", "/api/", "/api/sessions"):
            assert get(port, path).status == 401, path
            assert get(port, path, [("Authorization", "Bearer wrong")]).status in (401, 403)
        assert ask(port, "POST", "/-/reload", [], b"").status == 401
        assert ask(port, "POST", "/-/drain", [], b"").status == 401
        assert gw.status("/readyz") == 200
        assert get(port, "/metrics", [("Authorization", "Bearer a-token-of-some-length")]).status == 200
        assert "a-token-of-some-length" not in gw.log


def test_api_is_json(up, gw):
    """`/api/` (sessions, quests, savings as JSON)"""
    for path in ("/api/", "/api/sessions"):
        response = get(gw.admin, path)
        assert response.status == 200, path
        assert response.text("content-type").split(";")[0] == "application/json"
        json.loads(response.body)


def test_the_api_shows_no_content_nor_keys(up, gw):
    """sessions as JSON: no text, keys or ids of anybody"""
    secret = "SECRET-text-of-a-user"
    client = Holder(gw, "SECRET-session", fields=[("x-api-key", "SECRET-key")])
    client.get(up.at(fresh(), text_reply(f"{secret}\n" * 50)))
    for path in ("/api/", "/api/sessions", "/metrics"):
        assert b"SECRET" not in get(gw.admin, path).body, path


def test_hostile_admin_requests(up, gw):
    """The admin listener answers what it does not know, and lives."""
    for target in (
        "/",
        "/../etc/passwd",
        "/api/../../etc/passwd",
        "/console/../../etc/passwd",
        "/console/%2e%2e/%2e%2e/etc/passwd",
        "//x",
        "/%00",
        "/api/" + "x" * 5000,
    ):
        assert get(gw.admin, target).status in (400, 403, 404, 302, 301, 200), target
        assert b"root:" not in get(gw.admin, target).body
    with Client(gw.admin) as client:
        client.send(b"\x00\x01\x02garbage\r\n\r\n")
        try:
            response = client.response()
            assert response.status == 400
            assert b"garbage" not in response.body
        except Cut:
            pass
    assert gw.status("/livez") == 200


def test_a_browser_cannot_be_made_to_reload(up, gw):
    """POST of a page of another origin (DNS rebinding, CSRF) to the admin port: at the least nothing of it is readable there."""
    response = get(gw.admin, "/metrics", [("Origin", "https://evil.example")])
    assert response.values("access-control-allow-origin") == []
