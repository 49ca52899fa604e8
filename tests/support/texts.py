"""Bodies for tests: text that grows, and what a chat service makes of it. Deterministic, and not so dull that gzip wins."""

import json
import random
from functools import lru_cache

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@lru_cache(maxsize=256)
def lines(count: int, seed: int = 1) -> str:
    """``count`` lines of invented words, about 80 bytes each; the first n of a longer text are the same."""
    written = []
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        words = ["".join(chance.choices(_LETTERS, k=chance.randint(3, 9))) for _ in range(11)]
        written.append(f"{number:04d} {' '.join(words)}\n")
    return "".join(written)


def document(turn: int, seed: int = 1) -> bytes:
    """A prepared document of turn 1, 2, ...: each holds the one before as its beginning. 8 KB and up."""
    return lines(100 + 4 * turn, seed).encode()


KINDS = ("prepare", "openai", "anthropic", "plain")
UNDERSTOOD = ("prepare", "openai", "anthropic")
"""Kinds whose bodies are read and coded."""

PATHS = {"prepare": "/prepare/notes", "openai": "/v1/chat/completions", "anthropic": "/v1/messages", "plain": "/anything"}


def chat_request(kind: str, turn: int = 1, *, stream: bool = False, model: str = "model-a") -> bytes:
    """A request body of that kind of route."""
    text = lines(10 + turn, 7)
    if kind == "prepare":
        body = {"query": text, "top": 5}
    else:
        body = {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    if stream:
        body["stream"] = True
    return json.dumps(body).encode()


def answer(kind: str, turn: int = 1, seed: int = 1) -> tuple[str, bytes]:
    """Content type and body of an answer of that kind of route; turn by turn it grows at its end."""
    text = document(turn, seed).decode()
    if kind in ("prepare", "plain"):
        return "text/plain; charset=utf-8", text.encode()
    if kind == "openai":
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        reply = {"id": "chatcmpl-1", "object": "chat.completion", "model": "model-a", "choices": [choice]}
    else:
        reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "model-a", "stop_reason": "end_turn",
                 "content": [{"type": "text", "text": text}]}  # fmt: skip
    return "application/json", json.dumps(reply).encode()


def events(kind: str, words: list[str]) -> list[bytes]:
    """The events of a streamed answer, terminal event last."""
    if kind == "anthropic":
        text = {"type": "text", "text": ""}
        out = [
            _named("message_start", message={"id": "msg_1", "role": "assistant", "content": []}),
            _named("content_block_start", index=0, content_block=text),
        ]
        out += [_named("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in words]
        out.append(_named("content_block_stop", index=0))
        out.append(_named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}))
        return [*out, _named("message_stop")]
    if kind == "openai":
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "model-a"}
        out = [_data({**chunk, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}) for word in words]
        out.append(_data({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        return [*out, b"data: [DONE]\n\n"]
    return [f"data: {word}\n\n".encode() for word in words]


def _data(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _named(name: str, **value: object) -> bytes:
    return f"event: {name}\n".encode() + _data({"type": name, **value})
