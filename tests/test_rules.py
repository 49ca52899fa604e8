"""The rules of the house as tests. Each says, when it fails, what the rule is for and what to do instead.

They read source text (ast), so a rule holds for code that no test runs. An exception to a rule stands in a table here, beside
its reason; an exception that is no longer needed fails too.
"""

import ast
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import aiohttp
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ctxpack", "backpack", "middleware", "config", "gateway")
PURE = ("ctxpack", "backpack")


def _files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


PRODUCT = _files(*PACKAGES)
TESTS = _files("tests")
EVERYTHING = [*PRODUCT, *TESTS, *_files("benchmarks", "deploy")]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """Its dotted name; a package's own for ``__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in PRODUCT}


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def _without_type_checking(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that exists at run time: what stands under ``if TYPE_CHECKING`` does not."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        skipped = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        waiting += node.orelse if skipped and isinstance(node, ast.If) else ast.iter_child_nodes(node)


def imports_of(path: Path, *, types_too: bool = True) -> Iterator[tuple[int, str]]:
    """Line and dotted name of whatever it imports, at the top or inside a function; a module where one is meant."""
    tree = tree_of(path)
    for node in ast.walk(tree) if types_too else _without_type_checking(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{shown(path)}:{node.lineno}: import by the full name, as everywhere here"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield node.lineno, whole if whole in MODULES else node.module or ""


def told(broken: Iterable[str], rule: str) -> None:
    """Fail with every place and the rule."""
    places = list(broken)
    assert not places, "\n  ".join([rule, *places])


# Layers

FORBIDDEN_IN_PURE = {
    "asyncio", "socket", "ssl", "select", "selectors", "socketserver", "http", "urllib", "time", "datetime", "logging",
    "threading", "multiprocessing", "concurrent", "subprocess", "random", "secrets", "signal",
}  # fmt: skip
TOUCH_FILES = {"ctxpack/cli.py", "ctxpack/files.py", "ctxpack/__main__.py"}
THIRD_PARTY = {
    "ctxpack": set[str](),
    "backpack": set[str](),
    "middleware": {"aiohttp", "multidict", "orjson", "pydantic", "http_sf", "brotli", "backports", "compression"},
    "config": {"pydantic", "pydantic_core", "annotated_types", "yaml"},  # the middle two come with pydantic
    "gateway": {
        "aiohttp", "multidict", "yarl", "orjson", "pydantic", "prometheus_client", "uvloop", "yaml", "rich", "backports",
        "compression", "brotli",
    },
}  # fmt: skip
OURS = {
    "ctxpack": {"ctxpack"},
    "backpack": {"backpack"},
    "middleware": {"middleware", "ctxpack", "backpack"},
    "config": {"config", "middleware"},
    "gateway": {"gateway", "config", "middleware", "ctxpack", "backpack"},
}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_stands_below_it(package: str) -> None:
    told(
        (
            f"{shown(path)}:{line} imports {name}"
            for path in _files(package)
            for line, name in imports_of(path)
            if (top := name.partition(".")[0]) in PACKAGES and top not in OURS[package]
        ),
        f"{package} may import {', '.join(sorted(OURS[package]))} of ours and no more (ARCHITECTURE.md, dependency rule). "
        "What it needs from above it takes as a Protocol or as an argument:",
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_the_libraries_it_is_meant_to_know(package: str) -> None:
    known = THIRD_PARTY[package] | set(PACKAGES) | sys.stdlib_module_names
    told(
        (
            f"{shown(path)}:{line} imports {name}"
            for path in _files(package)
            for line, name in imports_of(path)
            if name.partition(".")[0] not in known
        ),
        f"{package} knows {', '.join(sorted(THIRD_PARTY[package])) or 'the standard library alone'}. "
        "A further library is a decision: add it to pyproject.toml, and here:",
    )


@pytest.mark.parametrize("package", PURE)
def test_a_pure_package_has_no_clock_no_sockets_no_environment_and_no_logging(package: str) -> None:
    def broken() -> Iterator[str]:
        for path in _files(package):
            files = shown(path) in TOUCH_FILES
            for line, name in imports_of(path):
                top = name.partition(".")[0]
                if top in FORBIDDEN_IN_PURE or (top in ("os", "io", "pathlib", "tempfile", "shutil") and not files):
                    yield f"{shown(path)}:{line} imports {name}"
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                    yield f"{shown(path)}:{node.lineno} reads the environment"
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "open" and not files:
                    yield f"{shown(path)}:{node.lineno} opens a file"

    told(broken(), f"{package} is from values to values: the caller does the waiting, the reading and the telling of time:")


def test_nothing_imports_the_gateway_but_the_gateway() -> None:
    told(
        (
            f"{shown(path)}:{line} imports {name}"
            for path in PRODUCT
            if not shown(path).startswith("gateway/")
            for line, name in imports_of(path)
            if name.partition(".")[0] == "gateway"
        ),
        "the gateway builds everything and nothing knows it; what two layers need lives in the lower one:",
    )


def test_no_modules_import_each_other_in_a_circle() -> None:
    """At run time; a circle of types alone is harmless. A package's own ``__init__`` counts as a module like any other."""
    graph = {
        name: {target for _, target in imports_of(path, types_too=False) if target in MODULES and target != name}
        for name, path in MODULES.items()
    }
    done: set[str] = set()
    circles: list[str] = []

    def walk(name: str, way: list[str]) -> None:
        if name in way:
            circles.append(" -> ".join([*way[way.index(name) :], name]))
        elif name not in done:
            for target in sorted(graph[name]):
                walk(target, [*way, name])
            done.add(name)

    for name in sorted(graph):
        walk(name, [])
    told(circles, "modules that import each other cannot be read, tested or moved alone. Move what both need to a third:")


