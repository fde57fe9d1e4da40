"""The loop: start it, read why it failed, change one thing, start it again, until it serves and the checks pass."""

import datetime as dt
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from fitserve import __version__
from fitserve.diagnose.finding import Advice, Diagnosis
from fitserve.errors import FitserveError, MachineError, UsageError
from fitserve.facts.command import Launch, shown
from fitserve.facts.find_launch import find_launch
from fitserve.fix.options import Options
from fitserve.fix.proof import cause_of_failed_checks, prove
from fitserve.report.record import Maker, Outcome, Record
from fitserve.report.secrets import without_secrets
from fitserve.store.journal import Journal
from fitserve.trial.address import read_address, with_free_port
from fitserve.trial.attempt import Attempt
from fitserve.trial.choice import Bounds, Choice, Try, change_of, changed, choose, tries
from fitserve.trial.devices import visible_devices
from fitserve.trial.elsewhere import not_ended_from_here, refuse_running_service
from fitserve.trial.interrupt import stopping_like_ctrl_c
from fitserve.trial.outcome import Change, Trial
from fitserve.trial.progress import Progress
from fitserve.trial.watch import Limits

Served = Callable[[Record, Attempt], None]
"""Called with the proven record while its server is still up."""


def fix(
    command: Sequence[str],
    *,
    options: Options,
    progress: Progress,
    journal: Journal,
    run: str,
    kind: Maker = "fix",
    environ: Mapping[str, str] = os.environ,
    on_served: Served | None = None,
) -> Record:
    """Make a command serve.

    An interrupt (Ctrl-C, TERM, HUP) ends what was started and gives a record whose outcome is ``stopped``.

    Args:
        command: the launch as the user gave it.
        options: how far to go.
        progress: is told how it goes on.
        journal: gets the record before and after each trial.
        run: the run's id.
        kind: who asks.
        environ: the user's environment.
        on_served: called when the checks have passed, while the server is up.

    Raises:
        UsageError: the command starts no vLLM server.
        MachineError: the port is taken, or the program cannot be started.
    """
    launch = find_launch(command, environ)
    environ = dict(environ)
    loop = _Loop(
        command,
        options=options,
        progress=progress,
        journal=journal,
        run=run,
        kind=kind,
        environ=environ,
    )
    with stopping_like_ctrl_c():
        try:
            loop.go(launch, on_served)
        except KeyboardInterrupt:
            loop.finish("stopped", "interrupted")
        except FitserveError as error:
            loop.finish("not-reached", error.what)
            raise
    return loop.record


def checked_launch(launch: Launch, environ: Mapping[str, str], progress: Progress) -> Launch:
    """The launch as the first trial will start it: on a free port, where a client can reach it.

    Raises:
        MachineError: the port is taken.
        UsageError: nothing could reach the server, or it could be started only once.
    """
    if launch.container is not None and launch.container.keeps_its_name:
        raise UsageError(
            "a second container could not have the name of the first",
            where=shown(launch.argv, launch.env),
            hint="leave out --name, or add --rm",
        )
    refuse_running_service(launch, environ)
    ready = with_free_port(launch, environ)
    address = read_address(ready, environ)
    if address.url is None:
        raise UsageError(
            "the server could not be reached from this machine, so nothing could be proven",
            where=shown(launch.argv, launch.env),
            hint=f"publish its port, as in docker run -p {address.port}:{address.port}, and leave out --uds",
        )
    if foreign := not_ended_from_here(launch):
        progress.note(foreign)
    if ready != launch:
        progress.note(f"port {read_address(launch, environ).port} is taken: using --port {address.port}")
    return ready


