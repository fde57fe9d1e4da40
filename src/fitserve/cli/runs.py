"""``fitserve runs``: what was tried."""

import datetime as dt
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import click

from fitserve.cli.options import Output, output_options
from fitserve.errors import InputError, UsageError
from fitserve.store.journal import Journal, RunList, RunSummary, open_journal_to_read

COMMAND_CHARACTERS = 56
PROGRAMS = re.compile(r"(?:^|[\s/.])((?:vllm serve|api_server) .*)")
"""The server's program and its arguments, behind wrappers, folders and a module's name."""


AGES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.command(short_help="what was tried")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The newest so many."
)
@click.option("--delete", "doomed", metavar="RUN", help="Forget a run and its logs, and list the rest.")
@click.option("--prune", is_flag=True, help="Forget old runs and their logs: with --keep or --older-than.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="With --prune: all but the newest N.")
@click.option("--older-than", metavar="AGE", help="With --prune: saved last before that, such as 30d or 12h.")
@click.option(
    "--export",
    "export_to",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE.jsonl",
    help="Every record as it is kept, one JSON object a line; - is stdout.",
)
@output_options
def command(
    output: Output,
    *,
    limit: int,
    doomed: str | None,
    prune: bool,
    keep: int | None,
    older_than: str | None,
    export_to: Path | None,
) -> None:
    """The runs that were tried, newest first. See one with: fitserve report RUN."""
    if prune != (keep is not None or older_than is not None) or (keep is not None and older_than is not None):
        raise UsageError("--prune goes with one of --keep N and --older-than AGE")
    journal = open_journal_to_read()
    if export_to is not None:
        _export(journal, export_to, quiet=output.quiet)
        return
    if doomed is not None:
        journal.delete(doomed)
    if prune:
        gone = journal.prune(keep=keep, before_utc=None if older_than is None else _before(older_than))
        if not output.quiet:
            click.echo(f"forgotten: {len(gone):,} {'run' if len(gone) == 1 else 'runs'}", err=True)
    runs = journal.latest(limit)
    output.emit(RunList(runs=runs), lambda: render_runs(runs))


def _before(age: str) -> str:
    """The time that lies so long back, as the journal writes it.

    Raises:
        UsageError: it is no age.
    """
    found = re.fullmatch(r"(\d{1,6})([mhdw])", age.strip())
    if found is None:
        raise UsageError(f"{age!r} is no age", where="--older-than", hint="write it as 30d, 12h, 45m or 2w")
    back = dt.timedelta(**{AGES[found[2]]: int(found[1])})
    try:
        return (dt.datetime.now(dt.UTC) - back).isoformat(timespec="seconds")
    except OverflowError as error:
        raise UsageError(f"{age} ago is before all time", where="--older-than") from error


def _export(journal: Journal, path: Path, *, quiet: bool) -> None:
    """Write every record, as it is kept: nothing is hidden.

    Raises:
        InputError: the file cannot be written.
    """
    from fitserve.report.record import record_to_json

    is_stdout = str(path) == "-"
    count = 0
    try:
        with nullcontext(sys.stdout.buffer) if is_stdout else path.open("wb") as out:
            for record in journal.every():
                out.write(record_to_json(record) + b"\n")
                count += 1
            out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"the runs cannot be written: {error.strerror}", where=str(path)) from error
    if not quiet:
        words = (
            "nothing in it is hidden; a run that may leave is made by: fitserve report RUN --bundle FILE.zip"
        )
        click.echo(f"exported: {count:,} {'run' if count == 1 else 'runs'}; {words}", err=True)


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
