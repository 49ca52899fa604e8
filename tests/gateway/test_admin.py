"""The operator's listener: health that asks nobody, figures that agree, hashes instead of names, and a token where there is one."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from support.channel import eventually
from support.client import ask, connect
from support.gateways import gateway_for
from support.packs import pack_client
from support.scrapes import counted, scrape
from support.twins import growing, turn_of
from support.upstream import Reply, upstream

TOKEN = "an-operators-token"
OPEN = ["/livez", "/healthz", "/readyz"]
GUARDED = ["/metrics", "/api/sessions", "/api/savings"]


async def told(gateway: Any, path: str, **more: Any) -> Any:
    response = await ask(gateway.admin_url, "GET", path, **more)
    assert (response.status, response.text("content-type")) == (200, "application/json")
    return json.loads(response.body)


async def test_health_asks_no_upstream_and_says_what_it_is() -> None:
    async with upstream(Reply(500)) as up, gateway_for(up) as gateway:
        assert await told(gateway, "/livez") == await told(gateway, "/healthz") == {"status": "alive"}
        assert await told(gateway, "/readyz") == {"status": "ready", "degraded": []}
        assert not up.requests
        assert not up.peers


async def test_a_store_that_cannot_be_used_is_degraded_and_still_ready(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    store = {"kind": "sqlite", "path": str(tmp_path / "file" / "bases.sqlite3")}
    async with upstream(Reply(200, [], b"x")) as up, gateway_for(up, store=store) as gateway:
        ready = await told(gateway, "/readyz")
        assert ready["status"] == "ready"
        assert len(ready["degraded"]) == 1
        assert ready["degraded"][0].startswith("store: ")
        assert (await scrape(gateway)).total("packhorse_degraded") == 1
        assert (await ask(gateway, "GET", "/")).body == b"x", "the traffic goes on"


async def test_the_metrics_page_has_the_type_prometheus_asks_for() -> None:
    async with gateway_for("http://127.0.0.1:1") as gateway:
        response = await ask(gateway.admin_url, "GET", "/metrics")
        assert response.values("content-type") == [b"text/plain; version=0.0.4; charset=utf-8"]
        before = (await scrape(gateway)).samples
        after = (await scrape(gateway)).samples
        process = ("process_",)
        assert {k: v for k, v in before.items() if not k[0].startswith(process)} == {
            k: v for k, v in after.items() if not k[0].startswith(process)
        }, "scrapes count nothing"


# The token


async def test_without_a_token_loopback_is_open() -> None:
    async with gateway_for("http://127.0.0.1:1") as gateway:
        for path in OPEN + GUARDED:
            assert (await ask(gateway.admin_url, "GET", path)).status == 200


@pytest.mark.parametrize(
    "given",
    [
        None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \xe9", f"bearer2 {TOKEN}",
    ],
)  # fmt: skip
async def test_a_wrong_token_opens_nothing_but_health(given: str | None) -> None:
    fields = [] if given is None else [("Authorization", given)]
    async with gateway_for("http://127.0.0.1:1", admin={"token": TOKEN}) as gateway, connect(gateway.admin_url) as client:
        for path in [*GUARDED, "/console/", "/-/nothing"]:
            response = await client.ask("GET", path, fields)
            assert response.status == 401, path
            assert TOKEN.encode() not in response.body
        for path in ("/-/drain", "/-/reload"):
            assert (await client.ask("POST", path, fields)).status == 401
        for path in OPEN:
            assert (await client.ask("GET", path, fields)).status == 200
        assert not gateway.draining


@pytest.mark.parametrize(
    "path", ["/livez/../metrics", "/%6divez", "//livez", "/livez/", "/metrics?x=/livez", "/livez%2f..%2fmetrics"]
)
async def test_no_way_of_writing_a_path_goes_round_the_token(path: str) -> None:
    async with gateway_for("http://127.0.0.1:1", admin={"token": TOKEN}) as gateway:
        response = await ask(gateway.admin_url, "GET", path)
        assert response.status in (401, 404)
        assert b"packhorse_" not in response.body


async def test_the_token_opens() -> None:
    async with gateway_for("http://127.0.0.1:1", admin={"token": TOKEN}) as gateway:
        for path in OPEN + GUARDED:
            assert (await ask(gateway.admin_url, "GET", path, [("Authorization", f"Bearer {TOKEN}")])).status == 200
        assert (await ask(gateway.admin_url, "POST", "/-/drain", [("Authorization", f"Bearer {TOKEN}")])).status == 202


# What may not be done, and where


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/-/drain", 405), ("GET", "/-/reload", 405), ("HEAD", "/-/drain", 405), ("POST", "/metrics", 405),
        ("DELETE", "/api/sessions", 405), ("GET", "/", 404), ("GET", "/v1/chat/completions", 404), ("POST", "/prepare", 404),
    ],
)  # fmt: skip
async def test_wrong_methods_and_paths_do_nothing(method: str, path: str, status: int) -> None:
    async with upstream(Reply(200)) as up, gateway_for(up) as gateway:
        assert (await ask(gateway.admin_url, method, path)).status == status
        assert not gateway.draining
        assert not up.requests, "the admin plane forwards nothing"


@pytest.mark.parametrize("path", [*OPEN, *GUARDED, "/-/drain", "/-/reload", "/console/", "/api/"])
async def test_nothing_of_it_is_on_the_data_port(path: str) -> None:
    async with upstream(Reply(200, [], b"the upstream's")) as up, gateway_for(up) as gateway:
        for method in ("GET", "POST"):
            assert (await ask(gateway, method, path)).body == b"the upstream's"
        assert up.targets() == [path.encode()] * 2
        assert not gateway.draining
    async with upstream(Reply(200)) as up, gateway_for(up, route={"match": "/only"}) as gateway:
        assert (await ask(gateway, "GET", path)).status == 404


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /?needle HTTP/9.9\r\n\r\n",
        b"needle\r\n\r\n",
        b"GET /metrics?key=needle\xc2 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer needle\x00\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"needle" * 2000 + b"\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_not_quoted(raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Contract 6: none of the offending bytes in answer or log; on this listener they may be the operator's token."""
    async with gateway_for("http://127.0.0.1:1") as gateway, connect(gateway.admin_url) as client:
        await client.send(raw)
        client.finish()
        assert b"needle" not in await client.to_end()
    assert not [line for line in caplog.messages if "needle" in line]
    assert "needle" not in caplog.text