class _Loop:
    """One run: its record so far, and how it goes on."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        options: Options,
        progress: Progress,
        journal: Journal,
        run: str,
        kind: Maker,
        environ: Mapping[str, str],
    ) -> None:
        self.options = options
        self.progress = progress
        self.journal = journal
        self.environ = environ
        self.started = time.monotonic()
        self.tried: set[Try] = set()
        self.record = Record(
            run=run,
            kind=kind,
            started_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            fitserve_version=__version__,
            command=list(command),
            environment={"python": platform.python_version(), "platform": platform.platform()},
        )

    def go(self, launch: Launch, on_served: Served | None) -> None:
        """Try until it serves, or nothing is left to try."""
        launch = checked_launch(launch, self.environ, self.progress)
        folder = self._log_folder()
        change: Change | None = None
        for n in range(1, self.options.max_trials + 1):
            self.progress.trial_started(n, shown(launch.argv, launch.env), _in_words(change))
            self.save()
            attempt = Attempt(
                n,
                launch,
                change=change,
                environ=self.environ,
                log_path=folder / f"trial-{n}.log",
                progress=self.progress,
            )
            diagnosis = self._try(attempt, on_served)
            if diagnosis is None:
                return
            choice = choose(diagnosis, launch, self.tried, self._bounds(diagnosis))
            if choice.advice is None or n == self.options.max_trials or self._seconds_left() <= 0:
                self.finish("not-reached", self._why_not(diagnosis, choice))
                return
            self.tried |= tries(launch, choice.advice)
            launch, change = changed(launch, choice.advice), change_of(launch, choice.advice)

    def finish(self, outcome: Outcome, reason: str, final: Launch | None = None) -> None:
        """Close the record, and keep it."""
        env = [f"{name}={value}" for name, value in final.env.items()] if final else []
        self._update(
            outcome=outcome,
            reason=reason,
            final_command=[*(["env", *env] if env else []), *final.argv] if final else None,
        )
        self.save()

    def save(self) -> None:
        """Keep the record without the keys in its commands; a journal that fails has said so, and the run goes on."""
        self._update(seconds=round(time.monotonic() - self.started, 3))
        self.journal.save(without_secrets(self.record))

    def _try(self, attempt: Attempt, on_served: Served | None) -> Diagnosis | None:
        """Judge one trial: None when it is proven, else why it failed."""
        try:
            trial = attempt.settle(self._limits())
            if trial.outcome == "served":
                trial = self._checked(attempt, trial)
            self._keep(attempt, trial)
            if trial.outcome == "served" and trial.cause is None:
                self.finish("served", "every check passed", attempt.launch)
                if on_served is not None:
                    on_served(self.record, attempt)
                return None
        except KeyboardInterrupt:
            attempt.end()
            if all(trial.n != attempt.n for trial in self.record.trials):
                self._keep(attempt, attempt.stopped())
            raise
        finally:
            attempt.end()
        return trial.diagnosis

    def _checked(self, attempt: Attempt, trial: Trial) -> Trial:
        """The served trial, with the cause that the checks have found."""
        self.progress.note(f"checking {attempt.address.url}")
        verification = prove(attempt, self.options, self.progress)
        self._update(verification=verification)
        if verification.passed:
            return msgspec.structs.replace(trial, cause=None)
        said = attempt.diagnosis("failed")
        diagnosis = said if said.failed else cause_of_failed_checks(verification, self.options)
        return msgspec.structs.replace(trial, cause=diagnosis.cause, diagnosis=diagnosis)

    def _keep(self, attempt: Attempt, trial: Trial) -> None:
        """Put a trial that is over into the record."""
        self.progress.trial_ended(trial)
        if attempt.log.failure is not None:
            self.progress.note(f"the log of trial {trial.n} is not complete: {attempt.log.failure}")
        digest = self.journal.keep_log(attempt.log.path)
        logs = {**self.record.logs, trial.n: digest} if digest else self.record.logs
        version = trial.diagnosis.vllm_version if trial.diagnosis else None
        known = {"vllm": version} if version else {}
        self._update(
            trials=[*self.record.trials, trial],
            logs=logs,
            environment={**self.record.environment, **known},
        )
        self.save()

    def _bounds(self, diagnosis: Diagnosis) -> Bounds:
        """The bounds, with the number of devices where an advice asks for more of them."""
        bounds = self.options.bounds
        if all(advice.cost != "hardware" for advice in diagnosis.advice):
            return bounds
        return msgspec.structs.replace(bounds, devices=visible_devices(self.environ))

    def _limits(self) -> Limits:
        left = min(self.options.limits.start_seconds, self._seconds_left())
        return msgspec.structs.replace(self.options.limits, start_seconds=max(left, 0.0))

    def _seconds_left(self) -> float:
        if self.options.budget_seconds is None:
            return float("inf")
        return self.options.budget_seconds - (time.monotonic() - self.started)

    def _why_not(self, diagnosis: Diagnosis, choice: Choice) -> str:
        what = f"{diagnosis.cause}: {diagnosis.message}"
        if choice.advice is not None:
            spent = "time is" if self._seconds_left() <= 0 else f"{self.options.max_trials} trials are"
            return f"{what}; the {spent} used up; next would be {_advice_in_words(choice.advice)}"
        reasons = [f"{_advice_in_words(each.advice)}: {each.reason}" for each in choice.skipped]
        return f"{what}; nothing is left to change" + (f" ({'; '.join(reasons)})" if reasons else "")

    def _log_folder(self) -> Path:
        if self.options.log_dir is not None:
            return self.options.log_dir
        try:
            return Path(tempfile.mkdtemp(prefix=f"fitserve-{self.record.run}-"))
        except OSError as error:
            raise MachineError(
                f"there is no place for logs: {error.strerror}", hint="name a folder with --log-dir"
            ) from error

    def _update(self, **changes: object) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)


def _in_words(change: Change | None) -> str:
    if change is None:
        return ""
    before = "" if change.value_from is None else f" from {change.value_from}"
    why = f" ({change.why})" if change.why else ""
    return f"{change.flag}{before} to {change.to}{why}"


def _advice_in_words(advice: Advice) -> str:
    return advice.action or f"{advice.flag} {advice.to}"
