"""``packhorse tour``, what ``make run`` does: a gateway before the sample upstream, one meeting replayed, the books compared.

Everything is real: two listening sockets of the gateway, one of the upstream, and a client that knows only the wire.
"""

import argparse
import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from aiohttp import ClientSession
from rich.console import Console

from config.errors import ConfigError
from config.loader import load
from config.schema import Configuration
from ctxpack import ContextPack
from gateway import log as logs
from gateway.listeners import CannotListen
from gateway.replay.counted import Reader, differences, print_counted
from gateway.replay.measuring import Client, ReplayFailed, Turn
from gateway.replay.passes import run_all
from gateway.replay.report import codings_lines, print_table, saved_line
from gateway.sample.documents import turns as turns_of
from gateway.sample.serving import serving, stop_signal
from gateway.sample.upstream import application
from gateway.service import Gateway, running

_PORT = 8080
_STORE = Path("var/packhorse.sqlite3")
_PACE = 0.02
_DOCUMENT, _SEED = "meeting", 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; ``make run ONCE=1 UPSTREAM=... PORT=...`` gives them by environment."""
    parser.add_argument("--once", action="store_true", default=_said("ONCE"), help="end after the table (ONCE=1)")
    parser.add_argument(
        "--upstream",
        default=os.environ.get("UPSTREAM") or None,
        metavar="URL",
        help="put the gateway before this instead, and replay nothing (UPSTREAM=URL)",
    )
    parser.add_argument(
        "--port",
        default=os.environ.get("PORT") or str(_PORT),
        metavar="N",
        help=f"port for clients, with the admin plane on the next one (PORT=N; default: {_PORT})",
    )


def _said(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in ("", "0", "no", "false", "off")


def run(arguments: argparse.Namespace) -> int:
    """0 when all went well, 1 if a port is taken, a body was not proven or the counters disagree, 2 for misuse."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    if not str(arguments.port).isdecimal() or not 0 <= int(arguments.port) <= 65534:
        errors.print(f"tour: PORT={arguments.port}: expected a number from 0 to 65534; the one after it is for metrics")
        return 2
    if arguments.once and arguments.upstream:
        errors.print("tour: ONCE=1 ends after the replay, and with UPSTREAM= there is none; give one of the two")
        return 2
    try:
        return uvloop.run(_tour(arguments, Console(highlight=False), errors))
    except ConfigError as error:
        for problem in error.problems:
            errors.print(f"tour: {problem}")
        return 2
    except CannotListen as error:
        errors.print(f"tour: {error}\nOr choose another pair of ports: make run PORT=8090 (metrics are then on 8091).")
        return 1
    except ReplayFailed as error:
        errors.print(f"tour: {error}")
        return 1


def _configuration(port: int, upstream: str) -> Configuration:
    overrides = {
        "listen": f"127.0.0.1:{port}",
        "admin.listen": f"127.0.0.1:{port and port + 1}",
        "store.kind": "sqlite",
        "store.path": str(_STORE),
        "log.access": "off",
        "upstream": upstream,
    }
    return load(None, environ=os.environ, overrides=overrides)


async def _tour(arguments: argparse.Namespace, output: Console, errors: Console) -> int:
    stop = stop_signal()
    async with AsyncExitStack() as stack:
        upstream = arguments.upstream or await stack.enter_async_context(serving(application(_SEED, pace=_PACE)))
        configuration = _configuration(int(arguments.port), upstream)
        stack.callback(logs.start(configuration.log).stop)
        gateway = await stack.enter_async_context(running(configuration))
        for trouble in gateway.degraded():
            errors.print(f"tour: degraded: {trouble}")
        if not arguments.upstream and not await _replay(gateway, output, errors):
            return 1
        if not arguments.once:
            _say_where(output, gateway, upstream, sample=not arguments.upstream)
            await _until(stop, gateway)
    return 0


async def _replay(gateway: Gateway, output: Console, errors: Console) -> bool:
    """Replay the meeting, print what it cost and what the gateway counted; whether the two agree."""
    texts = [text.encode() for text in turns_of(_DOCUMENT, _SEED)]
    turns = [Turn(f"/prepare/{_DOCUMENT}?turn={number}", text) for number, text in enumerate(texts, 1)]
    async with ClientSession() as admin, Client(gateway.url) as client:
        reader = Reader(admin, gateway.admin_url)
        await reader.begin()
        rows = await run_all(client, turns, errors, reader.after)
    title = f"One meeting of {len(turns)} turns through {gateway.url}, each turn the whole record so far"
    print_table(output, rows, title)
    for line in codings_lines(rows):
        output.print(f"  {line}", style="dim", markup=False)
    proven = f"All {len(rows) * len(turns)} bodies were rebuilt by the client and are equal to the record, byte by byte."
    output.print(proven + "\n", soft_wrap=True)
    print_counted(output, rows, reader.forms)
    disagreeing = differences(rows, reader.forms)
    for sentence in disagreeing:
        errors.print(f"tour: the counters disagree with the client: {sentence}")
    if not disagreeing:
        output.print("Client and counters agree to the byte, heads included.")
    output.print(saved_line(rows) + "\n", soft_wrap=True, style="bold")
    return not disagreeing


async def _until(stop: asyncio.Event, gateway: Gateway) -> None:
    """Return at a signal, or when the gateway was told to drain."""
    waits = [asyncio.create_task(stop.wait()), asyncio.create_task(gateway.drained.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _say_where(output: Console, gateway: Gateway, upstream: str, *, sample: bool) -> None:
    lines = [
        f"clients   {gateway.url}    before {upstream}",
        f"metrics   {gateway.admin_url}/metrics",
        f"health    {gateway.admin_url}/readyz",
        "",
        *(_sample_lines(gateway.url) if sample else [f"  curl -i {gateway.url}/"]),
        f"  curl -s {gateway.admin_url}/metrics | grep packhorse_link_bytes_total",
        "",
        "Ctrl-C ends it.",
    ]
    output.print("\n".join(lines), markup=False, soft_wrap=True)


def _sample_lines(url: str) -> list[str]:
    """Lines to copy: the plain document, then two turns in a session, the second as a delta; and a stream of chat."""
    held = ContextPack.from_content(turns_of(_DOCUMENT, _SEED)[38]).digest
    ask = '{"model": "sample", "stream": true, "messages": [{"role": "user", "content": "When does the ferry come?"}]}'
    session = "-H 'Packhorse-Session: me' -H 'Packhorse-Debug: 1'"
    return [
        f"  curl -s '{url}/prepare/meeting?turn=40'",
        f"  curl -s {session} -H 'Accept-Encoding: ctxpack.delta.v1' '{url}/prepare/meeting?turn=39' >turn39.md",
        f"  curl -si {session} -H 'Accept-Encoding: ctxpack.delta.v1' \\",
        f"       -H 'Ctxpack-Base: {held}' '{url}/prepare/meeting?turn=40'",
        f"  curl -sN {url}/v1/chat/completions -H 'Content-Type: application/json' \\",
        f"       -d '{ask}'",
    ]
