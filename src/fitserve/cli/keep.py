"""Keeping what ``verify`` and ``diagnose`` found in the journal. It never changes their answer."""

import contextlib
import datetime as dt
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from fitserve import __version__
from fitserve.diagnose.finding import Diagnosis
from fitserve.errors import FitserveError
from fitserve.report.record import Maker, Outcome, Record
from fitserve.trial.outcome import Trial
from fitserve.verify.verification import Verification


def keep_verification(verification: Verification, seconds: float, *, quiet: bool) -> None:
    """Keep the checks of a server that somebody else had started; with this machine where it is the server's."""
    from fitserve.report.record_environment import recorded_environment

    host = urlsplit(verification.url).hostname or ""
    is_here = host in ("localhost", "::1") or host.startswith("127.")
    environment = recorded_environment(os.environ) if is_here else {}
    if verification.server_version is not None:
        environment["vllm"] = verification.server_version
    parts = {"verification": verification, "seconds": seconds, "environment": environment}
    _keep(lambda _: _record("verify", "checked", **parts), quiet=quiet)


def keep_diagnosis(diagnosis: Diagnosis, log: Path, name: str, *, quiet: bool) -> None:
    """Keep a diagnosis and its log, as the start that it shows.

    Args:
        diagnosis: what the log says.
        log: the file, not packed.
        name: the log as the user knows it.
        quiet: say nothing of a success.
    """

    def make(journal: Any) -> Record:
        digest = journal.keep_log(log)
        return _diagnosed(diagnosis, name, {1: digest} if digest else {})

    _keep(make, quiet=quiet)


def leave_diagnosis(diagnosis: Diagnosis, log: Path | None, name: str) -> None:
    """Leave a diagnosis, and a copy of a log that is not large, for whoever opens the journal next.

    Args:
        diagnosis: what the log says.
        log: the file; None where it was the standard input.
        name: the log as the user knows it.
    """
    from fitserve.report.secrets import without_secrets
    from fitserve.store.inbox import leave, say

    why_not = leave(without_secrets(_diagnosed(diagnosis, name, {})), log)
    if why_not is not None:
        say(why_not)


def _diagnosed(diagnosis: Diagnosis, name: str, logs: dict[int, str]) -> Record:
    """The record of a diagnosis: one start, as its log shows it.

    The machine that a log is read on is seldom the one that wrote it: only what the log says is kept.
    """
    trial = Trial(
        n=1,
        argv=[],
        outcome="failed" if diagnosis.failed else "served",
        cause=diagnosis.cause if diagnosis.failed else None,
        seconds=0.0,
        diagnosis=diagnosis,
        log_path=name,
    )
    found = {"vllm": diagnosis.vllm_version} if diagnosis.vllm_version else {}
    return _record("diagnose", "diagnosed", trials=[trial], logs=logs, environment=found)


@contextlib.contextmanager
def plain_file(path: Path | None) -> Iterator[Path]:
    """A log as a file that is not packed: the file itself, or a copy that goes afterwards.

    Args:
        path: the log; None is the standard input.

    Raises:
        InputError: it cannot be read.
    """
    from fitserve.facts.log import open_log

    with open_log(path) as source:
        if path is not None and getattr(source, "name", None) == str(path):  # an unpacking stream has no name
            yield path
            return
        with tempfile.NamedTemporaryFile(prefix="fitserve-log-") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            yield Path(copy.name)


def _record(kind: Maker, outcome: Outcome, **parts: Any) -> Record:
    from fitserve.store.run_id import new_run_id

    return Record(
        run=new_run_id(),
        kind=kind,
        started_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        fitserve_version=__version__,
        command=["fitserve", *sys.argv[1:]],
        outcome=outcome,
        **parts,
    )


def _keep(make: Any, *, quiet: bool) -> None:
    """Save a record; what keeps it from being saved is one line on stderr."""
    from fitserve.store.journal import NullJournal, open_journal

    try:
        journal = open_journal()
    except FitserveError as error:
        place = f" ({error.where})" if error.where else ""
        click.echo(f"warning: this run is not saved: {error.what}{place}", err=True)
        return
    if isinstance(journal, NullJournal):
        return
    record = make(journal)
    journal.save(record)
    if not quiet:
        click.echo(f"saved: fitserve report {record.run}", err=True)
