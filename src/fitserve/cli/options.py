"""The options that every command shares, and where its answer goes."""

import errno
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from fitserve.errors import InputError

Color = Literal["auto", "always", "never"]


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Where the answer goes and how it looks.

    Attributes:
        as_json: one JSON object instead of text.
        color: when to colour the text.
        quiet: no progress on stderr, no text beyond the answer.
        path: a file to write the answer to; None is stdout.
        redacted: names, addresses and keys are hidden in the answer.
    """

    as_json: bool
    color: Color
    quiet: bool
    path: Path | None
    redacted: bool = False

    def leaving(self, value: Any) -> Any:
        """The value as it may leave: without anything private where that is asked for."""
        if not self.redacted:
            return value
        from fitserve.report.redact.own import own_names
        from fitserve.report.redact.redactor import Redactor

        return Redactor(own_names=own_names()).value(value)

    @property
    def colored(self) -> bool:
        """True where the answer is for a terminal that shows colours."""
        if self.color == "auto":
            return self.path is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        return self.color == "always"

    def emit(self, value: Any, render: Callable[[], str]) -> None:
        """Write the answer: the value's JSON, or its text.

        Args:
            value: a struct whose JSON is a contract.
            render: makes the text; called only where text is wanted.
        """
        text = msgspec.json.encode(value) if self.as_json else render().rstrip("\n")
        try:
            if self.path is None:
                # JSON is UTF-8 whatever the terminal speaks: as bytes, it is written as it is.
                click.echo(text, color=self.colored)
            else:
                written = text if isinstance(text, bytes) else text.encode()
                self.path.write_bytes(written + b"\n")
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputError(
                f"the answer cannot be written: {error.strerror}",
                where="standard output" if self.path is None else str(self.path),
                hint="" if error.errno == errno.ENOSPC else "name a file in a folder that exists",
            ) from error


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json``, ``--color``, ``--quiet`` and ``-o``; the command gets them as one ``output`` argument."""

    @functools.wraps(command)
    def wrapped(*, as_json: bool, color: Color, quiet: bool, output_path: Path | None, **others: Any) -> Any:
        return command(output=Output(as_json=as_json, color=color, quiet=quiet, path=output_path), **others)

    options = [
        click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else."),
        click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto"),
        click.option("--quiet", "-q", is_flag=True, help="The answer alone."),
        click.option(
            "-o",
            "output_path",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write the answer to a file.",
        ),
    ]
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped
