"""``fitserve run``: start it unchanged under supervision."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fitserve.cli.launch_options import LAUNCH_SETTINGS, launch_argument, log_dir_option
from fitserve.errors import FitserveError

if TYPE_CHECKING:
    from fitserve.fix.supervise import Supervised

TERMINATION_LOG = Path("/dev/termination-log")
"""Where Kubernetes reads why a container ended."""


@click.command("run", context_settings=LAUNCH_SETTINGS)
@click.option(
    "--termination-log",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"A file for a short diagnosis; {TERMINATION_LOG} where that is there.",
)
@log_dir_option
@click.option("--quiet", "-q", is_flag=True, help="No diagnosis on stderr.")
@launch_argument
def command(
    *, launch: tuple[str, ...], termination_log: Path | None, log_dir: str | None, quiet: bool
) -> int:
    """Start a launch unchanged; when it fails, say why on stderr.

    Its output passes through, signals go on to it, and its exit code is kept.

    \b
        fitserve run -- vllm serve MODEL
    """  # noqa: D301 - \b is click's mark for a block that it must not wrap
    from fitserve.fix.supervise import supervise, termination_message
    from fitserve.store.run_id import new_run_id

    run = new_run_id()
    folder = Path(log_dir) if log_dir else Path(tempfile.mkdtemp(prefix=f"fitserve-{run}-"))
    supervised = supervise(launch, run=run, environ=os.environ, log_path=folder / "run.log")
    code = supervised.exit.shell_code
    diagnosis = supervised.diagnosis
    if diagnosis is not None:
        message = termination_message(diagnosis, code)
        if not quiet:
            from fitserve.report.text import render_diagnosis

            click.echo(
                render_diagnosis(diagnosis, source=supervised.record.trials[0].log_path or "log"), err=True
            )
        _leave_message(termination_log, message)
    _keep(supervised)
    return code


def _keep(supervised: "Supervised") -> None:
    """Keep the run; whatever hinders that must not change the exit code."""
    from fitserve.fix.supervise import keep
    from fitserve.store.journal import open_journal

    try:
        keep(supervised, open_journal())
    except FitserveError as error:
        click.echo(f"warning: this run is not saved: {error.what}", err=True)


def _leave_message(path: Path | None, message: bytes) -> None:
    """Write where the container's runtime looks; a place that cannot be written is passed over, or said."""
    if path is None:
        if TERMINATION_LOG.exists() and os.access(TERMINATION_LOG, os.W_OK):
            with contextlib.suppress(OSError):
                TERMINATION_LOG.write_bytes(message)
        return
    try:
        path.write_bytes(message)
    except OSError as error:
        click.echo(f"warning: {path} cannot be written: {error.strerror}", err=True)
