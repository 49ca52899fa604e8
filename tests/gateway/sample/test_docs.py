"""docs/samples.md: its examples run, and its tables name every option and document."""

import argparse
import asyncio
import re
import shutil
from pathlib import Path

import pytest
from aiohttp import ClientSession

from gateway import tour
from gateway.replay import command as replay
from gateway.sample import command as sample_upstream
from gateway.sample.documents import DOCUMENTS, turns

PAGE = (Path(__file__).parents[3] / "docs" / "samples.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^curl (?:[^\n]*\n)(?: +[^\n]*\n)*", PAGE, re.M)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
async def test_example_runs(sample: ClientSession, example: str) -> None:
    line = example.replace("http://127.0.0.1:9000", str(sample._base_url).rstrip("/"))
    process = await asyncio.create_subprocess_shell(
        line.replace("curl", "curl -sS --noproxy '*' --fail-with-body", 1), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0, output
    assert output


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("module", [sample_upstream, replay, tour], ids=["sample-upstream", "replay", "tour"])
def test_every_option_is_in_the_tables(module) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    module.add_arguments(parser)
    for action in parser._actions:
        for option in action.option_strings:
            assert f"| `{option}" in PAGE


def test_every_document_is_in_the_table() -> None:
    for document in DOCUMENTS:
        assert f"| `/prepare/{document.name}` | {len(turns(document.name, 1))} |" in PAGE
