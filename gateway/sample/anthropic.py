"""Anthropic's messages: ``POST /v1/messages``."""

import json
from collections.abc import Iterator
from typing import Any

from gateway.sample.asking import Ask, Refused, Reply
from gateway.sample.reading import Document, choice_of, messages_of, model_of, objects, positive, text_of, tools_of

_ENDED = {"stop": "end_turn", "length": "max_tokens", "call": "tool_use"}
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    415: "invalid_request_error",
}


def read(document: Document) -> Ask:
    """Validate as the provider would, as far as a gateway that rewrites histories could get it wrong."""
    messages = messages_of(document, "messages")
    limit = positive(document, "max_tokens")
    if limit is None:
        raise Refused("max_tokens: Field required")
    _check_turns(messages)
    asked = [place for place, item in enumerate(messages) if item["role"] == "user" and text_of(item.get("content"))]
    newest = asked[-1] if asked else 0
    kind = choice_of(document, "type")
    results = [text_of(block.get("content")) for item in messages[newest:] for block in _blocks(item, "tool_result")]
    return Ask(
        model=model_of(document),
        question=text_of(messages[newest].get("content")),
        results=tuple(results),
        tools=tools_of(document, "input_schema"),
        choice={"any": "required", "tool": choice_of(document, "name")}.get(kind, kind),
        max_tokens=limit,
        stream=document.get("stream") is True,
    )


def _blocks(item: Document, kind: str) -> list[Document]:
    return [block for block in objects(item.get("content")) if block.get("type") == kind]


def _check_turns(messages: list[Document]) -> None:
    called: set[str] = set()
    for place, item in enumerate(messages):
        role = item.get("role")
        if role not in ("user", "assistant", "system"):
            raise Refused(f"messages.{place}.role: Input should be 'user' or 'assistant'")
        if place == 0 and role != "user":
            raise Refused('messages: first message must use the "user" role')
        answered = {str(block.get("tool_use_id")) for block in _blocks(item, "tool_result")}
        for orphan in sorted(answered - called):
            raise Refused(f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {orphan}")
        for missing in sorted(called - answered):
            raise Refused(f"messages.{place}: `tool_use` id {missing} was found without a `tool_result` block after it")
        called = {str(block.get("id")) for block in _blocks(item, "tool_use")}
    if called:
        raise Refused(f"`tool_use` id {min(called)} was found without a `tool_result` block after it")


def _usage(reply: Reply, output: int) -> dict[str, Any]:
    return {
        "input_tokens": reply.prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
        "service_tier": "standard",
    }


def _message(ask: Ask, reply: Reply, content: list[dict[str, Any]], ended: str | None, output: int) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.key}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": content,
        "stop_reason": ended,
        "stop_sequence": None,
        "usage": _usage(reply, output),
    }


def _block(reply: Reply, *, empty: bool) -> dict[str, Any]:
    if reply.call is None:
        return {"type": "text", "text": "" if empty else reply.text}
    name, arguments = reply.call
    return {"type": "tool_use", "id": f"toolu_{reply.key}", "name": name, "input": {} if empty else arguments}


def whole(ask: Ask, reply: Reply) -> dict[str, Any]:
    """The answer in one piece."""
    block = _block(reply, empty=False)
    return _message(ask, reply, [block], _ENDED[reply.ended], reply.completion_tokens)


def events(ask: Ask, reply: Reply) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """The answer as a stream: ``message_start`` to ``message_stop``, with one ``ping``."""

    def event(name: str, **fields: Any) -> tuple[str, dict[str, Any]]:
        return name, {"type": name, **fields}

    yield event("message_start", message=_message(ask, reply, [], None, 1))
    yield event("content_block_start", index=0, content_block=_block(reply, empty=True))
    yield event("ping")
    for piece in reply.pieces:
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    if reply.call is not None:
        written = json.dumps(reply.call[1], ensure_ascii=False, separators=(",", ":"))
        for start in range(0, len(written), 8):
            delta = {"type": "input_json_delta", "partial_json": written[start : start + 8]}
            yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    ended = {"stop_reason": _ENDED[reply.ended], "stop_sequence": None}
    yield event("message_delta", delta=ended, usage={"output_tokens": reply.completion_tokens})
    yield event("message_stop")


def refusal(refused: Refused) -> dict[str, Any]:
    """The provider's error object."""
    kind = _KINDS.get(refused.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": refused.message}, "request_id": None}
