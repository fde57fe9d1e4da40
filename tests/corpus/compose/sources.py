"""Where a line of vLLM's own source stands in a release: file, line number, code."""

import ast
import functools
import json
import os
from pathlib import Path

TABLE = Path(__file__).with_name("sources.json")


class Place(tuple[str, int, str]):
    """Path below site-packages, line number and the stripped code of one source line."""

    __slots__ = ()

    @property
    def path(self) -> str:
        """The file, e.g. `vllm/v1/engine/core.py`."""
        return self[0]

    @property
    def line(self) -> int:
        """The line number."""
        return self[1]

    @property
    def code(self) -> str:
        """The code of the line without its indent."""
        return self[2]


@functools.cache
def _table() -> dict[str, list[str | int] | None]:
    return json.loads(TABLE.read_text()) if TABLE.exists() else {}


def save() -> None:
    """Write the look-ups that this run added."""
    rows = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(_table().items())]
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


@functools.cache
def _files(release: str, name: str) -> list[Path]:
    root = Path(os.environ.get("VLLM_SOURCES", "vllm-sources")) / release
    if not root.exists():
        raise FileNotFoundError(f"no sources of vLLM {release}: unpack its wheel into {root}")
    return sorted(p for p in root.rglob(name.rsplit("/", 1)[-1]) if str(p).endswith("/" + name))


@functools.cache
def _functions(path: Path) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []

    def visit(node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((owner + child.name, child.lineno, child.end_lineno or child.lineno))
                visit(child, owner)
            else:
                visit(child, child.name + "." if isinstance(child, ast.ClassDef) else owner)

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def _below(path: Path, release: str) -> str:
    return str(path).split(f"/{release}/", 1)[1]


def _statement_start(lines: list[str], index: int) -> int:
    """The line of the call that the text belongs to: the log record's line number since Python 3.8."""
    at = index
    while at > max(0, index - 12) and "logger." not in lines[at] and "logger_" not in lines[at]:
        at -= 1
    return at if "logger" in lines[at] else index


def _search_frame(release: str, file: str, function: str, needle: str) -> Place | None:
    for path in _files(release, file):
        lines = path.read_text(encoding="utf-8").split("\n")
        for name, first, last in _functions(path):
            if name != function and name.rsplit(".", 1)[-1] != function:
                continue
            hits = [n for n in range(first, last + 1) if needle.removeprefix("<") in lines[n - 1]]
            hits = [n for n in hits if n != first] or hits
            if hits:
                at = hits[-1] if needle.startswith("<") else hits[0]
                return Place((_below(path, release), at, lines[at - 1].strip()))
    return None


def _search_record(release: str, file: str, text: str) -> Place | None:
    for path in _files(release, file):
        lines = path.read_text(encoding="utf-8").split("\n")
        for index, line in enumerate(lines):
            if text in line:
                at = _statement_start(lines, index)
                return Place((_below(path, release), at + 1, lines[at].strip()))
    return None


def _look_up(key: str, release: str, *words: str) -> Place | None:
    table = _table()
    if key not in table:
        found = _search_record(release, *words) if len(words) == 2 else _search_frame(release, *words)
        table[key] = None if found is None else list(found)
    value = table[key]
    return None if value is None else Place((str(value[0]), int(value[1]), str(value[2])))


def frame(release: str, file: str, function: str, needle: str) -> Place | None:
    """The place in `function` of `file` where `needle` stands first (`<needle`: last); None where there is none."""
    return _look_up(f"{release}|{file}|{function}|{needle}", release, file, function, needle)


def record(release: str, file: str, text: str) -> Place | None:
    """The place of the logger call whose text holds `text`; None where this release has none."""
    return _look_up(f"{release}|{file}||{text}", release, file, text)
