"""The scene of test_prometheus.py: a gateway under every kind of traffic, Prometheus beside it, and what both then say.

Played once for all tests of that file. Two routes: ``prepare``, whose clients speak Context Pack on a metered link, and
``bare``, whose clients accept no coding at all, so that plain gzip would have been smaller and the loss must show.
"""

import asyncio
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.channel import PATIENCE, eventually
from support.client import ask, connect
from support.gateways import GatewayProcess, gateway_process
from support.packs import pack_client
from support.prometheus import Found, Prometheus, prometheus_server
from support.scrapes import Key, parse
from support.texts import document
from support.upstream import Peer, closed_port, each, upstream

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TOKEN = "a-token-of-this-test"
SECONDS = 6.0
"""How long the traffic goes on: a dozen scrapes."""
WINDOW = "2m"
"""What a dashboard's $__range and $__rate_interval are here: all of the scene."""


@dataclass
class Scene:
    """``before`` and ``after`` are the gateway's own page; ``panels`` and ``rules`` what Prometheus answered at the end."""

    before: dict[Key, float]
    after: dict[Key, float]
    page: bytes
    panels: dict[tuple[str, str], Found]
    """By the panel's title and the target's letter."""
    rules: dict[str, Found]
    """By the rule's name: a recorded series, or the value an alert compares."""
    counters: dict[str, float]
    """Prometheus's own sum of every counter, histograms' too."""
    health: list[str]
    """Errors of rules, as Prometheus sees them."""

    def total(self, name: str, **labels: str) -> float:
        """Sum over the gateway's last page."""
        wanted = set(labels.items())
        return sum(value for (sample, given), value in self.after.items() if sample == name and wanted <= given)

    def grown(self, name: str, **labels: str) -> float:
        """The same, less what was there at the first scrape."""
        wanted = set(labels.items())
        earlier = sum(value for (sample, given), value in self.before.items() if sample == name and wanted <= given)
        return self.total(name, **labels) - earlier


def dashboard_targets() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Title, panel and target of everything the dashboard asks."""
    dashboard = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    return [(p["title"], p, target) for p in dashboard["panels"] for target in p.get("targets", [])]


def rules() -> list[dict[str, str]]:
    """Every rule of deploy's file."""
    document = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def compared_value(expression: str) -> tuple[str, str, float]:
    """An alert's expression taken apart: what it looks at, the comparison and the bound."""
    for operator in (" == ", " > ", " < "):
        value, found, bound = expression.rpartition(operator)
        if found:
            return value, operator.strip(), float(bound)
    raise AssertionError(f"not a comparison with a number: {expression}")


def with_variables(expression: str) -> str:
    """A panel's query as Grafana would send it for all routes."""
    return expression.replace("$route", ".*").replace("$__rate_interval", WINDOW).replace("$__range", WINDOW)


def configuration(admin_url: str, token_file: Path) -> dict[str, Any]:
    """deploy's own Prometheus settings with this gateway's address, and a hurry."""
    settings: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    settings["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    settings["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in settings["rule_files"]]
    (job,) = settings["scrape_configs"]
    job["authorization"]["credentials_file"] = str(token_file)
    job["static_configs"] = [{"targets": [admin_url.removeprefix("http://")]}]
    return settings


async def _answer(peer: Peer, request: Any) -> None:
    path = request.target.decode()
    if path.endswith("/cut"):
        await peer.begin((("Content-Type", "text/plain"),))
        await peer.chunk(b"half of ")
        peer.reset()
    elif path.endswith("/slow"):
        await asyncio.sleep(1)
        await peer.respond(200, (), b"late")
    else:
        turn = int(path.rpartition("/")[2])
        await peer.respond(200, (("Content-Type", "text/plain; charset=utf-8"),), document(turn))


async def _traffic(gateway: GatewayProcess, start: int) -> None:
    """A conversation turn, and one exchange of every other kind."""
    async with pack_client(gateway, session="scene") as client:
        for turn in range(start, start + 4):
            assert (await client.ask("POST", f"/doc/{turn}", b"what was said " * 50)).content == document(turn)
    unknown = (
        ("Ctxpack-Base", f"sha256:{'0' * 64}"),
        ("Packhorse-Session", "scene"),
        ("Accept-Encoding", "ctxpack.delta.v1, gzip"),
    )
    await ask(gateway, "GET", "/doc/1", unknown)
    await ask(gateway, "GET", "/doc/1", (("Packhorse-Link", "normal"), ("Accept-Encoding", "gzip")))
    await ask(gateway, "GET", "/bare/1")
    await ask(gateway, "GET", "/doc/1", (("Packhorse-Session", "not a session!"),))
    await ask(gateway, "GET", "/gone/1")
    async with connect(gateway) as leaving:
        await leaving.send(b"GET /doc/slow HTTP/1.1\r\nHost: gw\r\n\r\n")
        await asyncio.sleep(0.05)
    await ask(gateway, "GET", "/doc/cut")


