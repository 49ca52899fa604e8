"""Debian's own Prometheus, started against a gateway; queries by its HTTP API."""

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from support.channel import eventually
from support.client import ask
from support.upstream import closed_port

Found = list[dict[str, Any]]
"""Series as the API gives them: ``metric`` (labels), ``value`` or ``values``."""


class Prometheus:
    """A running server at ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def get(self, path: str, **parameters: str) -> Any:
        """``data`` of an API answer; what Prometheus refuses fails the test with its own words."""
        response = await ask(self.url, "GET", f"/api/v1/{path}?{urlencode(parameters)}")
        answer = json.loads(response.body)
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        assert not answer.get("warnings"), answer["warnings"]
        return answer["data"]

    async def query(self, expression: str, at: float) -> Found:
        """An instant vector."""
        data = await self.get("query", query=expression, time=f"{at:.3f}")
        assert data["resultType"] == "vector", expression
        return list(data["result"])

    async def query_range(self, expression: str, start: float, end: float, step: float = 1.0) -> Found:
        """A matrix."""
        found = await self.get("query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=str(step))
        return list(found["result"])


@contextlib.asynccontextmanager
async def prometheus_server(configuration: dict[str, Any], within: float = 30.0) -> AsyncIterator[Prometheus]:
    """Prometheus with that configuration and an empty database, ready when this returns."""
    program = shutil.which("prometheus")
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="ph") as folder:
        config = Path(folder) / "prometheus.yaml"
        config.write_text(yaml.safe_dump(configuration))
        address = f"127.0.0.1:{closed_port()}"
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                program, f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}",
                "--log.level=warn", stdout=output, stderr=output,
            )  # fmt: skip

        async def ready() -> bool:
            assert process.returncode is None, log.read_text()
            try:
                return (await ask(f"http://{address}", "GET", "/-/ready")).status == 200
            except (OSError, EOFError):
                return False

        try:
            await eventually(ready, within)
            yield Prometheus(f"http://{address}")
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    async with asyncio.timeout(10):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()
