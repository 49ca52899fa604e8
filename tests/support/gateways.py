"""The gateway itself, by its own runner: in this process, or as ``python -m gateway serve`` in another one."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from support.channel import PATIENCE, eventually
from support.client import ask
from support.upstream import Upstream, closed_port

ROOT = Path(__file__).resolve().parents[2]


def settings(
    up: "Upstream | str | None" = None, *, kind: str = "prepare", route: dict[str, Any] | None = None, **overrides: Any
) -> dict[str, Any]:
    """A configuration for tests: one route ``r`` to ``up``, any port, memory store. ``route`` adds to the route."""
    document: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "store": {"kind": "memory"},
        "drain": "5s",
    }
    if up is not None:
        url = up if isinstance(up, str) else up.url
        document["routes"] = [{"name": "r", "match": "/", "upstream": url, "kind": kind, **(route or {})}]
    for key, value in overrides.items():
        document[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
    return document


@contextlib.asynccontextmanager
async def gateway_for(
    up: "Upstream | str | None" = None, *, kind: str = "prepare", route: dict[str, Any] | None = None, **overrides: Any
) -> AsyncIterator[Any]:
    """A running gateway: ``url``, ``port``, ``admin_url``. Its sections may be overridden: ``deltas={"min_bytes": 0}``."""
    from config.schema import Configuration
    from gateway.service import running

    configuration = Configuration.model_validate(settings(up, kind=kind, route=route, **overrides))
    async with running(configuration) as gateway:
        yield gateway


class GatewayProcess:
    """``url``, ``port``, ``admin_url`` as in-process; ``pid``, ``log`` (what it wrote), ``config`` (its file)."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, admin_port: int, config: Path, log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.admin_url = f"http://127.0.0.1:{admin_port}"
        self.config = config
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit(self, within: float = PATIENCE) -> int:
        async with asyncio.timeout(within):
            return await self.process.wait()

    def rss(self) -> int:
        """Resident bytes now."""
        return _status(self.pid, "VmRSS")

    def peak_rss(self) -> int:
        return _status(self.pid, "VmHWM")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


@contextlib.asynccontextmanager
async def gateway_process(
    up: "Upstream | str | None" = None,
    *,
    kind: str = "prepare",
    route: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
    wait_ready: bool = True,
    **overrides: Any,
) -> AsyncIterator[GatewayProcess]:
    """The same in a process of its own, ready when this returns. Its working directory is ``folder``."""
    with tempfile.TemporaryDirectory(prefix="ph") as made:
        folder = folder or Path(made)
        document = settings(up, kind=kind, route=route, **overrides)
        port, admin_port = closed_port(), closed_port()
        if "listen" not in overrides:
            document["listen"] = f"127.0.0.1:{port}"
        document["admin"]["listen"] = f"127.0.0.1:{admin_port}"
        config = Path(made) / "packhorse.yaml"
        config.write_text(yaml.safe_dump(document))
        log = Path(made) / "log"
        env = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", "serve", "--config", str(config), cwd=folder, env=env,
                stdout=output, stderr=output,
            )  # fmt: skip
        gateway = GatewayProcess(process, port, admin_port, config, log)
        try:
            if wait_ready:
                await ready(gateway)
            yield gateway
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def ready(gateway: GatewayProcess, within: float = 20.0) -> None:
    """Wait until ``/readyz`` says 200."""

    async def is_ready() -> bool:
        assert gateway.process.returncode is None, f"the gateway ended: {gateway.log}"
        try:
            return (await ask(gateway.admin_url, "GET", "/readyz")).status == 200
        except (OSError, EOFError):
            return False

    await eventually(is_ready, within)
