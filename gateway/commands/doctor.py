"""``packhorse doctor``: tries what the settings name, and says of each whether it works and what to do.

Exit 0 when nothing failed (degraded is not failed), 1 when something did, 2 when the settings cannot be used.
"""

import asyncio
import sys
from argparse import ArgumentParser, Namespace

import orjson

from config.errors import ConfigError
from config.schema import Configuration, Route
from gateway.commands.findings import Finding
from gateway.commands.machine_probes import probe_machine
from gateway.commands.settings import add_settings_arguments, read_settings, report
from gateway.commands.upstream_probe import probe_route

PATIENCE = 10.0
"""Seconds a step of a probe may take, where ``timeouts.connect`` allows as much."""

_COLOURS = {"ok": "green", "degraded": "yellow", "failed": "bold red"}


def add_arguments(parser: ArgumentParser) -> None:
    """The command's arguments."""
    add_settings_arguments(parser)
    parser.add_argument("--json", action="store_true", help="findings as JSON")


def run(args: Namespace) -> int:
    """Probe, print, and answer the exit code."""
    try:
        configuration = read_settings(args).configuration
    except ConfigError as error:
        return report(error)
    findings = [*asyncio.run(probe_routes(configuration)), *probe_machine(configuration)]
    if args.json:
        sys.stdout.buffer.write(orjson.dumps(findings, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    elif sys.stdout.isatty():
        _print_table(findings)
    else:
        sys.stdout.write(plain(findings))
    return 1 if any(finding.state == "failed" for finding in findings) else 0


async def probe_routes(configuration: Configuration) -> list[Finding]:
    """The findings for all routes, in their order; probed side by side, and those that are reached alike once."""
    alike: dict[object, list[Route]] = {}
    for route in configuration.routes:
        alike.setdefault((route.upstream, route.host, route.tls), []).append(route)
    probes = []
    for first, *others in alike.values():
        timeouts = first.timeouts.over(configuration.timeouts)
        patience = min(PATIENCE, timeouts.connect) or PATIENCE
        probes.append(probe_route(first, patience=patience, head_limit=configuration.limits.headers, others=len(others)))
    return [finding for found in await asyncio.gather(*probes) for finding in found]


def plain(findings: list[Finding]) -> str:
    """A line a finding, the state first."""
    width = max(len(finding.what) for finding in findings)
    lines = []
    for finding in findings:
        advice = f" -> {finding.advice}" if finding.advice else ""
        lines.append(f"{finding.state:<8}  {finding.what:<{width}}  {finding.detail}{advice}\n")
    return "".join(lines)


def _print_table(findings: list[Finding]) -> None:
    from rich.console import Console  # here, because the command line imports every command and most need no table
    from rich.table import Table
    from rich.text import Text

    table = Table("what", "", "found", "what to do", box=None, header_style="dim")
    for finding in findings:
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(Text(finding.what), state, Text(finding.detail), Text(finding.advice))
    Console().print(table)
