"""The tool: `ctxpack`, `python -m ctxpack`, `ctxpack.pyz`. The seed's commands and options.

Exit status: 0 done; 1 failed (refused input, a check that does not hold, a file that cannot be read or written);
2 misuse (wrong options, a file or folder that is not there). Results go to the files named, tables and data to standard
output, notes and errors to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Dict, Iterable, Optional, Sequence

from ctxpack.delta import ContextPackDelta, apply_delta
from ctxpack.errors import ContextPackError
from ctxpack.files import Failure, Misuse, read, read_as, turns_of, write
from ctxpack.measure import dcz_compressor, measure
from ctxpack.minutes import TURNS, minutes
from ctxpack.pack import ContextPack
from ctxpack.selftest import run_checks
from ctxpack.split import common_prefix


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one command (default: that of `sys.argv`) and return the exit status. Raises `SystemExit` for wrong options."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except BrokenPipeError:
        # whoever read our output is gone; do not fail again when the interpreter flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Misuse as error:
        _note(f"ctxpack: {error}")
        return 2
    except Failure as error:
        _note(f"ctxpack: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return status


_OUT = "where the result goes"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ctxpack",
        description="Send a text as what changed since the last one. Every file can be - for standard input or output.",
    )
    commands = parser.add_subparsers(metavar="command", required=True)

    def command(name: str, run: Any, text: str, **files: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        for option, meaning in files.items():
            sub.add_argument(f"--{option}", required=True, metavar="FILE", help=meaning)
        sub.set_defaults(run=run)
        return sub

    def table(sub: argparse.ArgumentParser) -> argparse.ArgumentParser:
        sub.add_argument("--json", action="store_true", help="print JSON instead of a table")
        return sub

    table(command("selftest", _selftest, "check this installation"))
    command("pack", _pack, "make the pack of a text", input="the text, UTF-8", out=_OUT)
    command("delta", _delta, "make the delta between packs", base="the pack held", target="the new pack", out=_OUT)
    apply = command("apply", _apply, "rebuild a pack", base="the pack held", delta="the delta", out=_OUT)
    apply.add_argument("--check", metavar="FILE", help="a text the result must equal, else nothing is written")
    table(command("verify", _verify, "check a pack", pack="the pack"))
    measured = table(command("measure", _measure, "count what turns cost, sent in different ways"))
    text = "a folder or files, one text a turn; or one text that grows line by line (default: sample minutes)"
    measured.add_argument("--input", nargs="+", metavar="FILE", help=text)
    text = f"turns of the sample, or to cut one growing text into (default {TURNS})"
    measured.add_argument("--turns", type=_positive, default=TURNS, metavar="N", help=text)
    return parser


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 5 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!a} is not a number from 1 to 9999")
    return int(text)


def _selftest(options: argparse.Namespace) -> int:
    results = run_checks()
    failed = [result for result in results if result.problem]
    if options.json:
        print(json.dumps({"checks": len(results), "failed": {result.name: result.problem for result in failed}}))
    else:
        for result in results:
            print(f"{'FAILED' if result.problem else 'ok':<8}{result.name}{'  ' + result.problem if result.problem else ''}")
        print(f"{len(results) - len(failed)} of {len(results)} checks passed on Python {sys.version.split()[0]}")
    return 1 if failed else 0


def _pack(options: argparse.Namespace) -> int:
    pack = read_as(options.input, ContextPack.from_utf8)
    write(options.out, pack.to_bytes())
    _note(f"{_place(options.out)}: {_about(pack)}")
    return 0


def _delta(options: argparse.Namespace) -> int:
    _one_standard_input(options.base, options.target)
    base = read_as(options.base, ContextPack.from_bytes)
    target = read_as(options.target, ContextPack.from_bytes)
    delta = ContextPackDelta.between(base, target)
    write(options.out, delta.to_bytes())
    _note(
        f"{_place(options.out)}: keeps {delta.kept_chunks} of {len(base.chunk_bytes)} chunks, adds"
        f" {len(delta.new_chunks)}; {delta.byte_count} bytes for a text of {target.total_bytes}"
    )
    if delta.byte_count >= target.total_bytes:
        _note("this delta is no smaller than the text itself: send the text")
    return 0


def _apply(options: argparse.Namespace) -> int:
    _one_standard_input(options.base, options.delta, options.check)
    base = read_as(options.base, ContextPack.from_bytes)
    delta = read_as(options.delta, ContextPackDelta.from_bytes)
    expected = None if options.check is None else read(options.check)
    try:
        pack = apply_delta(base, delta)
    except ContextPackError as error:
        raise Failure(f"the delta does not apply, {error}. Ask for the full text; nothing was written") from error
    if expected is not None and pack.content_bytes != expected:
        same = common_prefix(pack.content_bytes, expected)
        raise Failure(
            f"what was rebuilt ({pack.total_bytes} bytes) is not {_place(options.check)} ({len(expected)} bytes):"
            f" they part at byte {same}. Nothing was written"
        )
    write(options.out, pack.to_bytes())
    _note(f"{_place(options.out)}: {_about(pack)}")
    if expected is not None:
        _note(f"identical to {_place(options.check)}, byte for byte")
    return 0


def _verify(options: argparse.Namespace) -> int:
    pack = read_as(options.pack, ContextPack.from_bytes)
    facts: Dict[str, Any] = {
        "digest": pack.digest,
        "chunks": len(pack.chunk_bytes),
        "total_bytes": pack.total_bytes,
        "byte_count": pack.byte_count,
    }
    if options.json:
        print(json.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name:<12} {value}")
        print("valid")
    return 0


def _measure(options: argparse.Namespace) -> int:
    turns: Iterable[bytes]
    if options.input is None:
        turns = (text.encode("utf-8") for text in minutes(options.turns))
        source = "sample minutes"
    else:
        _one_standard_input(*options.input)
        turns = turns_of(options.input, options.turns)
        source = " ".join(map(_place, options.input))
    try:
        count, rows = measure(turns)
    except ContextPackError as error:
        raise Failure(f"the input is refused, {error}. Content is UTF-8 text; convert it first") from error
    raw = rows[0].sent_bytes
    if options.json:
        table = [{"name": row.name, "bytes": row.sent_bytes, "saved_percent": round(row.saved(raw), 1)} for row in rows]
        print(json.dumps({"source": source, "turns": count, "rows": table}))
        return 0
    print(_printable(f"{source}, turns: {count}"))
    print(f"{'sent each turn':<38}{'bytes':>14}{'saved':>9}")
    for row in rows:
        saved = f"{row.saved(raw):+.1f}%" if raw and row is not rows[0] else "-"
        print(f"{row.label:<38}{row.sent_bytes:>14,}{saved:>9}")
    if dcz_compressor() is None:
        _note("no row for dcz: there is no zstd here (Python 3.14, or `pip install backports.zstd`)")
    return 0


def _one_standard_input(*paths: Optional[str]) -> None:
    if paths.count("-") > 1:
        raise Misuse("standard input can be read once only: give - for one file")


def _about(pack: ContextPack) -> str:
    return f"{len(pack.chunk_bytes)} chunks, text {pack.total_bytes} bytes, pack {pack.byte_count} bytes, {pack.digest}"


def _place(path: str) -> str:
    return "standard stream" if path == "-" else path


def _printable(text: str) -> str:
    """Return `text` so that any terminal can print it, whatever bytes a file name holds."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _note(text: str) -> None:
    print(text, file=sys.stderr)
