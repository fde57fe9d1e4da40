"""The record of a run, kept in the journal before and after each trial (o: the journal, files, the clock)."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import msgspec

from fitserve.errors import MachineError
from fitserve.facts.command import Launch
from fitserve.fix.options import Options
from fitserve.report.record import Outcome, Record
from fitserve.report.secrets import without_secrets
from fitserve.store.journal import Journal
from fitserve.trial.attempt import Attempt
from fitserve.trial.choice import Try
from fitserve.trial.identity import boot, identify, tree
from fitserve.trial.interrupt import undisturbed
from fitserve.trial.outcome import Change, Pending, Trial
from fitserve.trial.progress import Progress
from fitserve.trial.watch import Limits

_SAVE_EVERY_SECONDS = 15.0
"""How much of the time used a kill may take from the record."""


class Keeper:
    """Keeps the record of one run.

    Attributes:
        record: the run so far.
        tried: every flag and value that a trial had.
    """

    def __init__(self, record: Record, *, options: Options, journal: Journal, progress: Progress) -> None:
        self.record = record
        self.options = options
        self.journal = journal
        self.progress = progress
        self.tried: set[Try] = set(record.tried)
        self._started = time.monotonic() - record.seconds
        self._folder: Path | None = None
        self._saved = 0.0
        self._seen_phases = 0

    @property
    def starts_left(self) -> int:
        """Trials that may still be made; one that was broken off is made again, and counts once."""
        return self.options.max_trials - sum(trial.outcome != "stopped" for trial in self.record.trials)

    @property
    def seconds_left(self) -> float:
        """Time that may still be used."""
        if self.options.budget_seconds is None:
            return float("inf")
        return self.options.budget_seconds - (time.monotonic() - self._started)

    @property
    def is_spent(self) -> bool:
        """True where no start or no time is left."""
        return self.starts_left <= 0 or self.seconds_left <= 0

    @property
    def spent_words(self) -> str:
        """What is used up."""
        return "time is" if self.seconds_left <= 0 else f"{self.options.max_trials} trials are"

    def limits(self) -> Limits:
        """How long the next start may take."""
        left = min(self.options.limits.start_seconds, self.seconds_left)
        return msgspec.structs.replace(self.options.limits, start_seconds=max(left, 0.0))

    def update(self, **changes: object) -> None:
        """Change the record; it is saved by whoever changes it last."""
        self.record = msgspec.structs.replace(self.record, **changes)

    def save(self) -> None:
        """Keep the record without the keys in its commands; a journal that fails has said so, and the run goes on."""
        self._saved = time.monotonic()
        self.update(seconds=round(self._saved - self._started, 3), tried=sorted(self.tried))
        with undisturbed():
            self.journal.save(without_secrets(self.record))

    def begun(self, n: int, launch: Launch, change: Change | None) -> Path:
        """Keep a trial before it begins; gives the place of its log."""
        pending = Pending(
            n=n,
            argv=list(launch.argv),
            env=dict(launch.env),
            change=change,
            boot=boot(),
            tool=identify(os.getpid()),
        )
        self.update(pending=pending)
        self.save()
        self._seen_phases = -1
        self._folder = self._folder or self._log_folder()
        return self._folder / f"trial-{n}.log"

    def beat(self, attempt: Attempt) -> None:
        """Keep who runs and how long it has taken: at each phase, and now and then."""
        phases = len(attempt.watch.phases)
        pending = self.record.pending
        is_same = phases == self._seen_phases and time.monotonic() < self._saved + _SAVE_EVERY_SECONDS
        if pending is None or is_same:
            return
        self._seen_phases = phases
        container = attempt.container
        self.update(
            pending=msgspec.structs.replace(
                pending,
                argv=list(attempt.launch.argv),
                env=dict(attempt.launch.env),
                processes=tree(attempt.process.reaper_pid),
                container=[container[0], str(container[1])] if container else [],
                log_path=str(attempt.log.path),
            )
        )
        self.save()

    def keep(self, attempt: Attempt, trial: Trial) -> None:
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
        self.update(
            trials=[*self.record.trials, trial],
            logs=logs,
            environment={**self.record.environment, **known},
            pending=None,
        )
        self.save()

    def has(self, n: int) -> bool:
        """True where the record has the trial, over."""
        return any(trial.n == n for trial in self.record.trials)

    def earlier(self, launch: Launch) -> list[Trial]:
        """The newest trials of the same model, of all runs, this one's last."""
        runs = self.journal.naming(launch.model) if launch.model else []
        others = [trial for record in runs if record.run != self.record.run for trial in record.trials]
        return [*others, *self.record.trials]

    def finish(self, outcome: Outcome, reason: str, final: Launch | None = None) -> None:
        """Close the record, and keep it."""
        env = [f"{name}={value}" for name, value in final.env.items()] if final else []
        self.update(
            outcome=outcome,
            reason=reason,
            pending=None,
            final_command=[*(["env", *env] if env else []), *final.argv] if final else None,
        )
        self.save()

    def close(self) -> None:
        """Remove a folder of logs that the journal has all of."""
        trials = self.record.trials
        if self.options.log_dir is not None or any(trial.n not in self.record.logs for trial in trials):
            return
        folders = {Path(trial.log_path).parent for trial in trials if trial.log_path}
        folders |= {self._folder} if self._folder else set()
        own = [folder for folder in folders if folder.name.startswith(f"fitserve-{self.record.run}-")]
        words = self.record.final_command or []
        if not own or any(str(folder) in word for folder in own for word in words):
            return
        for folder in own:
            shutil.rmtree(folder, ignore_errors=True)
        self.update(trials=[msgspec.structs.replace(trial, log_path=None) for trial in trials])
        self.save()

    def _log_folder(self) -> Path:
        if self.options.log_dir is not None:
            return self.options.log_dir
        try:
            return Path(tempfile.mkdtemp(prefix=f"fitserve-{self.record.run}-"))
        except OSError as error:
            raise MachineError(
                f"there is no place for logs: {error.strerror}", hint="name a folder with --log-dir"
            ) from error
