"""The loop: start it, read why it failed, change one thing, start it again, until it serves and the checks pass."""

import contextlib
import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from fitserve import __version__
from fitserve.diagnose.finding import Advice, Diagnosis
from fitserve.errors import FitserveError
from fitserve.facts.command import Launch, shown
from fitserve.facts.find_launch import find_launch
from fitserve.fix.goal import towards_goal
from fitserve.fix.grow import growth
from fitserve.fix.isolate import concluded, experiment
from fitserve.fix.keeper import Keeper
from fitserve.fix.next_change import next_change
from fitserve.fix.options import Options, options_to_json
from fitserve.fix.proof import cause_of_failed_checks, prove
from fitserve.fix.question import Question, question
from fitserve.fix.resume import Begin, begin_again, refuse_other_runs, settle_pending, whole_command
from fitserve.fix.site import Site, checked_launch
from fitserve.plan.observed import Observed
from fitserve.report.record import Maker, Record
from fitserve.report.record_environment import recorded_environment
from fitserve.store.journal import Journal
from fitserve.trial.attempt import Attempt
from fitserve.trial.choice import Bounds, Choice, change_of, changed, tries
from fitserve.trial.devices import visible_devices
from fitserve.trial.expectation import expectation
from fitserve.trial.interrupt import stopping_like_ctrl_c
from fitserve.trial.outcome import Change, Trial
from fitserve.trial.progress import Progress
from fitserve.units import Unknown

Served = Callable[[Record, Attempt], None]
"""Called with the proven record while its server is still up."""

Confirm = Callable[[Change], bool]
"""Asked before each change; False where the user does not want it."""


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
    confirm: Confirm | None = None,
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
        confirm: asked before each change; None to make them without a question.

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
        environment=recorded_environment(environ),
        options=options_to_json(options),
    )
    loop = _Loop(
        record, options=options, progress=progress, journal=journal, environ=dict(environ), confirm=confirm
    )
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
    confirm: Confirm | None = None,
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
        confirm: asked before each change; None to make them without a question.

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
    loop = _Loop(
        record, options=options, progress=progress, journal=journal, environ=dict(environ), confirm=confirm
    )
    return _to_its_end(loop, begin, on_served)


def _to_its_end(loop: "_Loop", begin: Begin, on_served: Served | None) -> Record:
    with stopping_like_ctrl_c(), contextlib.closing(loop):
        try:
            loop.go(begin, on_served)
        except KeyboardInterrupt:
            if loop.keeper.record.outcome != "served":
                loop.keeper.finish("stopped", "interrupted")
        except FitserveError as error:
            if loop.keeper.record.outcome == "served":
                raise
            # What this machine refuses now it may allow later: a run that has got somewhere can go on.
            loop.keeper.finish("stopped" if loop.keeper.record.trials else "not-reached", error.what)
            raise
    return loop.keeper.record


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """What to start next, and the one change in it."""

    launch: Launch
    change: Change | None = None

    @property
    def is_experiment(self) -> bool:
        """True where it only tells what a failure is."""
        return self.change is not None and self.change.purpose == "isolation"


