"""Where a run goes on that was killed, interrupted, or cut off by a reboot (o: processes, files)."""

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fitserve.diagnose.engine import diagnose_path
from fitserve.diagnose.finding import Advice, Diagnosis
from fitserve.errors import FitserveError, MachineError, UsageError
from fitserve.facts.command import Launch
from fitserve.facts.find_launch import find_launch
from fitserve.fix.isolate import concluded
from fitserve.report.record import Record
from fitserve.report.record_words import outcome_words
from fitserve.report.secrets import MASK
from fitserve.store.journal import Journal
from fitserve.trial.choice import changed
from fitserve.trial.identity import boot, end_all, is_alive, marked, name_of, tree
from fitserve.trial.outcome import Change, Pending, ProcessId, Trial
from fitserve.trial.progress import Progress

KILLED = "the tool was killed while this trial ran; it was done again"

_GRACE_SECONDS = 10.0
_CONTAINER_SECONDS = 30.0


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Where the loop begins.

    Attributes:
        launch: the command of the first trial, or of the last one that is over.
        change: what that trial changes.
        over: why the last trial failed; None where the launch is still to be tried, or is proven.
        is_proven: that trial served, and every check passed.
    """

    launch: Launch
    change: Change | None = None
    over: Diagnosis | None = None
    is_proven: bool = False


def refuse_other_runs(record: Record) -> None:
    """Refuse what cannot go on.

    Raises:
        UsageError: the run has ended, or is no run of ``fix``.
        MachineError: it is still going on.
    """
    if record.kind != "fix":
        raise UsageError(
            f"run {record.run} was made by {record.kind}, and only a run of fix can go on",
            hint="list them with: fitserve runs",
        )
    if record.outcome not in (None, "stopped"):
        raise UsageError(
            f"run {record.run} has ended: {outcome_words(record)}: {record.reason}",
            hint=f"see it with: fitserve report {record.run}",
        )
    pending = record.pending
    if pending is not None and pending.tool and pending.boot == boot() and is_alive(pending.tool):
        raise MachineError(
            f"run {record.run} is still going on, in process {name_of(pending.tool.pid)}",
            hint="wait for its end, or stop it with Ctrl-C or TERM",
        )


def whole_command(record: Record, given: Sequence[str]) -> list[str]:
    """The run's command with the keys that the journal does not keep.

    Args:
        record: the run.
        given: the command as it was given again; empty where it was not.

    Raises:
        UsageError: the keys are needed, or another command was given.
    """
    if given:
        _secrets_of(record.command, given)
        return list(given)
    if any(MASK in word for word in record.command):
        raise UsageError(
            f"the command of run {record.run} holds a key, which the journal does not keep",
            hint=f"give the command again: fitserve fix --resume {record.run} -- vllm serve ...",
        )
    return record.command


def begin_again(record: Record, command: Sequence[str]) -> Begin:
    """What the loop begins with; the last trial of the record is over, or is to be done again.

    Args:
        record: the run, with no trial under way.
        command: its whole command.
    """
    if not record.trials:
        return Begin(launch=find_launch(command, os.environ))
    steps = [trial for trial in record.trials if trial.change is None or trial.change.purpose == "fix"]
    last = steps[-1] if steps else record.trials[-1]
    launch = _launch_of(last, steps, record, command)
    if last.outcome == "served" and last.cause is None:
        return Begin(launch=launch, change=last.change, is_proven=True)
    over = None if last.outcome == "stopped" else last.diagnosis
    if over is not None:
        over = _with_experiments(over, launch, record.trials[record.trials.index(last) + 1 :])
    return Begin(launch=launch, change=last.change, over=over)


def _launch_of(last: Trial, steps: Sequence[Trial], record: Record, command: Sequence[str]) -> Launch:
    """The command of a trial, with the keys and the files that the journal does not keep."""
    if any(_is_gone(word) for word in last.argv):
        # A copy of a script or a config file lay beside the logs, and has gone with the temporary folder.
        launch = find_launch(command, os.environ)
        for change in (trial.change for trial in steps if trial.change is not None):
            launch = changed(launch, Advice(flag=change.flag, to=change.to, why=change.why))
        return launch
    secrets = _secrets_of(record.command, command)
    env = {name: _filled(value, secrets) for name, value in last.env.items()}
    launch = find_launch([_filled(word, secrets) for word in last.argv], os.environ)
    return msgspec.structs.replace(launch, env={**launch.env, **env})


def _with_experiments(diagnosis: Diagnosis, launch: Launch, later: Sequence[Trial]) -> Diagnosis:
    """The diagnosis with what the experiments after its trial have told."""
    for trial in later:
        if trial.change is not None and trial.change.purpose == "isolation" and trial.outcome != "stopped":
            served = trial.outcome == "served" and trial.cause is None
            diagnosis = concluded(diagnosis, launch, trial.change.flag, served=served)
    return diagnosis


def _is_gone(word: str) -> bool:
    """True for a file of a trial's own that is not there any more."""
    path = Path(word.rpartition("=")[2])
    return path.is_absolute() and path.name.startswith(("trial-", ".trial-")) and not path.exists()


