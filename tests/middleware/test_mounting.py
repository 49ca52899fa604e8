"""docs/integration.md shows how to mount the middlewares in an application of one's own: the very text is run here."""

import re
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web

from ctxpack import ContextPack, ContextPackDelta, apply_delta

DOC = Path(__file__).resolve().parents[2] / "docs" / "integration.md"


async def test_the_example_sends_deltas() -> None:
    (block,) = (
        found for found in re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL) if found.startswith("# mounted")
    )
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102  the document's own text
    runner = web.AppRunner(names["application"]())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fields = {"Accept-Encoding": "ctxpack.delta.v1", "Packhorse-Session": "one"}
    try:
        async with ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}", auto_decompress=False) as client:
            async with client.get("/prepare?turn=1", headers=fields) as first:
                base = ContextPack.from_utf8(await first.read())
            async with client.get("/prepare?turn=2", headers={**fields, "Ctxpack-Base": base.digest}) as second:
                assert second.headers["Content-Encoding"] == "ctxpack.delta.v1"
                rebuilt = apply_delta(base, ContextPackDelta.from_bytes(await second.read()))
        assert rebuilt.digest == second.headers["Ctxpack-Digest"]
        assert rebuilt.content.count("\n") == 80
    finally:
        await runner.cleanup()
