"""OpenAI's Responses: ``POST /v1/responses``. Stateless: it keeps nothing, so ``previous_response_id`` is refused."""

import json
from collections.abc import Iterator
from typing import Any

from gateway.sample.asking import CREATED, Ask, Refused, Reply
from gateway.sample.openai_chat import refusal
from gateway.sample.reading import Document, choice_of, messages_of, model_of, positive, text_of, tools_of

__all__ = ["events", "read", "refusal", "whole"]


def read(document: Document) -> Ask:
    """Validate as the provider would, as far as a gateway that rewrites histories could get it wrong."""
    if document.get("previous_response_id") is not None:
        raise Refused("the sample stores no responses; send the whole input", param="previous_response_id")
    given = document.get("input")
    one: list[Document] = [{"role": "user", "content": given}]
    items = one if isinstance(given, str) else messages_of(document, "input")
    _check_calls(items)
    newest = max((place for place, item in enumerate(items) if item.get("role") == "user"), default=-1)
    after = items[newest + 1 :]
    return Ask(
        model=model_of(document),
        question=text_of(items[newest].get("content")) if newest >= 0 else "",
        results=tuple(text_of(item.get("output")) for item in after if item.get("type") == "function_call_output"),
        tools=tools_of(document, "parameters"),
        choice=choice_of(document, "name"),
        max_tokens=positive(document, "max_output_tokens"),
        stream=document.get("stream") is True,
    )


def _check_calls(items: list[Document]) -> None:
    called = {item.get("call_id") for item in items if item.get("type") == "function_call"}
    answered = {item.get("call_id") for item in items if item.get("type") == "function_call_output"}
    for missing in sorted(map(str, called - answered)):
        raise Refused(f"No tool output found for function call {missing}.", param="input")
    for orphan in sorted(map(str, answered - called)):
        raise Refused(f"No tool call found for function call output with call_id {orphan}.", param="input")


def _item(reply: Reply, status: str) -> dict[str, Any]:
    """The one output item, empty while in progress."""
    done = status != "in_progress"
    if reply.call is not None:
        name, arguments = reply.call
        text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":")) if done else ""
        call = {"type": "function_call", "id": f"fc_{reply.key}", "call_id": f"call_{reply.key}", "name": name}
        return {**call, "arguments": text, "status": status}
    content = [_part(reply.text)] if done else []
    return {"type": "message", "id": f"msg_{reply.key}", "status": status, "role": "assistant", "content": content}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response(ask: Ask, reply: Reply, status: str) -> dict[str, Any]:
    done = status != "in_progress"
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    return {
        "id": f"resp_{reply.key}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": ask.max_tokens,
        "model": ask.model,
        "output": [_item(reply, status)] if done else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "tool_choice": ask.choice,
        "usage": usage if done else None,
        "metadata": {},
    }


def _final(reply: Reply) -> str:
    return "incomplete" if reply.ended == "length" else "completed"


def whole(ask: Ask, reply: Reply) -> dict[str, Any]:
    """The answer in one piece."""
    return _response(ask, reply, _final(reply))


def _steps(ask: Ask, reply: Reply) -> Iterator[tuple[str, dict[str, Any]]]:
    final, place = _final(reply), {"output_index": 0}
    yield "response.created", {"response": _response(ask, reply, "in_progress")}
    yield "response.in_progress", {"response": _response(ask, reply, "in_progress")}
    yield "response.output_item.added", place | {"item": _item(reply, "in_progress")}
    if reply.call is not None:
        item = _item(reply, final)
        where, arguments = {"item_id": item["id"]} | place, item["arguments"]
        for start in range(0, len(arguments), 8):
            yield "response.function_call_arguments.delta", where | {"delta": arguments[start : start + 8]}
        yield "response.function_call_arguments.done", where | {"arguments": arguments}
    else:
        where = {"item_id": f"msg_{reply.key}"} | place | {"content_index": 0}
        yield "response.content_part.added", where | {"part": _part("")}
        for piece in reply.pieces:
            yield "response.output_text.delta", where | {"delta": piece, "logprobs": []}
        yield "response.output_text.done", where | {"text": reply.text, "logprobs": []}
        yield "response.content_part.done", where | {"part": _part(reply.text)}
    yield "response.output_item.done", place | {"item": _item(reply, final)}
    yield f"response.{final}", {"response": _response(ask, reply, final)}


def events(ask: Ask, reply: Reply) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """The answer as a stream of named, numbered events; the last one carries usage."""
    for number, (name, fields) in enumerate(_steps(ask, reply)):
        yield name, {"type": name, "sequence_number": number, **fields}