def settle_pending(record: Record, journal: Journal, progress: Progress) -> Record:
    """The record with the trial that was under way marked as stopped; what it left running is ended first."""
    pending = record.pending
    if pending is None:
        return record
    end_leftovers(record.run, pending, progress)
    digest, diagnosis = None, None
    if pending.log_path and Path(pending.log_path).is_file():
        digest = journal.keep_log(Path(pending.log_path))
        with contextlib.suppress(FitserveError, OSError):
            diagnosis = diagnose_path(Path(pending.log_path))
    trial = Trial(
        n=pending.n,
        argv=pending.argv,
        env=pending.env,
        change=pending.change,
        outcome="stopped",
        seconds=0.0,
        diagnosis=diagnosis,
        log_path=pending.log_path,
        notes=[KILLED],
    )
    logs = {**record.logs, trial.n: digest} if digest else record.logs
    return msgspec.structs.replace(record, trials=[*record.trials, trial], logs=logs, pending=None)


def end_leftovers(run: str, pending: Pending, progress: Progress) -> None:
    """End what a killed trial has left running, as far as it is provably its own; the rest is named."""
    if pending.boot.partition(" ")[0] != boot().partition(" ")[0]:
        progress.note(
            f"trial {pending.n} ran on {pending.boot.partition(' ')[0]}: what it left is not seen here"
        )
        return
    if pending.boot == boot():
        found = _own(run, pending)
        if found:
            names = ", ".join(name_of(process.pid) for process in found)
            progress.note(f"ending what trial {pending.n} left running: {names}")
        for process in end_all(found, _GRACE_SECONDS):
            progress.note(f"still running, and not to be ended from here: {name_of(process.pid)}")
    _end_container(pending, progress)


def _own(run: str, pending: Pending) -> list[ProcessId]:
    """The living processes that were recorded, everything below them, and whatever carries the trial's mark."""
    found = {process for process in pending.processes if is_alive(process)}
    for process in list(found):
        found |= set(tree(process.pid))
    return sorted(found | set(marked(f"{run}.{pending.n}")), key=lambda process: process.pid)


def _end_container(pending: Pending, progress: Progress) -> None:
    """End the container whose id the trial has written down, where it is still there."""
    if len(pending.container) != 2:
        return
    engine, cid_file = pending.container
    try:
        container = Path(cid_file).read_text(encoding="ascii").strip()
        done = subprocess.run(
            [engine, "kill", container], check=False, capture_output=True, timeout=_CONTAINER_SECONDS
        )
    except FileNotFoundError:
        return
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        progress.note(f"the container of trial {pending.n} could not be ended ({cid_file}): {error}")
        return
    if done.returncode == 0:
        progress.note(f"ended the container that trial {pending.n} left running: {container[:12]}")
    Path(cid_file).unlink(missing_ok=True)


def _secrets_of(masked: Sequence[str], whole: Sequence[str]) -> list[str]:
    """What stands in a command where the journal has masks, in order."""
    secrets: list[str] = []
    if len(masked) != len(whole):
        raise _another_command(masked)
    for word, real in zip(masked, whole, strict=True):
        pattern = "(.*)".join(map(re.escape, word.split(MASK)))
        match = re.fullmatch(pattern, real, re.DOTALL)
        if match is None:
            raise _another_command(masked)
        secrets += match.groups()
    return secrets


def _filled(word: str, secrets: list[str]) -> str:
    """The word with its masks filled, from the front of the list, which gets shorter."""
    while MASK in word and secrets:
        word = word.replace(MASK, secrets.pop(0), 1)
    return word


def _another_command(masked: Sequence[str]) -> UsageError:
    return UsageError(
        "the run is of another command",
        where=" ".join(masked),
        hint="leave the command out, or give the same one",
    )
