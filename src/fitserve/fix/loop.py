"""The loop: start it, read why it failed, change one thing, start it again, until it serves and the checks pass."""

import contextlib
import datetime as dt
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from fitserve import __version__
from fitserve.diagnose.finding import Advice, Diagnosis
from fitserve.errors import FitserveError, MachineError, UsageError
from fitserve.facts.command import Launch, shown
from fitserve.facts.command_edit import without_option
from fitserve.facts.find_launch import find_launch
from fitserve.fix.next_change import next_change
from fitserve.fix.options import Options, options_to_json
from fitserve.fix.proof import cause_of_failed_checks, prove
from fitserve.fix.question import question
from fitserve.fix.resume import Begin, begin_again, refuse_other_runs, settle_pending, whole_command
from fitserve.plan.observed import Observed
from fitserve.report.record import Maker, Outcome, Record
from fitserve.report.secrets import without_secrets
from fitserve.store.journal import Journal
from fitserve.trial.address import is_free, read_address, with_free_port
from fitserve.trial.attempt import Attempt
from fitserve.trial.choice import Bounds, Choice, Try, change_of, changed, tries
from fitserve.trial.devices import Probe, lock_keys, probe_for, visible_devices
from fitserve.trial.elsewhere import not_ended_from_here, refuse_running_service
from fitserve.trial.expectation import expectation
from fitserve.trial.identity import boot, identify, tree
from fitserve.trial.interrupt import stopping_like_ctrl_c
from fitserve.trial.locks import Locks, lock_folder
from fitserve.trial.outcome import Change, Pending, Trial
from fitserve.trial.progress import Progress
from fitserve.trial.vacancy import Vacancy, blocked
from fitserve.trial.watch import Limits
from fitserve.units import Unknown

Served = Callable[[Record, Attempt], None]
"""Called with the proven record while its server is still up."""

_SAVE_EVERY_SECONDS = 15.0
"""How much of the time used a kill may take from the record."""


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
    begin = Begin(launch=find_launch(command, environ))
    record = Record(
        run=run,
        kind=kind,
        started_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        fitserve_version=__version__,
        command=list(command),
        environment={"python": platform.python_version(), "platform": platform.platform()},
        options=options_to_json(options),
    )
    loop = _Loop(record, options=options, progress=progress, journal=journal, environ=dict(environ))
    return _to_its_end(loop, begin, on_served)


def resume(
    record: Record,
    command: Sequence[str],
    *,
    options: Options,
    progress: Progress,
    journal: Journal,
    environ: Mapping[str, str] = os.environ,
    on_served: Served | None = None,
) -> Record:
    """Go on with a run that was killed or interrupted: no trial that is over is made again.

    Args:
        record: the run as the journal has it.
        command: its command given again, for the keys that the journal does not keep; empty where it has none.
        options: how far to go, what is used up included.
        progress: is told how it goes on.
        journal: gets the record before and after each trial.
        environ: the user's environment.
        on_served: called when the checks have passed, while the server is up.

    Raises:
        UsageError: the run has ended, or another command is given.
        MachineError: it is still going on; a device or the port is taken.
    """
    refuse_other_runs(record)
    whole = whole_command(record, command)
    record = settle_pending(record, journal, progress)
    begin = begin_again(record, whole)
    record = msgspec.structs.replace(
        record, command=whole, options=options_to_json(options), outcome=None, reason=""
    )
    loop = _Loop(record, options=options, progress=progress, journal=journal, environ=dict(environ))
    return _to_its_end(loop, begin, on_served)


