"""The tables of docs/configuration.md, made from the schema: ``python -m config.reference`` writes them between its markers.

``--check`` writes nothing and exits 1 when the page is not what the schema says.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from config.changes import needs_restart
from config.environment import RESERVED
from config.keys import OPTIONS, Option
from config.words import expected, written

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
BEGIN, END = "<!-- options: made by python -m config.reference -->", "<!-- options: end -->"

_PATTERN = re.compile(r"that matches (\S+)")


def tables() -> str:
    """Every option of the schema as Markdown: one table for the top level and one a section."""
    top = [option for option in OPTIONS if len(option.path) == 1 and option.shape.section is None]
    parts = ["### Top level", "", *_table(top)]
    for section in (option for option in OPTIONS if option.shape.section is not None):
        prefix = (*section.path, "*") if section.shape.listed else section.path
        rows = [o for o in OPTIONS if o.path[:-1] == prefix and o.shape.section is None]
        parts += ["", f"### `{'.'.join(prefix)}`", "", _sentence(section), "", *_table(rows)]
    reserved = [f"- `{name}`: {meaning}" for name, meaning in RESERVED.items()]
    return "\n".join([*parts, "", "### Variables that are not keys", "", *reserved])


def page(text: str) -> str:
    """``text`` with what stands between its markers made anew; raises :class:`ValueError` where it has no markers."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page has no markers for the options")
    return f"{head}{BEGIN}\n\n{tables()}\n\n{END}{tail}"


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` compare it. 0 done or equal, 1 different."""
    text = PAGE.read_text(encoding="utf-8")
    made = page(text)
    if "--check" in arguments:
        return 0 if made == text else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


def _table(rows: list[Option]) -> Iterator[str]:
    yield "| key | meaning | takes | default |"
    yield "| --- | --- | --- | --- |"
    for option in rows:
        meaning = _cell(option.meaning.replace("``", "`"))
        if needs_restart(option.path):
            meaning += " *Needs a restart.*"
        if option.secret:
            meaning += " *Secret: never shown.*"
        yield f"| `{option.path[-1]}` | {meaning} | {_takes(option)} | {_default(option)} |"


def _takes(option: Option) -> str:
    if option.shape.is_size or option.shape.is_time:
        return "size" if option.shape.is_size else "time"
    text = _cell(expected(option).removeprefix("a "))
    return _PATTERN.sub(r"that matches `\1`", text)


def _default(option: Option) -> str:
    if option.default is ...:
        return "required"
    if option.default is None:
        return "none"
    return f"`{_cell(written(option.default, option.shape))}`"


def _sentence(section: Option) -> str:
    owner = (section.shape.section.__doc__ or "").strip().split("\n\n")[0] if section.shape.section else ""
    text = " ".join((owner or section.meaning).split()).replace("``", "`")
    return text if section.default is not None else f"{text} None unless given."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
