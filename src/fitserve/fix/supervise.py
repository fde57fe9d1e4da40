"""One start, unchanged: its output passes through, its end is explained, its exit code is kept."""

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from fitserve import __version__
from fitserve.diagnose.finding import Diagnosis
from fitserve.errors import FitserveError, UsageError
from fitserve.facts.command import Launch, read_command
from fitserve.facts.find_launch import find_launch
from fitserve.report.record import Outcome, Record
from fitserve.report.record_environment import asked_meanwhile
from fitserve.report.secrets import without_secrets
from fitserve.store.journal import Journal, say_on_stderr
from fitserve.trial.attempt import Attempt
from fitserve.trial.devices import lock_keys, probe_for
from fitserve.trial.interrupt import relaying
from fitserve.trial.launch import Exit
from fitserve.trial.locks import Locks, lock_folder
from fitserve.trial.outcome import State, Trial
from fitserve.trial.progress import Quiet

TERMINATION_BYTES = 4096
"""The most that Kubernetes reads of a container's termination message."""


class Supervised(msgspec.Struct, frozen=True, kw_only=True):
    """A program that has ended.

    Attributes:
        record: the run.
        exit: how the program ended.
        diagnosis: why it failed; None where it did not, or was told to stop.
        never_served: True where a vLLM launch has ended well before it served, which no log tells as a failure.
    """

    record: Record
    exit: Exit
    diagnosis: Diagnosis | None
    never_served: bool = False


def any_launch(command: Sequence[str]) -> Launch:
    """The launch in a command; a command that hides it, such as a script, is taken as it is."""
    try:
        return read_command(command)
    except UsageError:
        if not command:
            raise
        return Launch(argv=tuple(command), program=0, first=len(command), takes_model=False)


def starts_server(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """True for a command that starts vLLM's server, itself or in a script or compose file that it names."""
    try:
        find_launch(command, environ, watched=False)
    except FitserveError:
        return False
    return True


def supervise(
    command: Sequence[str],
    *,
    run: str,
    environ: Mapping[str, str],
    log_path: Path,
    wait_seconds: float = 0.0,
    say: Callable[[str], None] = say_on_stderr,
) -> Supervised:
    """Run a program to its end; signals go on to it. Its devices are held until it serves, or has ended.

    Args:
        command: the program, as it was given.
        run: the run's id.
        environ: the user's environment.
        log_path: where its output is kept.
        wait_seconds: how long another fitserve may keep a device.
        say: told for whom it waits.

    Raises:
        MachineError: it cannot be started, or another fitserve holds a device.
    """
    started = dt.datetime.now(dt.UTC)
    begin = time.monotonic()
    launch = any_launch(command)
    probe = probe_for(launch, environ)
    locks = Locks(run, lock_folder(environ))
    if launch.first < len(launch.words):  # what is no vLLM launch needs no device for itself
        locks.hold(lock_keys(probe), wait_seconds, say)
    with relaying() as relay:
        attempt = Attempt(
            1,
            launch,
            environ=environ,
            log_path=log_path,
            progress=Quiet(),
            pass_through=True,
            ask_health=False,
            probe=probe,
        )
        relay.hand_to(attempt.process)
        environment = asked_meanwhile(environ)
        try:
            watched = attempt.watch.until_exit(locks.release)
        finally:
            attempt.end(0)
            locks.release()
    ended = attempt.process.exit or Exit(None, 9)
    state = _state(attempt, ended, told_to_stop=bool(relay.came))
    trial = attempt.measured(attempt.trial(msgspec.structs.replace(watched, state=state)))
    outcomes: dict[State, Outcome] = {"served": "served", "stopped": "stopped"}
    record = Record(
        run=run,
        kind="run",
        started_utc=started.isoformat(timespec="seconds"),
        fitserve_version=__version__,
        command=list(command),
        environment={**environment(), **_version(trial)},
        trials=[trial],
        outcome=outcomes.get(state, "not-reached"),
        reason=f"the program ended with exit code {ended.shell_code}",
        final_command=list(command) if state == "served" else None,
        seconds=round(time.monotonic() - begin, 3),
    )
    failed = state == "failed" and ended.code != 0
    return Supervised(
        record=record,
        exit=ended,
        diagnosis=trial.diagnosis if failed else None,
        never_served=state == "failed" and ended.code == 0 and starts_server(command, environ),
    )


def _version(trial: Trial) -> dict[str, str]:
    version = trial.diagnosis.vllm_version if trial.diagnosis else None
    return {"vllm": version} if version else {}


def keep(supervised: Supervised, journal: Journal, *, keep_log: bool) -> bool:
    """Keep the run and its log; True where the journal has the log, so that its file is not needed any more.

    Args:
        supervised: the run.
        journal: where it is kept.
        keep_log: the log's file stays as well, and is named.
    """
    record = supervised.record
    path = record.trials[0].log_path
    digest = journal.keep_log(Path(path)) if path else None
    if digest is not None:
        trials = record.trials if keep_log else [msgspec.structs.replace(record.trials[0], log_path=None)]
        record = msgspec.structs.replace(record, logs={1: digest}, trials=trials)
    journal.save(without_secrets(record))
    return digest is not None


def termination_message(diagnosis: Diagnosis, exit_code: int) -> bytes:
    """The diagnosis in at most 4096 bytes, most important first."""
    where = "" if diagnosis.line is None else f" (line {diagnosis.line})"
    lines = [
        f"{diagnosis.severity}[{diagnosis.cause}]: {diagnosis.message}",
        f"stage {diagnosis.stage}{where}, {diagnosis.confidence}, exit code {exit_code}",
        *(
            f"help: {advice.option or advice.action or advice.flag}: {advice.why}"
            for advice in diagnosis.advice
        ),
        *(f"| {evidence.text}" for evidence in diagnosis.evidence),
    ]
    text = ""
    for line in lines:
        if len(f"{text}{line}\n".encode()) > TERMINATION_BYTES:
            break
        text += f"{line}\n"
    return (text or lines[0]).encode()[:TERMINATION_BYTES]


def _state(attempt: Attempt, ended: Exit, *, told_to_stop: bool) -> State:
    if told_to_stop:
        return "stopped"
    return "served" if ended.code == 0 and attempt.watch.said_ready_at is not None else "failed"
