"""The table of moves as a page."""

from collections.abc import Iterable

from fitserve.memory.history import flag_releases
from fitserve.plan.moves.move import Move

_HEAD = """\
# The moves

What `fitserve fix` and `fitserve plan` may change in a start, from top to bottom where two cost the same. Each value is judged by the
[memory model](memory-model.md), corrected by what the failed start has shown; the smallest change that is expected to serve is taken. This page is what
`fitserve explain moves` prints.

| move | setting | releases | costs | what is saved | what is lost | bad for | needs |
|---|---|---|---|---|---|---|---|
"""

_CAUSES = """
## Against what

| cause | moves |
|---|---|
"""


def render_moves(moves: Iterable[Move]) -> str:
    """The page of the moves, in Markdown."""
    rows = list(moves)
    text = _HEAD + "".join(_row(move) for move in rows) + _CAUSES
    for cause in sorted({cause for move in rows for cause in move.causes}):
        names = ", ".join(move.name for move in rows if cause in move.causes)
        text += f"| `{cause}` | {names} |\n"
    return text


def _row(move: Move) -> str:
    since = _releases(move.flag)
    option = move.flag if move.flag.isupper() else f"--{move.flag.replace('_', '-')}"
    return f"| {move.name} | `{option}` | {since} | {move.cost} | {move.saves} | {move.costs} | {', '.join(move.hurts)} | {move.needs} |\n"


def _releases(flag: str) -> str:
    known = flag_releases(flag)
    if known is None:
        return ""
    first, last = known
    return f"{first} and later" if last is None else f"{first} to {last}"