# aiohttp's private names

SEAMS = "gateway/aiohttp_seams.py"
PRIVATE_ALLOWED = {
    # A class of ours in the place of RequestHandler and of web.Server: what it overrides it must see the state of
    ("gateway/server.py", "_force_close"): "what arrives after the end of a connection is not metered",
    ("gateway/server.py", "_close"): "the same, for an end that was asked for",
    ("gateway/server.py", "_current_request"): "whose exchange a lost connection settles",
    ("gateway/server.py", "_messages"): "that the parser refused what came, before its turn to be answered",
    ("gateway/server.py", "_ErrInfo"): "how it says so",
    ("gateway/server.py", "_waiter"): "that the connection waits for a request",
    ("gateway/server.py", "_manager"): "the server of a connection, which says that it is draining",
    ("gateway/server.py", "_must_be_empty_body"): "HEAD, 204 and 304: what was given as a body and never sent",
    ("gateway/server.py", "_loop"): "web.Server's own, for a protocol of our class",
    # A middleware cannot import the gateway's seams, and stands in applications that are not ours
    ("middleware/body.py", "_size"): "behind Payload.size: None is what makes aiohttp frame by chunks",
    ("middleware/body.py", "_iter"): "the pieces of an iterable payload as they come; aiohttp gives only the whole",
    ("middleware/uploads.py", "_read_bytes"): "what was read here is still there for a handler's request.read()",
}
"""File and name, and why there is no public way."""


@functools.cache
def privates_of_aiohttp() -> frozenset[str]:
    """Every private attribute, function and method that aiohttp's own source has."""
    names = set()
    for path in Path(inspect.getfile(aiohttp)).parent.glob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Name):
                names.add(node.id)
    return frozenset(name for name in names if _private(name))


_OF_NAMED_TUPLES = ("_replace", "_asdict", "_fields", "_make", "_field_defaults")  # public in all but name


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in ("_", *_OF_NAMED_TUPLES)


