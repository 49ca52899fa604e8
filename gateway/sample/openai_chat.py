"""OpenAI's chat completions: ``POST /v1/chat/completions``."""

import json
from collections.abc import Iterator
from typing import Any

from gateway.sample.asking import CREATED, Ask, Refused, Reply
from gateway.sample.reading import Document, choice_of, messages_of, model_of, objects, positive, text_of, tools_of

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_ENDED = {"stop": "stop", "length": "length", "call": "tool_calls"}


def read(document: Document) -> Ask:
    """Validate as the provider would, as far as a gateway that rewrites histories could get it wrong."""
    messages = messages_of(document, "messages")
    _check_roles(messages)
    newest = max((place for place, item in enumerate(messages) if item["role"] == "user"), default=-1)
    options = document.get("stream_options")
    return Ask(
        model=model_of(document),
        question=text_of(messages[newest].get("content")) if newest >= 0 else "",
        results=tuple(text_of(item.get("content")) for item in messages[newest + 1 :] if item["role"] == "tool"),
        tools=tools_of(document, "parameters", nested="function"),
        choice=choice_of(document, "function", "name"),
        max_tokens=positive(document, "max_completion_tokens", "max_tokens"),
        stream=document.get("stream") is True,
        usage_chunk=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _check_roles(messages: list[Document]) -> None:
    waiting: set[str] = set()
    for place, item in enumerate(messages):
        role, param = item.get("role"), f"messages[{place}]"
        if role not in _ROLES:
            raise Refused(f"Invalid value: {role!r}. Supported values are: {', '.join(_ROLES)}", param=f"{param}.role")
        if role == "tool":
            if item.get("tool_call_id") not in waiting:
                raise Refused(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'", param=param
                )
            waiting.discard(item["tool_call_id"])
        elif waiting:
            raise Refused(f"no 'tool' message answers tool_call_id {min(waiting)}", param=param)
        if role == "assistant":
            waiting = {str(call.get("id")) for call in objects(item.get("tool_calls"))}
    if waiting:
        raise Refused(f"no 'tool' message answers tool_call_id {min(waiting)}", param="messages")


def _usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _calls(reply: Reply) -> list[dict[str, Any]]:
    if reply.call is None:
        return []
    name, arguments = reply.call
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))}
    return [{"id": f"call_{reply.key}", "type": "function", "function": function}]


def whole(ask: Ask, reply: Reply) -> dict[str, Any]:
    """The answer in one piece."""
    calls = _calls(reply)
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else reply.text, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _ENDED[reply.ended]}
    return {
        "id": f"chatcmpl-{reply.key}",
        "object": "chat.completion",
        "created": CREATED,
        "model": ask.model,
        "choices": [choice],
        "usage": _usage(reply),
        "service_tier": "default",
        "system_fingerprint": "fp_sample",
    }


def events(ask: Ask, reply: Reply) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """The answer as a stream: chunks with no event name, then ``None`` for ``[DONE]``."""

    def chunk(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> tuple[None, dict[str, Any]]:
        made: dict[str, Any] = {
            "id": f"chatcmpl-{reply.key}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": ask.model,
            "service_tier": "default",
            "system_fingerprint": "fp_sample",
            "choices": choices,
        }
        return None, made | ({"usage": usage} if ask.usage_chunk else {})

    def step(delta: dict[str, Any], finish: str | None = None) -> tuple[None, dict[str, Any]]:
        return chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    calls = _calls(reply)
    first: dict[str, Any] = {"role": "assistant", "content": None if calls else "", "refusal": None}
    if calls:
        function = calls[0]["function"]
        first["tool_calls"] = [{"index": 0, **calls[0], "function": {"name": function["name"], "arguments": ""}}]
    yield step(first)
    for piece in reply.pieces:
        yield step({"content": piece})
    for start in range(0, len(calls[0]["function"]["arguments"]) if calls else 0, 8):
        part = calls[0]["function"]["arguments"][start : start + 8]
        yield step({"tool_calls": [{"index": 0, "function": {"arguments": part}}]})
    yield step({}, _ENDED[reply.ended])
    if ask.usage_chunk:
        yield chunk([], _usage(reply))
    yield None, None


def refusal(refused: Refused) -> dict[str, Any]:
    """The provider's error object."""
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    return {"error": {"message": refused.message, "type": kind, "param": refused.param, "code": refused.code}}
