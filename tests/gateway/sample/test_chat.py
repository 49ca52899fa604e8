"""The three chat dialects, whole and streamed, over real sockets."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientSession

from gateway.sample.serving import serving
from gateway.sample.upstream import application

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
SCHEMA = {
    "type": "object",
    "properties": {"station": {"type": "string"}, "hours": {"type": "integer"}, "unit": {"enum": ["m", "ft"]}},
    "required": ["station", "hours", "unit"],
}
ARGUMENTS = {"station": "North gauge", "hours": 6, "unit": "m"}
QUESTION = "Where does oily water go?"
TOOL_QUESTION = "Please run read_tide for 'North gauge', 6 hours"


def request(path: str, question: str = QUESTION, *, tools: bool = False, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "sample", **more}
    if path == "/v1/responses":
        body["input"] = question
        tool = {"type": "function", "name": "read_tide", "parameters": SCHEMA}
    else:
        body["messages"] = [{"role": "user", "content": question}]
        tool = {"type": "function", "function": {"name": "read_tide", "parameters": SCHEMA}}
    if path == "/v1/messages":
        body.setdefault("max_tokens", 500)
        tool = {"name": "read_tide", "input_schema": SCHEMA}
    return body | ({"tools": [tool]} if tools else {})


def text_of(path: str, answer: Mapping[str, Any]) -> str:
    if path == "/v1/chat/completions":
        return answer["choices"][0]["message"]["content"]
    if path == "/v1/responses":
        return answer["output"][0]["content"][0]["text"]
    return answer["content"][0]["text"]


def call_of(path: str, answer: Mapping[str, Any]) -> tuple[str, Any]:
    if path == "/v1/chat/completions":
        function = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        return function["name"], json.loads(function["arguments"])
    if path == "/v1/responses":
        return answer["output"][0]["name"], json.loads(answer["output"][0]["arguments"])
    return answer["content"][0]["name"], answer["content"][0]["input"]


async def ask(client: ClientSession, path: str, body: object) -> dict[str, Any]:
    async with client.post(path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def stream(client: ClientSession, path: str, body: object) -> list[tuple[str | None, Any]]:
    async with client.post(path, json=body) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        blocks = (await answer.text()).split("\n\n")
    assert blocks.pop() == ""
    events = []
    for block in blocks:
        *name, data = block.split("\n")
        text = data.removeprefix("data: ")
        events.append((name[0].removeprefix("event: ") if name else None, text if text == "[DONE]" else json.loads(text)))
    return events


def assembled(path: str, events: list[tuple[str | None, Any]]) -> str:
    if path == "/v1/chat/completions":
        choices = [chunk["choices"][0]["delta"] for _, chunk in events if chunk != "[DONE]" and chunk["choices"]]
        calls = "".join(delta["tool_calls"][0]["function"]["arguments"] for delta in choices if delta.get("tool_calls"))
        return "".join(delta.get("content") or "" for delta in choices) or calls
    if path == "/v1/responses":
        return "".join(data["delta"] for _, data in events if data["type"].endswith(".delta"))
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    return "".join(delta.get("text", "") + delta.get("partial_json", "") for delta in deltas)


@pytest.mark.parametrize("path", PATHS)
async def test_answer_quotes_the_handbook_and_is_no_model(sample: ClientSession, path: str) -> None:
    answer = await ask(sample, path, request(path))
    assert "oily water into the yellow one" in text_of(path, answer)
    assert "no model" in text_of(path, answer)
    assert answer == await ask(sample, path, request(path))


@pytest.mark.parametrize("path", PATHS)
async def test_stream_says_the_same_as_the_whole(sample: ClientSession, path: str) -> None:
    whole = await ask(sample, path, request(path))
    assert assembled(path, await stream(sample, path, request(path, stream=True))) == text_of(path, whole)


@pytest.mark.parametrize("path", PATHS)
async def test_tool_named_in_the_question_is_called(sample: ClientSession, path: str) -> None:
    answer = await ask(sample, path, request(path, TOOL_QUESTION, tools=True))
    assert call_of(path, answer) == ("read_tide", ARGUMENTS)
    events = await stream(sample, path, request(path, TOOL_QUESTION, tools=True, stream=True))
    assert json.loads(assembled(path, events)) == ARGUMENTS


@pytest.mark.parametrize("path", PATHS)
async def test_tool_not_named_is_not_called(sample: ClientSession, path: str) -> None:
    assert "yellow" in text_of(path, await ask(sample, path, request(path, tools=True)))


@pytest.mark.parametrize(
    ("path", "choice"),
    [
        ("/v1/chat/completions", "required"),
        ("/v1/chat/completions", {"type": "function", "function": {"name": "read_tide"}}),
        ("/v1/responses", {"type": "function", "name": "read_tide"}),
        ("/v1/messages", {"type": "any"}),
        ("/v1/messages", {"type": "tool", "name": "read_tide"}),
    ],
)
async def test_tool_choice_is_obeyed(sample: ClientSession, path: str, choice: object) -> None:
    answer = await ask(sample, path, request(path, "6 hours at 'North gauge'", tools=True, tool_choice=choice))
    assert call_of(path, answer) == ("read_tide", ARGUMENTS)


async def test_openai_chat_stream_ends_with_usage_and_done(sample: ClientSession) -> None:
    body = request(PATHS[0], stream=True, stream_options={"include_usage": True})
    events = await stream(sample, PATHS[0], body)
    assert {name for name, _ in events} == {None}
    *chunks, usage, done = [data for _, data in events]
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    assert all(chunk["usage"] is None for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert all("usage" not in data for _, data in (await stream(sample, PATHS[0], request(PATHS[0], stream=True)))[:-1])


async def test_responses_stream_is_numbered_and_ends_with_usage(sample: ClientSession) -> None:
    events = await stream(sample, PATHS[1], request(PATHS[1], stream=True))
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert all(name == data["type"] for name, data in events)
    names = [name for name, _ in events]
    assert names[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert names[-1] == "response.completed"
    assert events[-1][1]["response"]["usage"]["output_tokens"] > 1


async def test_anthropic_stream_has_its_events_in_order(sample: ClientSession) -> None:
    names = [name for name, _ in await stream(sample, PATHS[2], request(PATHS[2], stream=True))]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[3:-3]) == {"content_block_delta"}


async def test_results_of_tools_are_read_back(sample: ClientSession) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_tide", "arguments": "{}"}}
    body = request(PATHS[0], TOOL_QUESTION, tools=True)
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2.7 metres"},
    ]
    assert "2.7 metres" in text_of(PATHS[0], await ask(sample, PATHS[0], body))

    body = request(PATHS[2], TOOL_QUESTION, tools=True)
    body["messages"] += [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read_tide", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "2.7 metres"}]},
    ]
    assert "2.7 metres" in text_of(PATHS[2], await ask(sample, PATHS[2], body))

    body = request(PATHS[1], tools=True)
    body["input"] = [
        {"role": "user", "content": [{"type": "input_text", "text": TOOL_QUESTION}]},
        {"type": "function_call", "call_id": "f1", "name": "read_tide", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "f1", "output": "2.7 metres"},
    ]
    assert "2.7 metres" in text_of(PATHS[1], await ask(sample, PATHS[1], body))


@pytest.mark.parametrize(
    ("path", "limit", "ended"),
    [
        (PATHS[0], {"max_tokens": 3}, lambda answer: answer["choices"][0]["finish_reason"] == "length"),
        (PATHS[1], {"max_output_tokens": 3}, lambda answer: answer["status"] == "incomplete"),
        (PATHS[2], {"max_tokens": 3}, lambda answer: answer["stop_reason"] == "max_tokens"),
    ],
)
async def test_limits_end_the_answer(sample: ClientSession, path: str, limit: dict[str, int], ended: Any) -> None:
    answer = await ask(sample, path, request(path, **limit))
    assert ended(answer)
    assert len(text_of(path, answer)) < 40


BAD = [
    (PATHS[0], b"{", "not JSON"),
    (PATHS[0], b"[]", "JSON object"),
    (PATHS[0], b'{"model":"m"}', "messages"),
    (PATHS[0], b'{"messages":[{"role":"user","content":"a"}]}', "model"),
    (PATHS[0], b'{"model":"m","messages":[{"role":"king","content":"a"}]}', "Invalid value"),
    (PATHS[0], b'{"model":"m","messages":[{"role":"tool","tool_call_id":"x","content":"a"}]}', "preceding message"),
    (PATHS[0], b'{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"x"}]}]}', "tool_call_id x"),
    (PATHS[0], b'{"model":"m","tools":[{}],"messages":[{"role":"user","content":"a"}]}', "tools[0]"),
    (PATHS[1], b'{"model":"m","input":[{"type":"function_call","call_id":"x"}]}', "No tool output found"),
    (PATHS[1], b'{"model":"m","input":"a","previous_response_id":"r"}', "stores no responses"),
    (PATHS[2], b'{"model":"m","messages":[{"role":"user","content":"a"}]}', "max_tokens"),
    (PATHS[2], b'{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":"a"}]}', "first message"),
    (
        PATHS[2],
        b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}',
        "unexpected `tool_use_id`",
    ),
]


@pytest.mark.parametrize(("path", "body", "says"), BAD)
async def test_bad_input_gets_the_error_of_its_dialect(sample: ClientSession, path: str, body: bytes, says: str) -> None:
    async with sample.post(path, data=body) as answer:
        assert answer.status == 400
        error = await answer.json()
    assert says in error["error"]["message"]
    assert error["error"]["type"] == "invalid_request_error"
    assert (error.get("type") == "error") == (path == "/v1/messages")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "deflate", "dcz"])
async def test_coded_request_is_415(sample: ClientSession, path: str, coding: str) -> None:
    async with sample.post(path, data=b"\x1f\x8b junk", headers={"Content-Encoding": coding}) as answer:
        assert answer.status == 415
        assert answer.headers["Accept-Encoding"] == "identity"
        assert coding in (await answer.json())["error"]["message"]


async def test_keys_are_asked_for_only_on_request() -> None:
    async with serving(application(require_key=True)) as url, ClientSession(url) as client:
        for path in PATHS:
            async with client.post(path, json=request(path)) as answer:
                assert answer.status == 401
            async with client.post(path, json=request(path), headers={"Authorization": "Bearer any"}) as answer:
                assert answer.status == 200
        async with client.post(PATHS[2], json=request(PATHS[2])) as answer:
            assert (await answer.json())["error"]["type"] == "authentication_error"


async def test_events_come_at_their_pace_and_one_by_one() -> None:
    async with serving(application(pace=0.02)) as url, ClientSession(url) as client:
        start = time.monotonic()
        async with client.post(PATHS[0], json=request(PATHS[0], stream=True)) as answer:
            await answer.content.readuntil(b"\n\n")
            first = time.monotonic() - start
            await answer.read()
        assert time.monotonic() - start > first + 0.1


async def test_client_that_leaves_ends_the_stream() -> None:
    made = application(pace=0.01)
    running_before = asyncio.all_tasks()
    async with serving(made) as url:
        async with ClientSession(url) as client:
            answer = await client.post(PATHS[0], json=request(PATHS[0], stream=True))
            await answer.content.readuntil(b"\n\n")
            answer.close()
        await asyncio.sleep(0.2)
        handlers = [task for task in asyncio.all_tasks() - running_before if "start" in repr(task.get_coro())]
        assert not handlers


async def test_models_are_listed(sample: ClientSession) -> None:
    async with sample.get("/v1/models") as answer:
        assert (await answer.json())["data"][0]["id"] == "sample"
