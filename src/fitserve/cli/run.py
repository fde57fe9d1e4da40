"""``fitserve run``: start it unchanged under supervision."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fitserve.cli.launch_options import LAUNCH_SETTINGS, launch_argument, log_dir_option, wait_option
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
@wait_option
@click.option("--quiet", "-q", is_flag=True, help="No diagnosis on stderr.")
@launch_argument
def command(
    *, launch: tuple[str, ...], termination_log: Path | None, log_dir: str | None, wait: float, quiet: bool
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
    try:
        supervised = supervise(
            launch, run=run, environ=os.environ, log_path=folder / "run.log", wait_seconds=wait
        )
    except FitserveError:
        if not log_dir:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    is_kept = _keep(supervised, keep_log=log_dir is not None)
    if is_kept and not log_dir:
        shutil.rmtree(folder, ignore_errors=True)
    code = supervised.exit.shell_code
    diagnosis = supervised.diagnosis
    if diagnosis is not None:
        message = termination_message(diagnosis, code)
        if not quiet:
            from fitserve.report.text import render_diagnosis

            path = supervised.record.trials[0].log_path
            source = f"fitserve report {run} --log 1" if is_kept and not log_dir else path or "log"
            click.echo(render_diagnosis(diagnosis, source=source), err=True)
        _leave_message(termination_log, message)
    if supervised.never_served and not quiet:
        click.echo("note: the program ended with exit code 0 before it served", err=True)
    return code


def _keep(supervised: "Supervised", *, keep_log: bool) -> bool:
    """Keep the run; whatever hinders that must not change the exit code."""
    from fitserve.fix.supervise import keep
    from fitserve.store.journal import open_journal

    try:
        return keep(supervised, open_journal(), keep_log=keep_log)
    except FitserveError as error:
        click.echo(f"warning: this run is not saved: {error.what}", err=True)
        return False


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
