"""``fitserve runs``: what was tried."""

import re

import click

from fitserve.cli.options import Output, output_options
from fitserve.store.journal import RunList, RunSummary, open_journal_to_read

COMMAND_CHARACTERS = 56
PROGRAMS = re.compile(r"(?:^|[\s/.])((?:vllm serve|api_server) .*)")
"""The server's program and its arguments, behind wrappers, folders and a module's name."""


@click.command(short_help="what was tried")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The newest so many."
)
@click.option("--delete", "doomed", metavar="RUN", help="Forget a run and its logs, and list the rest.")
@output_options
def command(output: Output, limit: int, doomed: str | None) -> None:
    """The runs that were tried, newest first. See one with: fitserve report RUN."""
    journal = open_journal_to_read()
    if doomed is not None:
        journal.delete(doomed)
    runs = journal.latest(limit)
    output.emit(RunList(runs=runs), lambda: render_runs(runs))


def render_runs(runs: list[RunSummary]) -> str:
    """The list as a table."""
    if not runs:
        return "no run has been saved yet; start one with: fitserve fix -- vllm serve MODEL"
    rows = [
        ("RUN", "KIND", "WHEN (UTC)", "TRIALS", "OUTCOME", "VERIFIED", "COMMAND"),
        *map(_row, runs),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(run: RunSummary) -> tuple[str, ...]:
    verified = {True: "yes", False: "no", None: "-"}[run.verified]
    when = run.started_utc[:16].replace("T", " ")
    return (
        run.run,
        run.made_by,
        when,
        str(run.trials),
        run.outcome or "unfinished",
        verified,
        _short(run.command),
    )


def _short(command: str) -> str:
    """The command from the server's program on, cut to a line's rest."""
    text = " ".join(command.split())
    if found := PROGRAMS.search(text):
        text = found[1]
    return text if len(text) <= COMMAND_CHARACTERS else f"{text[: COMMAND_CHARACTERS - 1]}…"
