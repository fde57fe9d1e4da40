"""``fitserve redact FILE``: the text without anything private."""

import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

import click
import msgspec

from fitserve.cli.options import Output, output_options
from fitserve.errors import EXIT_OK, InputError, UsageError

_STDIN = "-"


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """How often one kind was replaced.

    Attributes:
        kind: what it is; its pseudonyms begin with this word, or have the form of what they stand for.
        distinct: how many different values.
        count: how many places.
    """

    kind: str
    distinct: int
    count: int


class RedactedText(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``redact``."""

    schema: int = 1
    kind: Literal["redaction"] = "redaction"
    text: str
    redactions: list[Redaction]


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--show-redactions", is_flag=True, help="Kinds and counts on stderr.")
@click.option("--hide-models", is_flag=True, help="Names of models too, except those of well-known makers.")
@output_options
def command(file: str, show_redactions: bool, hide_models: bool, output: Output) -> int:
    """The text without anything private, on stdout; FILE may be gzipped, - is the standard input.

    The same thing has the same pseudonym throughout, and the text gives the same diagnosis as before.
    """
    from fitserve.facts.log import open_log
    from fitserve.report.redact.own import own_names
    from fitserve.report.redact.redactor import Redactor

    path = None if file == _STDIN else Path(file)
    if (
        path is not None
        and output.path is not None
        and output.path.exists()
        and path.exists()
        and path.samefile(output.path)
    ):
        raise UsageError("a file cannot be redacted into itself", hint="name another file behind -o")
    redactor = Redactor(hide_models=hide_models, own_names=own_names())
    with open_log(path) as source:
        if output.as_json:
            text = BytesIO()
            redactor.stream(source, text)
            found = _listed(redactor.counts())
            output.emit(RedactedText(text=text.getvalue().decode(errors="replace"), redactions=found), str)
        elif output.path is None:
            redactor.stream(source, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            _write(redactor.stream, source, output.path)
    if show_redactions and not output.as_json:
        click.echo(_table(_listed(redactor.counts())), err=True)
    return EXIT_OK


def _write(stream: Callable[[BinaryIO, BinaryIO], None], source: BinaryIO, path: Path) -> None:
    try:
        with path.open("wb") as sink:
            stream(source, sink)
    except OSError as error:
        raise InputError(
            f"the text cannot be written: {error.strerror}",
            where=str(path),
            hint="name a file in a folder that exists",
        ) from error


def _listed(counts: dict[str, tuple[int, int]]) -> list[Redaction]:
    return [
        Redaction(kind=kind, distinct=distinct, count=count) for kind, (distinct, count) in counts.items()
    ]


def _table(redactions: list[Redaction]) -> str:
    if not redactions:
        return "nothing private was found"
    width = max(len(one.kind) for one in redactions)
    rows = [f"{'kind':<{width}}  distinct  places"]
    rows += [f"{one.kind:<{width}}  {one.distinct:>8,}  {one.count:>6,}" for one in redactions]
    return "\n".join(rows)
