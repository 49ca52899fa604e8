"""Debian's nginx as a real neighbour: a server block on a free port, in a folder of its own, with one worker."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from support.channel import eventually
from support.client import connect
from support.upstream import closed_port

BINARY = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@contextlib.asynccontextmanager
async def nginx(folder: Path, server: str) -> AsyncIterator[int]:
    """The port of an nginx whose one server has ``server`` as its body."""
    assert BINARY is not None
    port = closed_port()
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = folder / "nginx.conf"
    config.write_text(
        f"{user} daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;"
        f"events {{ worker_connections 256; }} http {{ access_log off; {temporary}"
        f"server {{ listen 127.0.0.1:{port}; {server} }} }}"
    )
    process = await asyncio.create_subprocess_exec(
        BINARY, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")
    )

    async def listens() -> bool:
        assert process.returncode is None, (folder / "error.log").read_text()
        with contextlib.suppress(OSError):
            async with connect(port):
                return True
        return False

    try:
        await eventually(listens)
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
