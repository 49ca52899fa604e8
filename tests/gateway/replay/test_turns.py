"""From files to turns."""

import itertools
import json
from pathlib import Path

import pytest

from gateway.replay.turns import Misuse, growing, load


def test_file_grows_at_paragraphs(tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("one\n\ntwo\ntwo\n\n\nthree", encoding="utf-8")
    turns = load(file)
    assert turns.texts == (b"one\n\n", b"one\n\ntwo\ntwo\n\n\n", b"one\n\ntwo\ntwo\n\n\nthree")
    assert turns.content_type == "text/markdown; charset=utf-8"


def test_file_without_paragraphs_grows_at_lines() -> None:
    assert growing("a\nb\nc\n", 40) == (b"a\n", b"a\nb\n", b"a\nb\nc\n")


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40, 99, 100, 500])
def test_turns_are_spread_and_the_last_is_whole(count: int) -> None:
    text = "".join(f"line {number} 会议\n" for number in range(99))
    cut = growing(text, count)
    assert len(cut) == min(count, 99)
    assert cut[-1] == text.encode()
    assert all(after.startswith(before) and len(after) > len(before) for before, after in itertools.pairwise(cut))


def test_one_line_is_one_turn() -> None:
    assert growing("no end of line", 40) == (b"no end of line",)


def test_folder_is_read_in_natural_order(tmp_path: Path) -> None:
    for name in ("v10.txt", "v2.txt", "v1.txt", ".hidden"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    assert load(tmp_path).texts == (b"v1.txt", b"v2.txt", b"v10.txt")
    assert load(tmp_path, 2).texts == (b"v1.txt", b"v2.txt")


MESSAGES = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "哪里？"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]},
    {"role": "tool", "tool_call_id": "a", "content": "1.50"},
    {"role": "assistant", "content": "there"},
    {"role": "user", "content": "when?"},
]


def test_chat_turns_are_the_histories_its_client_sent(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"model": "m", "messages": MESSAGES, "temperature": 0.5}), encoding="utf-8")
    turns = load(file)
    sent = [json.loads(text) for text in turns.texts]
    assert [len(request["messages"]) for request in sent] == [2, 4, 6]
    assert all(list(request) == ["model", "messages", "temperature"] for request in sent)
    assert "哪里？".encode() in turns.texts[0]
    assert turns.content_type == "application/json"


def test_list_of_messages_and_lines_of_messages_are_chats(tmp_path: Path) -> None:
    whole, lines = tmp_path / "chat.json", tmp_path / "chat.jsonl"
    whole.write_text(json.dumps(MESSAGES[:5]), encoding="utf-8")
    lines.write_text("\n".join(json.dumps(message) for message in MESSAGES[:5]), encoding="utf-8")
    assert load(whole).texts == load(lines).texts
    assert [len(json.loads(text)["messages"]) for text in load(whole).texts] == [2, 4]


def test_responses_input_is_a_chat(tmp_path: Path) -> None:
    items = [
        {"role": "user", "content": "a"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "b"},
    ]
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"input": items}), encoding="utf-8")
    assert [len(json.loads(text)["input"]) for text in load(file).texts] == [1, 3]


def test_lines_of_requests_are_turns(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(json.dumps({"messages": MESSAGES[:end]}) for end in (2, 4)), encoding="utf-8")
    assert [len(json.loads(text)["messages"]) for text in load(file).texts] == [2, 4]


@pytest.mark.parametrize("name", ["events.jsonl", "data.json", "broken.json"])
def test_other_json_grows_like_any_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text('{"a":1}\n{"a":2}\n', encoding="utf-8")
    assert load(file).texts == (b'{"a":1}\n', b'{"a":1}\n{"a":2}\n')


@pytest.mark.parametrize("case", ["missing", "empty", "binary", "empty folder"])
def test_what_cannot_be_replayed_says_what_was_expected(tmp_path: Path, case: str) -> None:
    path = tmp_path / "x"
    if case == "empty":
        path.touch()
    elif case == "binary":
        path.write_bytes(b"ab\xff")
    elif case == "empty folder":
        path.mkdir()
    with pytest.raises(Misuse) as caught:
        load(path)
    expected = {"missing": "cannot read", "empty": "is empty; expected", "binary": "byte 2", "empty folder": "one file"}
    assert expected[case] in str(caught.value)
