"""``packhorse replay`` as it is called: through a gateway of its own, and through one that runs elsewhere."""

import argparse
import asyncio
import json
from pathlib import Path

import pytest

from ctxpack.minutes import minutes
from gateway.replay import command
from gateway.sample.serving import serving
from gateway.sample.upstream import application


def arguments(*given: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="replay")
    command.add_arguments(parser)
    return parser.parse_args([str(one) for one in given])


@pytest.fixture
def meeting(tmp_path: Path) -> Path:
    file = tmp_path / "meeting.md"
    file.write_text(list(minutes())[-1], encoding="utf-8")
    return file


def test_own_gateway_saves_and_proves(meeting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(arguments(meeting, "--json")) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    forms = {key: form["body_bytes"] for key, form in report["forms"].items()}
    assert report["turns"] == 40
    assert forms["packs"] > forms["raw"] > forms["gzip"] > forms["deltas-gzip"]
    assert forms["raw"] > forms["deltas"] > forms["deltas-gzip"]
    assert report["forms"]["deltas"]["codings"]["ctxpack.delta.v1"] >= 30
    assert "deltas + gzip: 40 turns" in captured.err


def test_table_for_people(meeting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(arguments(meeting, "--turns", 5)) == 0
    output = capsys.readouterr().out
    assert "a file that grows over 5 turns, through a gateway of its own on loopback" in " ".join(output.split())
    assert "All 25 bodies were rebuilt and are equal to their texts" in output


@pytest.mark.parametrize("kind", ["folder", "chat"])
def test_folders_and_chats(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    if kind == "folder":
        source = tmp_path
        for number, text in enumerate(list(minutes())[10:15]):
            (source / f"v{number}.md").write_text(text, encoding="utf-8")
    else:
        source = tmp_path / "chat.json"
        pairs = [[{"role": "user", "content": t}, {"role": "assistant", "content": t}] for t in list(minutes())[:5]]
        source.write_text(json.dumps({"messages": sum(pairs, [])}), encoding="utf-8")  # noqa: RUF017
    assert command.run(arguments(source, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["turns"] == 5


async def test_via_a_gateway_whose_upstream_echoes(stranger, meeting: Path, capsys) -> None:
    async with stranger([]) as url:
        status = await asyncio.to_thread(command.run, arguments(meeting, "--via", url, "--json", "--header", "X-Key: k"))
    assert status == 0
    assert json.loads(capsys.readouterr().out)["forms"]["deltas"]["codings"] == {"identity": 1, "ctxpack.delta.v1": 39}


async def test_via_an_upstream_that_answers_otherwise(stranger, meeting: Path, capsys) -> None:
    def answer_otherwise(request, answer) -> None:
        if "gzip" not in request.headers["Accept-Encoding"] and "ctxpack" not in request.headers["Accept-Encoding"]:
            answer.body = answer.body + b"!"

    async with stranger([], answer_otherwise) as url:
        status = await asyncio.to_thread(command.run, arguments(meeting, "--via", url))
    assert status == 1
    assert "turn 1, raw: the answer is not the text" in (said := capsys.readouterr().err)
    assert "--answers" in said


async def test_answers_of_an_upstream_with_texts_of_its_own(tmp_path: Path, capsys) -> None:
    pairs = [[{"role": "user", "content": t}, {"role": "assistant", "content": "so"}] for t in ("ferry?", "oily water?")]
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps({"model": "m", "messages": [*pairs[0], *pairs[1]]}), encoding="utf-8")
    async with serving(application()) as url:
        given = arguments(chat, "--via", url, "--path", "/v1/chat/completions", "--json")
        assert await asyncio.to_thread(command.run, given) == 1
        assert await asyncio.to_thread(command.run, arguments(*given_again(given))) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["forms"]["packs"]["codings"] == {"identity": 2}  # no gateway there: nothing is saved, and it says so


def given_again(given: argparse.Namespace) -> list[str]:
    return [str(given.source), "--via", given.via, "--path", given.path, "--json", "--answers"]


async def test_nobody_there_is_exit_1(meeting: Path, capsys) -> None:
    assert await asyncio.to_thread(command.run, arguments(meeting, "--via", "http://127.0.0.1:1")) == 1
    assert "no answer from http://127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["missing.md"], "cannot read"),
        (["{}", "--turns", "0"], "from 1 up"),
        (["{}", "--via", "localhost:8080"], "expected http://host:port"),
        (["{}", "--via", "http://a", "--path", "echo"], "expected a path"),
        (["{}", "--path", "/x"], "without --via"),
        (["{}", "--answers"], "without --via"),
        (["{}", "--header", "no colon"], "expected 'Name: value'"),
        (["{}", "--header", "accept-encoding: br"], "sets this one itself"),
    ],
)
def test_misuse_is_exit_2(meeting: Path, capsys: pytest.CaptureFixture[str], given: list[str], says: str) -> None:
    assert command.run(arguments(*[text.format(meeting) for text in given])) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