def _to_its_end(loop: "_Loop", begin: Begin, on_served: Served | None) -> Record:
    with stopping_like_ctrl_c(), contextlib.closing(loop):
        try:
            loop.go(begin, on_served)
        except KeyboardInterrupt:
            loop.finish("stopped", "interrupted")
        except FitserveError as error:
            # What this machine refuses now it may allow later: a run that has got somewhere can go on.
            loop.finish("stopped" if loop.record.trials else "not-reached", error.what)
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
        record: Record,
        *,
        options: Options,
        progress: Progress,
        journal: Journal,
        environ: Mapping[str, str],
    ) -> None:
        self.options = options
        self.progress = progress
        self.journal = journal
        self.environ = environ
        self.record = record
        self.started = time.monotonic() - record.seconds
        self.tried: set[Try] = set(record.tried)
        self.locks = Locks(record.run, lock_folder(environ))
        self.probe: Probe | None = None
        self.vacancy: Vacancy | None = None
        self.folder: Path | None = None
        self.saved = 0.0
        self.seen_phases = 0

    def go(self, begin: Begin, on_served: Served | None) -> None:
        """Try until it serves, or nothing is left to try."""
        launch, change = begin.launch, begin.change
        diagnosis = begin.over
        if diagnosis is None:
            if self._seconds_left() <= 0 or self._starts_left() <= 0:
                spent = "time is" if self._seconds_left() <= 0 else f"{self.options.max_trials} trials are"
                self.finish("not-reached", f"the {spent} used up")
                return
            launch = checked_launch(launch, self.environ, self.progress)
        while True:
            if diagnosis is not None:
                following = self._next(launch, diagnosis)
                if following is None:
                    return
                launch, change = following
            launch = self._on_free_port(launch)
            if not self._device_is_free(launch):
                return
            attempt = self._start(launch, change)
            diagnosis = self._try(attempt, on_served)
            if diagnosis is None:
                return

    def close(self) -> None:
        """Let go of the devices; a folder of logs that the journal has all of is removed."""
        self.locks.release()
        trials = self.record.trials
        if self.options.log_dir is not None or any(trial.n not in self.record.logs for trial in trials):
            return
        folders = {Path(trial.log_path).parent for trial in trials if trial.log_path}
        folders |= {self.folder} if self.folder else set()
        own = [folder for folder in folders if folder.name.startswith(f"fitserve-{self.record.run}-")]
        words = self.record.final_command or []
        if not own or any(str(folder) in word for folder in own for word in words):
            return
        for folder in own:
            shutil.rmtree(folder, ignore_errors=True)
        self._update(trials=[msgspec.structs.replace(trial, log_path=None) for trial in trials])
        self.save()

    def _next(self, launch: Launch, diagnosis: Diagnosis) -> tuple[Launch, Change | None] | None:
        """The next command and its one change; None where the run has ended."""
        bounds = self._bounds()
        asked = question(
            launch,
            diagnosis,
            bounds=bounds,
            earlier=self._observed(bounds),
            device=self.options.device,
            environ=self.environ,
        )
        request = asked if isinstance(asked, Unknown) else asked.request
        choice = next_change(diagnosis, launch, request, self.tried, bounds)
        if choice.advice is None or self._starts_left() <= 0 or self._seconds_left() <= 0:
            self.finish("not-reached", self._why_not(diagnosis, choice))
            return None
        self.tried |= tries(launch, choice.advice)
        return changed(launch, choice.advice), change_of(launch, choice.advice)

    def _start(self, launch: Launch, change: Change | None) -> Attempt:
        """Start the next trial; the record has it before it begins, and its processes once they are there."""
        n = 1 + max((trial.n for trial in self.record.trials), default=0)
        self.progress.trial_started(n, shown(launch.argv, launch.env), _in_words(change))
        self._note_pending(
            Pending(
                n=n,
                argv=list(launch.argv),
                env=dict(launch.env),
                change=change,
                boot=boot(),
                tool=identify(os.getpid()),
            )
        )
        self.folder = self.folder or self._log_folder()
        attempt = Attempt(
            n,
            launch,
            change=change,
            environ=self.environ,
            log_path=self.folder / f"trial-{n}.log",
            progress=self.progress,
            mark=f"{self.record.run}.{n}",
            probe=self.probe,
            beat=lambda: self._beat(attempt),
            expectation=expectation(launch, [*self._earlier(launch), *self.record.trials]),
        )
        self.seen_phases = -1
        self._beat(attempt)
        return attempt

    def _earlier(self, launch: Launch) -> list[Trial]:
        """The newest trials of the same model, of all runs but this one."""
        runs = self.journal.naming(launch.model) if launch.model else []
        return [trial for record in runs if record.run != self.record.run for trial in record.trials]

    def _beat(self, attempt: Attempt) -> None:
        """Keep who runs and how long it has taken: at each phase, and now and then."""
        phases = len(attempt.watch.phases)
        pending = self.record.pending
        if pending is None or (
            phases == self.seen_phases and time.monotonic() < self.saved + _SAVE_EVERY_SECONDS
        ):
            return
        self.seen_phases = phases
        container = attempt.container
        self._note_pending(
            msgspec.structs.replace(
                pending,
                argv=list(attempt.launch.argv),
                env=dict(attempt.launch.env),
                processes=tree(attempt.process.reaper_pid),
                container=[container[0], str(container[1])] if container else [],
                log_path=str(attempt.log.path),
            )
        )

    def _note_pending(self, pending: Pending) -> None:
        self._update(pending=pending, tried=sorted(self.tried))
        self.save()

    def _on_free_port(self, launch: Launch) -> Launch:
        """The launch on a free port: one that we chose may be changed again, the user's own may not.

        Raises:
            MachineError: somebody has taken the user's port.
        """
        asked = find_launch(self.record.command, self.environ)
        if read_address(asked, self.environ).port_given:
            return with_free_port(launch, self.environ)
        address = read_address(launch, self.environ)
        if is_free(address.host, address.port):
            return launch
        again = with_free_port(without_option(launch, "port"), self.environ)
        self.progress.note(
            f"port {address.port} is taken: using --port {read_address(again, self.environ).port}"
        )
        return again

    def _device_is_free(self, launch: Launch) -> bool:
        """Hold the devices, and wait until what was used there has been given back; False where the run has ended.

        Raises:
            MachineError: another fitserve holds a device.
        """
        self.probe = probe_for(launch, self.environ)
        if self.record.kind != "demo":
            self.locks.hold(lock_keys(self.probe), self.options.wait_seconds, self.progress.note)
        if self.vacancy is None:
            self.vacancy = Vacancy(self.probe)
            return True
        taken = self.vacancy.wait(self.options.free_seconds, self.progress.note)
        for each in taken:
            self.progress.note(each.words)
        too_full = blocked(launch, taken, self.record.environment.get("vllm"))
        if too_full is not None:
            self.finish("not-reached", f"gpu-memory-taken: {too_full.words}")
        return too_full is None

    def finish(self, outcome: Outcome, reason: str, final: Launch | None = None) -> None:
        """Close the record, and keep it."""
        env = [f"{name}={value}" for name, value in final.env.items()] if final else []
        self._update(
            outcome=outcome,
            reason=reason,
            pending=None,
            final_command=[*(["env", *env] if env else []), *final.argv] if final else None,
        )
        self.save()

    def save(self) -> None:
        """Keep the record without the keys in its commands; a journal that fails has said so, and the run goes on."""
        self.saved = time.monotonic()
        self._update(seconds=round(self.saved - self.started, 3))
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
                    self.locks.release()
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
        attempt.memory.close()
        trial = attempt.measured(trial)
        self.progress.trial_ended(trial)
        for note in trial.notes:
            self.progress.note(f"trial {trial.n}: {note}")
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
            pending=None,
            tried=sorted(self.tried),
        )
        self.save()

    def _bounds(self) -> Bounds:
        """The bounds, with the number of devices that the launch sees."""
        return msgspec.structs.replace(self.options.bounds, devices=visible_devices(self.environ))

    def _observed(self, bounds: Bounds) -> list[Observed]:
        """What the trials before the last one have shown of the memory."""
        found = []
        for trial in self.record.trials[:-1]:
            if trial.diagnosis is None:
                continue
            launch = find_launch([*(f"{name}={value}" for name, value in trial.env.items()), *trial.argv], {})
            asked = question(launch, trial.diagnosis, bounds=bounds, device=self.options.device, environ={})
            if not isinstance(asked, Unknown):
                found.append(asked.observed)
        return found

    def _limits(self) -> Limits:
        left = min(self.options.limits.start_seconds, self._seconds_left())
        return msgspec.structs.replace(self.options.limits, start_seconds=max(left, 0.0))

    def _starts_left(self) -> int:
        """A trial that was broken off is made again, and counts once."""
        return self.options.max_trials - sum(trial.outcome != "stopped" for trial in self.record.trials)

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
        passed_over = f" ({'; '.join(reasons)})" if reasons else ""
        reachable = f"; {choice.reachable}" if choice.reachable else ""
        return f"{what}; nothing is left to change{passed_over}{reachable}"

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