async def _page(gateway: GatewayProcess) -> bytes:
    response = await ask(gateway.admin_url, "GET", "/metrics", (("Authorization", f"Bearer {TOKEN}"),))
    assert response.status == 200, response.status
    assert response.text("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    return bytes(response.body)


async def _settled(gateway: GatewayProcess) -> bytes:
    """The page, once the exchanges that ended and their comparisons are all counted."""

    def ours(page: bytes) -> dict[Key, float]:
        return {key: value for key, value in parse(page.decode()).items() if key[0].startswith("packhorse_")}

    pages = [await _page(gateway)]

    async def quiet() -> bool:
        await asyncio.sleep(0.6)
        pages.append(await _page(gateway))
        return ours(pages[-1]) == ours(pages[-2])

    await eventually(quiet, PATIENCE)
    return pages[-1]


async def _scraped(prometheus: Prometheus, query: str, wanted: float) -> None:
    """Wait until Prometheus holds that value."""

    async def holds() -> bool:
        found = await prometheus.query(query, time.time())
        return bool(found) and float(found[0]["value"][1]) == wanted

    await eventually(holds, 3 * PATIENCE)  # Prometheus looks for targets every five seconds


async def play(folder: Path) -> Scene:
    """The whole scene."""
    token_file = folder / "token"
    token_file.write_text(TOKEN)
    async with upstream(each(_answer)) as up:
        routes = [
            {"name": "prepare", "match": "/", "upstream": up.url, "kind": "prepare"},
            {"name": "bare", "match": "/bare", "upstream": up.url, "kind": "prepare"},
            {"name": "gone", "match": "/gone", "upstream": f"http://127.0.0.1:{closed_port()}", "kind": "prepare"},
        ]
        async with (
            gateway_process(None, routes=routes, admin={"token": TOKEN}, folder=folder) as gateway,
            prometheus_server(configuration(gateway.admin_url, token_file)) as prometheus,
        ):
            return await _played(gateway, prometheus)


async def _played(gateway: GatewayProcess, prometheus: Prometheus) -> Scene:
    await _traffic(gateway, 1)
    before = await _settled(gateway)
    requests = "sum(packhorse_requests_total)"
    await _scraped(prometheus, requests, _sum(before, "packhorse_requests_total"))
    begun = time.time()
    round_number = 1
    while time.time() < begun + SECONDS:
        round_number += 4
        await _traffic(gateway, round_number)
        await asyncio.sleep(0.1)
    after = await _settled(gateway)
    await _scraped(prometheus, requests, _sum(after, "packhorse_requests_total"))
    await asyncio.sleep(1.1)  # two rounds of rules upon the last scrape
    return await _asked(prometheus, before, after)


def _sum(page: bytes, name: str) -> float:
    return sum(value for (sample, _), value in parse(page.decode()).items() if sample == name)


async def _asked(prometheus: Prometheus, before: bytes, after: bytes) -> Scene:
    now = time.time()
    panels: dict[tuple[str, str], Found] = {}
    for title, _, target in dashboard_targets():
        expression = with_variables(target["expr"])
        asked = prometheus.query(expression, now) if target["instant"] else prometheus.query_range(expression, now - 2, now)
        panels[title, target["refId"]] = await asked
    found: dict[str, Found] = {}
    for rule in rules():
        if "record" in rule:
            found[rule["record"]] = await prometheus.query(rule["record"], now)
            assert await prometheus.query(rule["expr"], now), rule["record"]
        else:
            found[rule["alert"]] = await prometheus.query(compared_value(rule["expr"])[0], now)
    last = parse(after.decode())
    names = {name for name, _ in last if name.startswith("packhorse_") and name.endswith(("_total", "_count", "_bucket"))}
    counters = {name: float((await prometheus.query(f"sum({name})", now))[0]["value"][1]) for name in names}
    groups = (await prometheus.get("rules"))["groups"]
    health = [f"{r['name']}: {r.get('lastError')}" for group in groups for r in group["rules"] if r["health"] != "ok"]
    return Scene(parse(before.decode()), last, after, panels, found, counters, health)


def values(found: Found) -> list[float]:
    """Last values of an answer."""
    return [float(series["value"][1] if "value" in series else series["values"][-1][1]) for series in found]


def by(found: Found, *labels: str) -> dict[tuple[str, ...], float]:
    """Last values by labels."""
    keys = [tuple(series["metric"].get(label, "") for label in labels) for series in found]
    return dict(zip(keys, values(found), strict=True))


def finite(found: Found) -> bool:
    """Whether any value is a number."""
    return any(math.isfinite(value) for value in values(found))
