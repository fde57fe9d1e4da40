"""What ``fix`` and ``run`` share: the launch behind ``--``, numbers as vLLM writes them, seconds."""

import math
from collections.abc import Callable
from typing import Any

import click

from fitserve.errors import UsageError
from fitserve.facts.serve_options import read_integer

LAUNCH_SETTINGS = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
"""The first word of the launch ends the tool's own options, with or without ``--``."""


class Amount(click.FloatRange):
    """A number with an end: ``nan`` compares with nothing, so that no bound would hold it."""

    name = "float range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number within its range."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


def goal_option(name: str, words: str) -> Callable[..., Any]:
    """An option that takes a number above zero as vLLM writes it: ``32k`` is 32,000, ``32K`` is 32,768."""
    return click.option(name, metavar="NUMBER", callback=_whole_number, help=words)


def _whole_number(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = read_integer(text)
    except ValueError:
        number = 0
    if number <= 0:
        raise click.BadParameter(f"{text!r} is no whole number above 0, such as 32768 or 32K")
    return number


def read_release(text: str | None) -> str | None:
    """A release of vLLM as it is written everywhere: ``v0.32`` is 0.32.

    Raises:
        UsageError: it is no version.
    """
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(text)) if text else None
    except InvalidVersion:
        raise UsageError(
            f"{text!r} is no version", where="--vllm-version", hint="give one such as 0.32.0"
        ) from None


def launch_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the launch, as the argument ``launch``."""
    return click.argument("launch", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- LAUNCH...")(
        command
    )


def seconds_option(name: str, default: float, words: str) -> Callable[..., Any]:
    """An option that takes seconds above zero."""
    return click.option(
        name,
        type=Amount(0, min_open=True),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=words,
    )


log_dir_option = click.option(
    "--log-dir",
    type=click.Path(file_okay=False),
    help="Where the server's output is kept.",
)

wait_option = click.option(
    "--wait",
    type=Amount(0),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for a device that another fitserve holds.",
)