def _own_names(tree: ast.AST) -> set[str]:
    """Private names a file makes itself: assigned on ``self``, defined, or listed in ``__slots__``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and getattr(node.value, "id", "") == "self":
            names.add(node.attr)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def _inherits_from_aiohttp(node: ast.ClassDef, path: Path) -> set[str]:
    """Private names of aiohttp's own that a class of ours has inherited: reading or setting them is reaching in."""
    module = importlib.import_module(module_of(path))
    made = getattr(module, node.name, None)
    if not isinstance(made, type):
        return set()
    inherited: set[str] = set()
    for base in made.__mro__:
        if base.__module__.partition(".")[0] == "aiohttp":
            source = Path(inspect.getfile(base))
            for definition in ast.walk(tree_of(source)):
                if isinstance(definition, ast.ClassDef) and definition.name == base.__name__:
                    inherited |= _own_names(definition) | set(vars(base))
    return {name for name in inherited if _private(name)}


def private_uses(path: Path) -> Iterator[tuple[int, str]]:
    tree = tree_of(path)
    if not any(name.partition(".")[0] == "aiohttp" for _, name in imports_of(path)):
        return
    own = _own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            inherited = _inherits_from_aiohttp(node, path)
            for inner in ast.walk(node):
                if isinstance(inner, ast.Attribute) and getattr(inner.value, "id", "") == "self" and inner.attr in inherited:
                    yield inner.lineno, inner.attr
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
            if _private(node.attr) and node.attr in privates_of_aiohttp() and node.attr not in own:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "hasattr", "delattr"):
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and _private(name.value):
                yield node.lineno, name.value
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "aiohttp":
            yield from ((node.lineno, alias.name) for alias in node.names if _private(alias.name))


def test_private_names_of_aiohttp_are_touched_in_one_place() -> None:
    told(
        (
            f"{shown(path)}:{line} touches {name}"
            for path in PRODUCT
            if shown(path) != SEAMS
            for line, name in private_uses(path)
            if (shown(path), name) not in PRIVATE_ALLOWED
        ),
        f"aiohttp may change a private name in any release. Put it into {SEAMS}, with its reason and a test "
        "(tests/gateway/test_aiohttp_seams.py):",
    )


def test_no_exception_for_a_private_name_outlives_its_use() -> None:
    used = {(shown(path), name) for path in PRODUCT for _, name in private_uses(path)}
    told((f"{file}: {name}" for file, name in PRIVATE_ALLOWED.keys() - used), "no longer used; take it off the list:")


def test_the_private_names_are_found_at_all() -> None:
    """The rule above is worth something only if it sees what is there."""
    assert len({name for _, name in private_uses(ROOT / SEAMS)}) > 5


# Files

DRAWERS = {"utils", "util", "helpers", "helper", "common", "base", "misc", "manager", "managers", "shared", "tools", "core"}
AT_MOST, SHOULD_BE = 400, 300
LONG = {
    "ctxpack/pack.py": "a pack, its chunk ends and its digests: views of one text that must agree",
    "gateway/stores/memory.py": "one data structure with one invariant between its parts",
    "middleware/deltas.py": "both halves of one concern, which read together; it waits to be split when dcz comes",
}
"""Files over 300 lines, and why they are whole."""


def test_no_file_is_a_drawer() -> None:
    told(
        (shown(path) for path in EVERYTHING if path.stem in DRAWERS or path.parent.name in DRAWERS),
        "a file is named after what it is about; a drawer fills up and is imported by everybody:",
    )


def lines_of(path: Path) -> int:
    return path.read_text("utf-8").count("\n")


def test_no_file_is_longer_than_can_be_read() -> None:
    told(
        (f"{shown(path)}: {lines_of(path)} lines" for path in PRODUCT if lines_of(path) > AT_MOST),
        f"no file of the product is over {AT_MOST} lines. Find the second concern in it, and the noun it is named after:",
    )