class _Loop:
    """One run: how it goes on."""

    def __init__(
        self,
        record: Record,
        *,
        options: Options,
        progress: Progress,
        journal: Journal,
        environ: Mapping[str, str],
        confirm: Confirm | None,
    ) -> None:
        self.options = options
        self.progress = progress
        self.environ = environ
        self.confirm = confirm
        self.keeper = Keeper(record, options=options, journal=journal, progress=progress)
        self.site = Site(record, options=options, progress=progress, environ=environ)

    def go(self, begin: Begin, on_served: Served | None) -> None:
        """Try until it serves or nothing is left to try; then spend what is left, where that is wanted."""
        grows = self.options.grow is not None
        proven = begin.launch if begin.is_proven else self._until_proven(begin, None if grows else on_served)
        if proven is None or self.keeper.record.outcome == "served":
            return
        self.keeper.finish("served", self._proof_words(), proven)
        grown = self._grown(proven) if grows else proven
        if grown != proven:
            self.keeper.finish("served", f"{self._proof_words()}, and again with what was left spent", grown)
        if on_served is not None:
            self._attempt(_Step(launch=grown), on_served)

    def close(self) -> None:
        """Let go of the devices, and of logs that are kept elsewhere."""
        self.site.release()
        self.keeper.close()

    def _until_proven(self, begin: Begin, on_served: Served | None) -> Launch | None:
        """The launch that has been proven; None where the run has ended without one."""
        step, diagnosis = _Step(launch=begin.launch, change=begin.change), begin.over
        if diagnosis is None:
            if self.keeper.is_spent:
                self.keeper.finish("not-reached", f"the {self.keeper.spent_words} used up")
                return None
            launch = checked_launch(step.launch, self.environ, self.progress)
            step = msgspec.structs.replace(step, launch=launch)
            if not self.keeper.record.trials:
                step = self._towards_goal(step)
            diagnosis = self._attempt(step, on_served)
        while diagnosis is not None:
            following = self._next(step.launch, diagnosis)
            if following is None:
                return None
            failed = self._attempt(following, on_served)
            if self.keeper.record.outcome == "not-reached":
                return None
            if following.is_experiment and following.change is not None:
                flag = following.change.flag
                diagnosis = concluded(diagnosis, step.launch, flag, served=failed is None)
            else:
                step, diagnosis = following, failed
        return None if self.keeper.record.outcome == "not-reached" else step.launch

    def _towards_goal(self, step: _Step) -> _Step:
        """The first step, with the setting that the goal rules out changed to it."""
        advice = towards_goal(step.launch, self.options.bounds)
        change = None if advice is None else change_of(step.launch, advice)
        if advice is None or change is None or (self.confirm is not None and not self.confirm(change)):
            return step
        return _Step(launch=changed(step.launch, advice), change=change)

    def _next(self, launch: Launch, diagnosis: Diagnosis) -> _Step | None:
        """The next command and its one change; None where the run has ended."""
        while True:
            choice = self._choice(launch, diagnosis)
            advice = choice.advice
            if advice is None and self.keeper.starts_left > 1:
                test = experiment(diagnosis, launch, self._experiments())
                if test is not None:
                    return _Step(
                        launch=changed(launch, test), change=change_of(launch, test, purpose="isolation")
                    )
            if advice is None or self.keeper.is_spent:
                self.keeper.finish("not-reached", self._why_not(diagnosis, choice))
                return None
            self.keeper.tried |= tries(launch, advice)
            change = change_of(launch, advice)
            if self.confirm is None or change is None or self.confirm(change):
                return _Step(launch=changed(launch, advice), change=change)

    def _choice(self, launch: Launch, diagnosis: Diagnosis) -> Choice:
        bounds = self._bounds()
        asked = self._question(launch, diagnosis, bounds)
        request = asked if isinstance(asked, Unknown) else asked.request
        return next_change(diagnosis, launch, request, self.keeper.tried, bounds)

    def _question(self, launch: Launch, diagnosis: Diagnosis, bounds: Bounds) -> Question | Unknown:
        return question(
            launch,
            diagnosis,
            bounds=bounds,
            earlier=self._observed(bounds),
            device=self.options.device,
            environ=self.environ,
        )

    def _attempt(self, step: _Step, on_served: Served | None) -> Diagnosis | None:
        """Start it: None when it is proven (or was only an experiment, and served), else why it failed."""
        launch = self.site.on_free_port(step.launch)
        why_not = self.site.take_devices(launch, self.keeper.record.environment.get("vllm"))
        if why_not is not None:
            self.keeper.finish("not-reached", f"gpu-memory-taken: {why_not}")
            return None
        n = 1 + max((trial.n for trial in self.keeper.record.trials), default=0)
        self.progress.trial_started(n, shown(launch.argv, launch.env), _in_words(step.change))
        attempt = Attempt(
            n,
            launch,
            change=step.change,
            environ=self.environ,
            log_path=self.keeper.begun(n, launch, step.change),
            progress=self.progress,
            mark=f"{self.keeper.record.run}.{n}",
            probe=self.site.probe,
            beat=lambda: self.keeper.beat(attempt),
            expectation=expectation(launch, self.keeper.earlier(launch)),
        )
        self.keeper.beat(attempt)
        return self._settled(attempt, step, on_served)

    def _settled(self, attempt: Attempt, step: _Step, on_served: Served | None) -> Diagnosis | None:
        try:
            trial = attempt.settle(self.keeper.limits())
            if trial.outcome == "served" and not step.is_experiment:
                trial = self._checked(attempt, trial)
            self.keeper.keep(attempt, trial)
            if trial.outcome != "served" or trial.cause is not None:
                return trial.diagnosis
            if not step.is_experiment:
                self._proven(attempt, on_served)
        except KeyboardInterrupt:
            attempt.end()
            if not self.keeper.has(attempt.n):
                self.keeper.keep(attempt, attempt.stopped())
            raise
        finally:
            attempt.end()
        return None

    def _proof_words(self) -> str:
        verification = self.keeper.record.verification
        unproven = verification and verification.unproven(self.options.bounds.goal_context)
        return f"no check failed; {unproven}" if unproven else "every check passed"

    def _proven(self, attempt: Attempt, on_served: Served | None) -> None:
        if self.options.grow is None or on_served is not None:
            self.keeper.finish("served", self._proof_words(), attempt.launch)
        if on_served is not None:
            self.site.release()
            on_served(self.keeper.record, attempt)

    def _checked(self, attempt: Attempt, trial: Trial) -> Trial:
        """The served trial, with the cause that the checks have found."""
        self.progress.note(f"checking {attempt.address.url}")
        verification = prove(attempt, self.options, self.progress)
        self.keeper.update(verification=verification)
        if verification.passed:
            return msgspec.structs.replace(trial, cause=None)
        said = attempt.diagnosis("failed")
        diagnosis = said if said.failed else cause_of_failed_checks(verification, self.options, said)
        return msgspec.structs.replace(trial, cause=diagnosis.cause, diagnosis=diagnosis)

    def _grown(self, proven: Launch) -> Launch:
        """The launch with what was left spent, as far as that was proven too."""
        for _ in range(self.options.grow_starts):
            verification, last = self.keeper.record.verification, self.keeper.record.trials[-1].diagnosis
            advice = None if last is None or self.keeper.is_spent else self._growth(proven, last)
            if advice is None:
                break
            step = _Step(launch=changed(proven, advice), change=change_of(proven, advice, purpose="growth"))
            if self._attempt(step, None) is not None:
                self.keeper.update(verification=verification)
                break
            proven = step.launch
        return proven

    def _growth(self, proven: Launch, diagnosis: Diagnosis) -> Advice | None:
        asked = self._question(proven, diagnosis, self._bounds())
        if isinstance(asked, Unknown) or self.options.grow is None:
            return None
        return growth(asked.request, self.options.grow)

    def _bounds(self) -> Bounds:
        """The bounds, with the number of devices that the launch sees."""
        return msgspec.structs.replace(self.options.bounds, devices=visible_devices(self.environ))

    def _observed(self, bounds: Bounds) -> list[Observed]:
        """What the trials before the last one have shown of the memory."""
        found = []
        for trial in self.keeper.record.trials[:-1]:
            if trial.diagnosis is None:
                continue
            launch = find_launch([*(f"{name}={value}" for name, value in trial.env.items()), *trial.argv], {})
            asked = question(launch, trial.diagnosis, bounds=bounds, device=self.options.device, environ={})
            if not isinstance(asked, Unknown):
                found.append(asked.observed)
        return found

    def _experiments(self) -> frozenset[str]:
        """The flags of the experiments that were made to their end."""
        changes = [trial.change for trial in self.keeper.record.trials if trial.outcome != "stopped"]
        return frozenset(change.flag for change in changes if change and change.purpose == "isolation")

    def _why_not(self, diagnosis: Diagnosis, choice: Choice) -> str:
        what = f"{diagnosis.cause}: {diagnosis.message}"
        if choice.advice is not None:
            next_words = _advice_in_words(choice.advice)
            return f"{what}; the {self.keeper.spent_words} used up; next would be {next_words}"
        reasons = [f"{_advice_in_words(each.advice)}: {each.reason}" for each in choice.skipped]
        passed_over = f" ({'; '.join(reasons)})" if reasons else ""
        reachable = f"; {choice.reachable}" if choice.reachable else ""
        return f"{what}; nothing is left to change{passed_over}{reachable}"


def _in_words(change: Change | None) -> str:
    if change is None:
        return ""
    before = "" if change.value_from is None else f" from {change.value_from}"
    why = f" ({change.why})" if change.why else ""
    return f"{change.flag}{before} to {change.to}{why}"


def _advice_in_words(advice: Advice) -> str:
    return advice.action or f"{advice.flag} {advice.to}"
