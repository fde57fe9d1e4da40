"""One trial from launch to end (o: processes, files)."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from fitserve.diagnose.engine import diagnose_path
from fitserve.diagnose.finding import Diagnosis
from fitserve.facts.command import Launch
from fitserve.trial.address import read_address
from fitserve.trial.copies import placed
from fitserve.trial.devices import Probe
from fitserve.trial.elsewhere import cancel_job, stopping, watched_container
from fitserve.trial.ending import explained
from fitserve.trial.expectation import UNKNOWN, Expectation
from fitserve.trial.identity import MARK, end_all, marked
from fitserve.trial.launch import launch as start
from fitserve.trial.memory import TrialMemory
from fitserve.trial.outcome import Change, Memory, State, Trial
from fitserve.trial.progress import Progress
from fitserve.trial.reading import Reading
from fitserve.trial.watch import Limits, Watch, Watched

GRACE_SECONDS = 10.0
"""How long a server may take to end by itself; vLLM lets go of its devices within that."""

READING_SECONDS = 20.0
"""How long the lines of a log that could not be kept may take to be understood."""


class Attempt:
    """A started server.

    Args:
        n: the trial's number.
        launch: its command.
        change: the difference to the trial before.
        environ: the user's environment.
        log_path: where its output is kept.
        progress: is told how it goes on.
        pass_through: its output goes to our own streams as well.
        ask_health: it counts as ready when it answers, not when it says so.
        mark: what every process of it carries in its environment; empty for nothing.
        probe: how the devices that it sees are asked; None where there is none.
        beat: called again and again while its start is watched.
        expectation: how long its start is likely to take.

    Raises:
        MachineError: it cannot be started.
    """

    def __init__(
        self,
        n: int,
        launch: Launch,
        *,
        change: Change | None = None,
        environ: Mapping[str, str],
        log_path: Path,
        progress: Progress,
        pass_through: bool = False,
        ask_health: bool = True,
        mark: str = "",
        probe: Probe | None = None,
        beat: Callable[[], None] = lambda: None,
        expectation: Expectation = UNKNOWN,
    ) -> None:
        self.n = n
        self.launch = launch = placed(launch, log_path.parent, log_path.stem)
        self.change = change
        self.address = read_address(launch, environ)
        self.environ = environ
        self.mark = mark
        self.ended = False
        argv, container = watched_container(launch, log_path.with_suffix(".cid"))
        self.process = start(
            argv,
            env={**environ, **launch.env, **({MARK: mark} if mark else {})},
            log_path=log_path,
            pass_through=pass_through,
            container=container,
            stop=stopping(launch),
        )
        self.log = self.process.output.log
        self.container = container
        self.reading = Reading(self.process.output)
        self.memory = TrialMemory(self.process.reaper_pid, probe, container[1] if container else None)
        asks = ask_health and self.address.url is not None
        self.watch = Watch(
            self.process,
            health_url=f"{self.address.url}/health" if asks else None,
            own_port=self.address.port if launch.container is None else None,
            reading=self.reading,
            progress=progress,
            memory=self.memory,
            beat=beat,
            expectation=expectation,
        )

    def settle(self, limits: Limits) -> Trial:
        """Wait until the start has succeeded or failed; a failed one is ended, and its log is read."""
        watched = self.watch.until_settled(limits)
        if watched.state != "served":
            self.end()
        return self.trial(watched)

    def stopped(self) -> Trial:
        """The trial as it stands, broken off by the user."""
        return self.trial(self.watch.seen("stopped"))

    def trial(self, watched: Watched) -> Trial:
        """The trial as a value."""
        ended = self.process.poll()
        diagnosis = self.diagnosis(watched.state)
        if watched.state in ("failed", "silent", "timed-out"):
            diagnosis = self._explained(diagnosis, watched)
        return Trial(
            n=self.n,
            argv=list(self.launch.argv),
            env=dict(self.launch.env),
            change=self.change,
            outcome=watched.state,
            cause=diagnosis.cause if diagnosis.failed and watched.state != "stopped" else None,
            exit_code=ended.code if ended else None,
            signal=ended.signal if ended else None,
            seconds=watched.seconds,
            phases=watched.phases,
            memory=Memory(printed=diagnosis.numbers),
            diagnosis=diagnosis,
            log_path=str(self.log.path),
            url=self.address.url if watched.state == "served" else None,
        )

    def measured(self, trial: Trial) -> Trial:
        """The trial with what was seen beside its log: memory over time, neighbours, a log that was cut."""
        memory = msgspec.structs.replace(self.memory.memory(), printed=trial.memory.printed)
        notes = self.memory.notes()
        if cut := self.log.cut_words:
            notes = [*notes, cut]
        return msgspec.structs.replace(
            trial, memory=memory, samples=self.memory.samples(), notes=[*trial.notes, *notes]
        )

    def diagnosis(self, state: State) -> Diagnosis:
        """What the log says: of a failure the whole file, where it is complete; else what was read as it was written."""
        if state in ("served", "stopped") or self.log.failure is not None:
            return self.reading.diagnosis()
        return diagnose_path(self.log.path)

    def _explained(self, diagnosis: Diagnosis, watched: Watched) -> Diagnosis:
        silent = watched.state == "silent"
        return explained(
            diagnosis,
            state=watched.state,
            ended=self.process.poll(),
            phase=self.reading.phase,
            last_line=self.reading.last_line,
            seconds=watched.silent_seconds if silent else watched.seconds,
        )

    def end(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """End the server and everything below it; an interrupt meanwhile ends the grace."""
        ended_before, self.ended = self.ended, True
        try:
            self.process.end(grace_seconds)
        except KeyboardInterrupt:
            self.process.end(0)
            raise
        finally:
            if self.process.lost and self.mark:
                end_all(marked(self.mark), 0)
            if not ended_before:
                cancel_job(self.launch, self.log.path, self.environ)
            self.memory.close()
            # A log file that is whole will be read again; of a cut one, the live reading is all there is.
            self.reading.close(0 if self.log.failure is None else READING_SECONDS)
