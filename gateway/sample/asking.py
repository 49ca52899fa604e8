"""What every chat dialect comes down to: a question, tools it may use, and an answer made by rule from the handbook."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.sample import retrieval

CREATED = 1_764_547_200
"""The moment every answer claims to have been made at: the same request gets the same bytes, whatever the day."""

_PIECE = re.compile(r"\s*[^\s]{1,12}")


class Refused(Exception):
    """A request the dialect's provider would refuse. The dialect gives it its own JSON shape."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.param, self.code = message, status, param, code


@dataclass(frozen=True)
class Tool:
    """A function the caller offers, with the JSON Schema of its arguments."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Ask:
    """A request, whatever its dialect."""

    model: str
    question: str
    """Text of the newest user message."""
    results: tuple[str, ...] = ()
    """What tools returned after it."""
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    """``auto``, ``none``, ``required``, or the name of the tool that must be called."""
    prompt_tokens: int = 0
    max_tokens: int | None = None
    stream: bool = False
    usage_chunk: bool = False
    """Whether an OpenAI chat stream ends with a chunk of usage."""


@dataclass(frozen=True)
class Reply:
    """An answer: text in pieces as a stream would bring them, or one call of a tool."""

    key: str
    """24 hex digits that ids are made of; from the seed and the request alone."""
    pieces: tuple[str, ...] = ()
    call: tuple[str, dict[str, Any]] | None = None
    ended: Literal["stop", "length", "call"] = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = field(default=1)

    @property
    def text(self) -> str:
        """The whole text, empty for a call."""
        return "".join(self.pieces)


def estimate_tokens(text: str) -> int:
    """Tokens by the rough rule of four bytes each. The sample has no tokenizer and its usage figures are estimates."""
    return len(text.encode()) // 4 + 1


def pieces(text: str) -> tuple[str, ...]:
    """The text cut as a stream would bring it; joined again it is the text without white space at its end."""
    return tuple(_PIECE.findall(text))


def reply(ask: Ask, body: bytes, seed: int) -> Reply:
    """Answer by rule. ``body`` is the request as it came: with the seed, it decides the ids."""
    key = hashlib.sha256(b"%d " % seed + body).hexdigest()[:24]
    tool = _wanted(ask)
    if tool is not None:
        arguments = {name: _argument(ask, name, shape) for name, shape in _properties(tool.schema).items()}
        return Reply(key, (), (tool.name, arguments), "call", ask.prompt_tokens, estimate_tokens(str(arguments)))
    words = pieces(_sentence(ask))
    limit = ask.max_tokens
    kept = words if limit is None else words[:limit]
    ended: Literal["stop", "length"] = "length" if len(kept) < len(words) else "stop"
    return Reply(key, kept, None, ended, ask.prompt_tokens, max(1, len(kept)))


def _wanted(ask: Ask) -> Tool | None:
    """The tool to call: the one that must be, or one the question names, unless its result is already there."""
    if not ask.tools or ask.choice == "none":
        return None
    for tool in ask.tools:
        if tool.name == ask.choice:
            return tool
    if ask.choice == "required":
        return ask.tools[0]
    if ask.results:
        return None
    question = ask.question.lower()
    for tool in ask.tools:
        if tool.name.lower() in question or tool.name.lower().replace("_", " ") in question:
            return tool
    return ask.tools[0] if re.search(r"\b(tool|tools)\b", question) else None


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Required properties, in the schema's order; all of them where none is required."""
    found = schema.get("properties")
    if not isinstance(found, Mapping):
        return {}
    required = schema.get("required") or list(found)
    return {name: shape for name, shape in found.items() if name in required and isinstance(shape, Mapping)}


def _argument(ask: Ask, name: str, shape: Mapping[str, Any]) -> object:
    if shape.get("enum"):
        return shape["enum"][0]
    kind = shape.get("type", "string")
    number = re.search(r"-?\d+", ask.question)
    if kind in ("integer", "number"):
        return int(number[0]) if number else 1
    if kind == "boolean":
        return True
    if kind in ("array", "object"):
        return [] if kind == "array" else {}
    quoted = re.search(r"[\"“']([^\"”']{1,200})[\"”']", ask.question)
    return quoted[1] if quoted else ask.question[:80] or name


def _sentence(ask: Ask) -> str:
    if ask.results:
        return f"The tool returned: {' / '.join(ask.results)[:2000]}\n\nThat is all it said. (Sample upstream, no model.)"
    found = retrieval.answer(ask.question)
    if not found:
        return f"The handbook of Tern Island has nothing on “{ask.question[:120]}”. (Sample upstream, no model.)"
    return f"{found}\n\nThis is quoted from the handbook of an invented island. (Sample upstream, no model.)"
