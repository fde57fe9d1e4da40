"""``fitserve report``: one run, read in several ways."""

import sys
from typing import Literal

import click
import msgspec

from fitserve.cli.emit_options import Emit, emit_options
from fitserve.cli.options import Output, output_options
from fitserve.errors import InputError, UsageError
from fitserve.report.record import Record
from fitserve.store.journal import Journal, open_journal_to_read

Format = Literal["text", "json", "md"]


@click.command(short_help="one run as text, JSON or Markdown")
@click.argument("run")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "md"]),
    default="text",
    show_default=True,
    help="json is the whole record; md fits an issue form and leaves out the command's secrets.",
)
@click.option("--log", "log_of", type=click.IntRange(min=1), metavar="N", help="The log of trial N instead.")
@emit_options
@output_options
def command(output: Output, emit: Emit, run: str, form: Format, log_of: int | None) -> None:
    """One run from the journal: its id, the beginning of one, or "last"."""
    journal = open_journal_to_read()
    record = journal.load(run)
    if log_of is not None:
        if output.path is not None or output.as_json:
            raise UsageError("--log writes the log as it was, to stdout", hint="leave out --json and -o")
        sys.stdout.buffer.write(_log(journal, record, log_of))
        return
    if emit.kinds:
        _emit(emit, record, output)
        return
    if form == "json":
        output = msgspec.structs.replace(output, as_json=True)
    output.emit(record, lambda: _render(record, form))


def _emit(emit: Emit, record: Record, output: Output) -> None:
    """Write what serves instead of the report."""
    import os

    from fitserve.report.emit.from_record import deployment_of_record

    text = emit.text(deployment_of_record(record, os.environ))
    if text:
        msgspec.structs.replace(output, as_json=False).emit(None, lambda: text)


def _render(record: Record, form: Format) -> str:
    if form == "md":
        from fitserve.report.record_markdown import render_record_markdown

        return render_record_markdown(record)
    from fitserve.report.record_text import render_record

    return render_record(record)


def _log(journal: Journal, record: Record, n: int) -> bytes:
    """The kept log of a trial.

    Raises:
        InputError: there is no such trial, or its log was not kept.
    """
    if n not in record.logs:
        raise InputError(
            f"the log of trial {n} was not kept",
            where=f"run {record.run}, {len(record.trials)} trials",
            hint="see the trials with: fitserve report " + record.run,
        )
    return journal.read_log(record.logs[n])
