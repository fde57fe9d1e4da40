"""``fitserve explain [CAUSE]``: the page of one cause, the list, or the table of moves."""

import shutil
import sys
from itertools import groupby
from typing import Literal

import click
import msgspec

from fitserve.cli.options import Output, output_options
from fitserve.diagnose.pages import CAUSES, page

MOVES_PAGE = "moves"


class Entry(msgspec.Struct, frozen=True):
    """One line of the list."""

    cause: str
    stage: str
    summary: str


class MoveEntry(msgspec.Struct, frozen=True):
    """One move."""

    name: str
    flag: str
    cost: str
    saves: str
    costs: str
    needs: str
    causes: list[str]


class MoveIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Every move. Its JSON is the contract of ``explain moves --json``."""

    schema: int = 1
    kind: Literal["moves"] = "moves"
    moves: list[MoveEntry]


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Every cause. Its JSON is the contract of ``explain --json`` without an argument."""

    schema: int = 1
    kind: Literal["causes"] = "causes"
    causes: list[Entry]


@click.command()
@click.argument("cause", required=False)
@output_options
def command(cause: str | None, output: Output) -> None:
    """The page of one CAUSE: what it means, what to do, and when that would be wrong. Without CAUSE, the list.

    ``moves`` instead of a cause shows what fix and plan may change, what each change saves and what it costs.
    """
    if cause == MOVES_PAGE:
        _show_moves(output)
        return
    if cause is None:
        index = Index(causes=[Entry(name, stage, page(name).summary) for name, stage in CAUSES.items()])
        output.emit(index, lambda: _listed(index, colored=output.colored))
        return
    found = page(cause)
    output.emit(found, lambda: _rendered(found.text) if output.colored else found.text)


def _show_moves(output: Output) -> None:
    from fitserve.plan.moves.table import MOVES
    from fitserve.report.moves_markdown import render_moves

    index = MoveIndex(
        moves=[
            MoveEntry(
                name=move.name,
                flag=move.flag,
                cost=move.cost,
                saves=move.saves,
                costs=move.costs,
                needs=move.needs,
                causes=sorted(move.causes),
            )
            for move in MOVES
        ]
    )
    text = render_moves(MOVES).rstrip()
    output.emit(index, lambda: _rendered(text) if output.colored else text)


def _listed(index: Index, *, colored: bool) -> str:
    width = max(len(entry.cause) for entry in index.causes)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = []
    for stage, entries in groupby(index.causes, key=lambda entry: entry.stage):
        title = "no failure" if stage == "-" else stage
        lines += ["", click.style(title, bold=True) if colored else title]
        lines += [
            _cut(f"  {entry.cause:<{width}}  {entry.summary.replace('`', '')}", columns) for entry in entries
        ]
    return "\n".join(
        [*lines[1:], "", "fitserve explain CAUSE shows the page; fitserve explain moves what may be changed."]
    )


def _cut(line: str, columns: int | None) -> str:
    """The line as far as the terminal is wide."""
    return line if columns is None or len(line) <= columns else line[: columns - 1] + "\u2026"


def _rendered(text: str) -> str:
    """The page for a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    columns = min(shutil.get_terminal_size().columns, 120)
    console = Console(width=columns, force_terminal=True, highlight=False, color_system="standard")
    with console.capture() as capture:
        console.print(Markdown(text))
    return capture.get()
