"""``fitserve report``: one run, read in several ways; what leaves is redacted."""

import shutil
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import click
import msgspec

from fitserve.cli.emit_options import Emit, emit_options
from fitserve.cli.options import Output, output_options
from fitserve.cli.report_source import Source, open_source
from fitserve.errors import InputError, UsageError
from fitserve.report.record import Record

if TYPE_CHECKING:
    from fitserve.report.html.extras import Extras
    from fitserve.report.redact.redactor import Redactor

Format = Literal["text", "json", "md", "html"]


@click.command(short_help="one run as text, JSON, Markdown or one HTML file")
@click.argument("run", metavar="RUN|BUNDLE.zip")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "md", "html"]),
    default="text",
    show_default=True,
    help="json is the whole record; md fits an issue form; html is one file with charts.",
)
@click.option("--log", "log_of", type=click.IntRange(min=1), metavar="N", help="The log of trial N instead.")
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.zip",
    help="Write all of it for somebody else: record, logs, environment, HTML.",
)
@click.option(
    "--redact/--no-redact",
    " /--private",
    "redact",
    default=True,
    show_default=True,
    help="Hide names, addresses and keys.",
)
@click.option("--hide-models", is_flag=True, help="Names of models too, except those of well-known makers.")
@emit_options
@output_options
def command(
    output: Output,
    emit: Emit,
    run: str,
    *,
    form: Format,
    log_of: int | None,
    bundle: Path | None,
    redact: bool,
    hide_models: bool,
) -> None:
    """One run from the journal (its id, the beginning of one, or "last"), or a bundle that somebody sent."""
    source = open_source(run)
    redactor = _redactor(hide_models=hide_models) if redact and not source.redacted else None
    if log_of is not None:
        _write_log(source, log_of, redactor, output)
    elif emit.kinds:
        _emit(emit, source.record, output)
        return
    elif bundle is not None:
        _write_bundle(bundle, source, redactor)
    else:
        _tell(source, form, redactor, output)
    if redactor is not None and not output.quiet:
        click.echo(redactions_words(redactor.counts()), err=True)


def redactions_words(counts: dict[str, tuple[int, int]]) -> str:
    """What was hidden, in one line."""
    if not counts:
        return "redacted: nothing private was found"
    kinds = ", ".join(f"{distinct:,} {kind} ({places:,}x)" for kind, (distinct, places) in counts.items())
    return f"redacted: {kinds}; --no-redact keeps them"


def _redactor(*, hide_models: bool) -> "Redactor":
    from fitserve.report.redact.own import own_names
    from fitserve.report.redact.redactor import Redactor

    return Redactor(hide_models=hide_models, own_names=own_names())


def _tell(source: Source, form: Format, redactor: "Redactor | None", output: Output) -> None:
    record = _leaving(source.record, redactor)
    if form == "json":
        output = msgspec.structs.replace(output, as_json=True)
    output.emit(record, lambda: _render(source, record, form, redactor))


def _leaving(record: Record, redactor: "Redactor | None") -> Record:
    if redactor is None:
        return record
    # The second time, names are hidden that only a later part of the record has given away.
    redacted: Record = redactor.value(redactor.value(record))
    return redacted


def _render(source: Source, record: Record, form: Format, redactor: "Redactor | None") -> str:
    if form == "md":
        from fitserve.report.record_markdown import render_record_markdown

        return render_record_markdown(record)
    if form == "html":
        from fitserve.report.html.page import render_record_html

        return render_record_html(record, _extras(source, record, redactor))
    from fitserve.report.record_text import render_record

    return render_record(record)


def _extras(source: Source, record: Record, redactor: "Redactor | None") -> "Extras":
    """What the page shows beside the record."""
    from fitserve.cli.report_extras import emitted_of, frontier_of
    from fitserve.report.html.extras import Extras

    frontier = source.frontier or frontier_of(source.record)
    emitted, not_emitted = emitted_of(record)
    extras = Extras(frontier=frontier, emitted=emitted, not_emitted=not_emitted)
    if redactor is None:
        words = redactions_words(source.redactions) if source.redacted else extras.redactions
        return msgspec.structs.replace(extras, redactions=words)
    shown: Extras = redactor.value(extras)
    return msgspec.structs.replace(shown, redactions=redactions_words(redactor.counts()))


def _write_bundle(path: Path, source: Source, redactor: "Redactor | None") -> None:
    from fitserve.report.bundle_write import Content, Told, write_bundle
    from fitserve.report.html.page import render_record_html

    if source.path is not None:
        raise UsageError("a bundle is made of a run in the journal", where=str(source.path))
    known = _leaving(source.record, redactor)

    def tell() -> Told:
        record = _leaving(known, redactor)
        extras = _extras(source, record, redactor)
        return Told(
            record=record,
            frontier=extras.frontier,
            page=render_record_html(record, extras),
            redactions=None if redactor is None else redactor.counts(),
        )

    content = Content(
        logs={n: partial(source.open_log, n) for n in source.logs},
        copy=shutil.copyfileobj if redactor is None else redactor.stream,
        tell=tell,
    )
    manifest = write_bundle(path, content)
    size = sum(one.size_bytes for one in manifest.files)
    click.echo(
        f"written: {path}: {len(manifest.files)} files of {size:,} bytes, {path.stat().st_size:,} packed",
        err=True,
    )


def _write_log(source: Source, n: int, redactor: "Redactor | None", output: Output) -> None:
    """The kept log of a trial, on stdout or in a file.

    Raises:
        InputError: there is no such trial, or its log was not kept; the file cannot be written.
    """
    if output.as_json:
        raise UsageError("--log writes the log as text", hint="leave out --json")
    if n not in source.logs:
        raise InputError(
            f"the log of trial {n} was not kept",
            where=f"run {source.record.run}, {len(source.record.trials)} trials",
            hint=f"see the trials with: fitserve report {source.record.run}",
        )
    copy = shutil.copyfileobj if redactor is None else redactor.stream
    try:
        with source.open_log(n) as log, _sink(output.path) as sink:
            copy(log, sink)
            sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(
            f"the log cannot be written: {error.strerror}", where=str(output.path or "stdout")
        ) from error


def _sink(path: Path | None) -> "nullcontext[BinaryIO] | BinaryIO":
    return nullcontext(sys.stdout.buffer) if path is None else path.open("wb")


def _emit(emit: Emit, record: Record, output: Output) -> None:
    """Write what serves instead of the report."""
    import os

    from fitserve.report.emit.from_record import deployment_of_record

    text = emit.text(deployment_of_record(record, os.environ))
    if text:
        msgspec.structs.replace(output, as_json=False).emit(None, lambda: text)