def test_long_files_are_known_and_have_a_reason() -> None:
    long = {shown(path): lines_of(path) for path in PRODUCT if lines_of(path) > SHOULD_BE}
    told(
        (f"{file}: {count} lines" for file, count in long.items() if file not in LONG),
        f"files aim at 200 lines, and past {SHOULD_BE} ask to be split. Split it, or say in LONG why it is whole:",
    )
    told((file for file in LONG if file not in long), "no longer that long; take it off LONG:")


def test_every_module_says_what_it_is() -> None:
    """Of a test's file the name says it already."""
    told(
        (
            shown(path)
            for path in [*PRODUCT, *_files("tests/support", "benchmarks", "deploy")]
            if len((ast.get_docstring(tree_of(path)) or "").partition("\n")[0]) < 10
        ),
        "a module opens with a sentence that says what it is about, and with its theory of operation if it holds state:",
    )


def test_every_module_is_imported_by_somebody() -> None:
    everybody = {name for path in EVERYTHING for _, name in imports_of(path)}
    by_name = {
        node.value
        for path in PRODUCT
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in MODULES
    }
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}  # imported with what is in them
    started = {name for name, path in MODULES.items() if path.name == "__main__.py"}
    told(
        sorted(MODULES.keys() - everybody - by_name - packages - started),
        "imported by no other module and by no test, so nothing shows that it even loads. Test it or delete it:",
    )


# What stands in them

COMMAND_LINES = re.compile(r"ctxpack/(cli|files)\.py|gateway/(cli|tour)\.py|gateway/(commands|replay|sample)/\w+\.py")


def test_only_command_lines_print() -> None:
    told(
        (
            f"{shown(path)}:{node.lineno}"
            for path in PRODUCT
            if not COMMAND_LINES.fullmatch(shown(path))
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("print", "breakpoint", "input")
        ),
        "a server writes log lines (gateway/log.py), which hide secrets and are one JSON object each:",
    )


UNFINISHED = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]) + r")\b")


def test_nothing_is_left_unfinished_in_a_comment() -> None:
    texts = [*EVERYTHING, *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    told(
        (
            f"{shown(path)}:{number}"
            for path in texts
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
            if UNFINISHED.search(line)
        ),
        "what is left to do is an issue, where it is seen and can be closed; a comment says why the code is as it is:",
    )


def test_no_test_uses_a_mock_library() -> None:
    told(
        (
            f"{shown(path)}:{line} imports {name}"
            for path in TESTS
            for line, name in imports_of(path)
            if name.startswith(("unittest.mock", "mock", "pytest_mock", "asynctest", "aioresponses"))
        ),
        "fakes are real servers and ship in tests/support: a mock answers what its author believes, a socket what is so:",
    )


def _settings_classes() -> list[type]:
    for module in ("config.schema", *(name for name in MODULES if name.startswith("middleware."))):
        importlib.import_module(module)
    from middleware.settings import Settings

    found, waiting = [], [Settings]
    while waiting:
        for child in waiting.pop().__subclasses__():
            waiting.append(child)
            if child.__module__.partition(".")[0] in PACKAGES:
                found.append(child)
    return sorted(found, key=lambda made: made.__qualname__)


@pytest.mark.parametrize("section", _settings_classes(), ids=lambda made: made.__qualname__)
def test_every_option_is_documented_where_it_is_declared(section: type) -> None:
    assert (section.__doc__ or "").strip(), f"{section.__qualname__}: a section says what it is about"
    told(
        (
            f"{section.__module__}.{section.__qualname__}.{name}"
            for name, option in section.model_fields.items()  # type: ignore[attr-defined]
            if not (option.description or "").strip()
        ),
        "the field is the manual: meaning, unit and consequence as a docstring below it (docs/configuration.md is made of it):",
    )


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings, "CHANGELOG.md has no version"
    assert re.fullmatch(r"\[Unreleased\]|\[?\d+\.\d+\.\d+\]?( - \d{4}-\d\d-\d\d)?", headings[0]), (
        f"CHANGELOG.md begins with {headings[0]!r}: Keep a Changelog wants [Unreleased] or a version there, so that a change a "
        "user sees is written down in its own commit"
    )
