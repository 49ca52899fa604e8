"""Taking JSON requests apart with refusals that name the field."""

from collections.abc import Mapping
from typing import Any

from gateway.sample.asking import Refused, Tool

Document = Mapping[str, Any]


def model_of(document: Document) -> str:
    """The required ``model``."""
    model = document.get("model")
    if not isinstance(model, str) or not model:
        raise Refused("you must provide a model parameter", param="model")
    return model


def messages_of(document: Document, name: str) -> list[Document]:
    """The required, non-empty list of objects called ``name``."""
    found = document.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(item, Mapping) for item in found):
        raise Refused(f"'{name}' must be a non-empty array of objects", param=name)
    return found


def positive(document: Document, *names: str) -> int | None:
    """The first of the named limits that is there."""
    for name in names:
        value = document.get(name)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise Refused(f"'{name}' must be a positive integer", param=name)
            return value
    return None


def objects(value: object) -> list[Document]:
    """The objects of a list; nothing for what is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def choice_of(document: Document, *path: str) -> str:
    """``tool_choice`` as a word or, where it is an object, the string at ``path`` in it; ``auto`` where there is none."""
    choice: object = document.get("tool_choice")
    if isinstance(choice, str):
        return choice
    for name in path:
        choice = choice.get(name) if isinstance(choice, Mapping) else None
    return choice if isinstance(choice, str) else "auto"


def text_of(content: object) -> str:
    """The text of a message's content: a string, or the text parts of a list joined by line ends."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in objects(content) if isinstance(part.get("text"), str))


def tools_of(document: Document, schema: str, *, nested: str | None = None) -> tuple[Tool, ...]:
    """Offered functions; ``schema`` is the key of their JSON Schema, ``nested`` of the object they lie in."""
    found = document.get("tools") or []
    if not isinstance(found, list):
        raise Refused("'tools' must be an array", param="tools")
    tools = []
    for place, item in enumerate(found):
        tool = item.get(nested) if nested and isinstance(item, Mapping) else item
        if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
            if isinstance(item, Mapping) and item.get("type") not in (None, "function", "custom"):
                continue  # a provider's own tool, which a sample cannot run
            raise Refused(f"'tools[{place}]' has no name", param=f"tools[{place}]")
        found_schema = tool.get(schema)
        tools.append(Tool(tool["name"], found_schema if isinstance(found_schema, Mapping) else {}))
    return tuple(tools)
