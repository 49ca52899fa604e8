"""``packhorse replay``: what would this file, folder or chat have cost, turn by turn, in each form?"""

import argparse
import asyncio
import json
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from gateway.listeners import CannotListen
from gateway.replay.forms import FORMS
from gateway.replay.loopback import loopback
from gateway.replay.measuring import Client, ReplayFailed, Turn
from gateway.replay.passes import run_all
from gateway.replay.report import Row, as_json, codings_lines, print_table, saved_line
from gateway.replay.turns import CUT, Misuse, Turns, load

_FIELD = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n\0]*)")
_OURS = ("accept-encoding", "ctxpack-base", "packhorse-session")

_ABOUT = """\
FILE|DIR: a text that grew (cut at its paragraphs), a folder of versions (in natural order), a chat request as .json
(every history up to a message of the assistant), or .jsonl with one message or one request a line.

Without --via it starts a gateway of its own, with default settings, before an upstream of its own, both on loopback.
With --via every turn is POSTed to URL and PATH, and what comes back is the document of the turn: the upstream there
must answer with the body it got, as /echo of `packhorse sample-upstream` does. Only what comes down is counted.
Every body is rebuilt as a client would and compared; the first that differs ends the replay with exit 1.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("source", type=Path, metavar="FILE|DIR", help="what to replay")
    parser.add_argument("--via", metavar="URL", help="a gateway that is already running, such as http://127.0.0.1:8080")
    parser.add_argument("--path", default="/echo", help="with --via: where the turns are POSTed (default: %(default)s)")
    parser.add_argument(
        "--answers",
        action="store_true",
        help="with --via: the upstream answers with texts of its own, the same for the same body; take those as the"
        f" documents. Every turn is asked {len(FORMS)} times, so mind what an answer costs",
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="sent with every request; repeatable"
    )
    parser.add_argument(
        "--turns", type=int, metavar="N", help=f"cut a file into N turns (default: {CUT}), or stop after N turns of others"
    )
    parser.add_argument("--json", action="store_true", help="machine-readable, turn by turn, instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Replay and print. 0 if every body was proven, 1 if one was not or did not come, 2 for misuse."""
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        headers = _headers(arguments.header)
        _check(arguments)
        turns = load(arguments.source, arguments.turns)
    except Misuse as error:
        errors.print(f"replay: {error}")
        return 2
    try:
        rows, through = asyncio.run(_measured(arguments, turns, headers, errors))
    except (ReplayFailed, CannotListen) as error:
        errors.print(f"replay: {error}")
        if arguments.via and not arguments.answers:
            errors.print("With --via, the upstream must answer with the body it got: see --path and --answers.")
        return 1
    if arguments.json:
        sys.stdout.write(json.dumps(as_json(rows, turns.what, through), ensure_ascii=False) + "\n")
        return 0
    output = Console(highlight=False)
    print_table(output, rows, f"{turns.what}, through {through}")
    for line in codings_lines(rows):
        output.print(f"  {line}", style="dim", markup=False)
    proven = f"All {len(rows) * len(turns.texts)} bodies were rebuilt and are equal to their texts, byte by byte."
    output.print(proven, soft_wrap=True)
    output.print(saved_line(rows), soft_wrap=True)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.turns is not None and arguments.turns < 1:
        raise Misuse("--turns: expected a number from 1 up")
    if arguments.via is None:
        if arguments.answers or arguments.path != "/echo":
            raise Misuse("--path and --answers say what is behind --via URL; without --via there is nothing to ask")
        return
    parts = urlsplit(arguments.via)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Misuse(f"--via {arguments.via!r}: expected http://host:port or https://host, as the gateway prints it")
    if not re.fullmatch(r"/[!-~]*", arguments.path):
        raise Misuse(f"--path {arguments.path!r}: expected a path as it goes on the wire, such as /echo")


def _headers(given: list[str]) -> dict[str, str]:
    headers = {}
    for text in given:
        match = _FIELD.fullmatch(text)
        if match is None:
            raise Misuse(f"--header {text!r}: expected 'Name: value'")
        if match[1].lower() in _OURS:
            raise Misuse(f"--header {match[1]}: the replay sets this one itself, in another way for every form")
        headers[match[1]] = match[2].rstrip()
    return headers


async def _measured(
    arguments: argparse.Namespace, turns: Turns, headers: dict[str, str], errors: Console
) -> tuple[list[Row], str]:
    async with AsyncExitStack() as stack:
        if arguments.via is None:
            url, asked = await stack.enter_async_context(loopback(turns))
            through = "a gateway of its own on loopback"
        else:
            url, through = arguments.via, f"{arguments.via.rstrip('/')}{arguments.path}"
            asked = [_posted(arguments, turns, text) for text in turns.texts]
        client = await stack.enter_async_context(Client(url, headers))
        return await run_all(client, asked, errors), through


def _posted(arguments: argparse.Namespace, turns: Turns, text: bytes) -> Turn:
    return Turn(arguments.path, None if arguments.answers else text, text, turns.content_type)