# Sessions and savings


async def test_sessions_are_shown_by_hash_alone() -> None:
    names = ["my-session-name", "another.one"]
    keys = [("Authorization", "Bearer sk-a-secret-key")]
    async with upstream(growing()) as up, gateway_for(up) as gateway:
        for name in names:
            async with pack_client(gateway, name, fields=keys) as client:
                for turn in (1, 2):
                    await turn_of(client, "prepare", turn)
        shown = await told(gateway, "/api/sessions")
        assert (shown["store"], shown["held"]["sessions"], len(shown["sessions"])) == ("memory", 2, 2)
        assert sum(each["bases"] for each in shown["sessions"]) >= shown["held"]["bases"] >= 4
        assert sum(each["base_bytes"] for each in shown["sessions"]) >= shown["held"]["base_bytes"] > 10_000
        text = json.dumps(shown)
        for secret in [*names, "sk-a-secret-key", *(hashlib.sha256(name.encode()).hexdigest()[:16] for name in names)]:
            assert secret not in text, "neither a name nor a hash that anybody could make of it"
        for each in shown["sessions"]:
            assert set(each) == {"session", "bases", "base_bytes", "idle_seconds"}
            assert 0 <= each["idle_seconds"] < 60
        found = await scrape(gateway)
        for gauge, value in (("bases", "bases"), ("base_bytes", "base_bytes"), ("sessions", "sessions")):
            assert found.total(f"packhorse_{gauge}") == shown["held"][value]


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 5), ("?limit=2", 2), ("?limit=0", 0), ("?limit=99999999", 5), ("?limit=-1", 5), ("?limit=x", 5), ("?limit=", 5)],
)
async def test_the_number_of_sessions_shown_is_bounded(query: str, count: int) -> None:
    async with upstream(growing()) as up, gateway_for(up) as gateway:
        for number in range(5):
            async with pack_client(gateway, f"s{number}") as client:
                await turn_of(client, "prepare", 1)
        assert len((await told(gateway, f"/api/sessions{query}"))["sessions"]) == count


@pytest.mark.parametrize("query", [b"?limit=" + b"9" * 5000, b"?limit=%C2%B2", b"?limit=%D9%A3"])
async def test_digits_that_are_no_numbers_are_no_fault(query: bytes) -> None:
    """``isdigit`` is true of superscripts, which ``int`` refuses; and of more digits than ``int`` reads."""
    async with gateway_for("http://127.0.0.1:1") as gateway:
        assert (await ask(gateway.admin_url, "GET", b"/api/sessions" + query)).status == 200


async def test_savings_are_the_counters_own_sums() -> None:
    async with upstream(growing()) as up, gateway_for(up) as gateway:
        async with pack_client(gateway, "s") as client:
            for turn in range(1, 6):
                await turn_of(client, "prepare", turn)
            sent, received = client.client.sent, client.client.received
        await counted(gateway, "packhorse_link_bytes_total", sent, direction="up")

        async def compared() -> bool:
            return (await scrape(gateway)).total("packhorse_gzip_compared_original_bytes_total", direction="down") > 0

        await eventually(compared)
        found = await scrape(gateway)
        savings = await told(gateway, "/api/savings")
        routes = {route["route"]: route for route in savings["routes"]}
        links = routes["r"]["links"]
        assert sum(link["body_bytes"] + link["head_bytes"] for link in links if link["direction"] == "down") == received
        assert sum(link["body_bytes"] + link["head_bytes"] for link in links if link["direction"] == "up") == sent
        for link in links:
            labels = {"route": "r", "direction": link["direction"], "link": link["link"]}
            assert link["original_bytes"] == found.total("packhorse_link_original_bytes_total", **labels)
            for part in ("body", "head"):
                assert link[f"{part}_bytes"] == found.total("packhorse_link_bytes_total", part=part, **labels)
        for each in routes["r"]["gzip_compared"]:
            labels = {"route": "r", "direction": each["direction"]}
            for size in ("original", "sent", "gzip"):
                assert each[f"{size}_bytes"] == found.total(f"packhorse_gzip_compared_{size}_bytes_total", **labels)
        for reason, count in routes["r"]["gzip_skipped"].items():
            assert count == found.total("packhorse_gzip_comparisons_skipped_total", route="r", reason=reason)
        down = next(link for link in links if link["direction"] == "down")
        assert down["body_bytes"] < down["original_bytes"] / 2, "and there was something to save"
