"""Foreign text in Markdown: shown as it is, and obeyed nowhere.

A log's text is no one's: an image in it would tell whoever wrote it who reads the issue, a ``@name`` would call somebody.
"""

import re

_SPECIAL = re.compile(r"[\\`*\[<|]|&(?=#?[A-Za-z0-9]{1,32};)")
_OBEYED = re.compile(r"<|&(?=#?[A-Za-z0-9]{1,32};)")
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_CALLS = re.compile(r"(?<![A-Za-z0-9_])([@#])(?=[A-Za-z0-9])|(?<=\w)(#)(?=\d)")
_STARTS = re.compile(r"(?:[#+\-=~_>]|\d{1,9}(?=[.)]))")
_SILENT = "<!-- -->"
"""Nothing, which keeps a page from reading on."""


def inline(text: str) -> str:
    """Text that stays on its line, in its cell and as it is."""
    line = _SPECIAL.sub(lambda sign: _ENTITIES.get(sign[0], "\\" + sign[0]), _one_line(text))
    return _uncalled(line)


def paragraph(text: str) -> str:
    """The same where nothing stands before it: it begins no list and no heading."""
    line = inline(text)
    start = _STARTS.match(line)
    if start is None:
        return line
    end = start.end() if start[0].isdigit() else 0
    return f"{line[:end]}\\{line[end:]}"


def in_html(text: str) -> str:
    """Text within a tag, where Markdown is not read."""
    return _uncalled(_OBEYED.sub(lambda sign: _ENTITIES[sign[0]], _one_line(text)))


def code(text: str) -> str:
    """Text as code within a line."""
    line = _one_line(text).replace("|", "¦")
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line else ""


def fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of cells that are Markdown; nothing where there are no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _uncalled(line: str) -> str:
    """No one is called and no issue is linked: ``@name``, ``#12``."""
    return _CALLS.sub(lambda call: (call[1] or call[2]) + _SILENT, line)
