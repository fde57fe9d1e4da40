"""Watches a start: phases, readiness, silence, time (o: processes, sockets, clock)."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from fitserve.trial.expectation import UNKNOWN, Expectation
from fitserve.trial.launch import Process
from fitserve.trial.listener import answers_for
from fitserve.trial.memory import TrialMemory
from fitserve.trial.outcome import PhaseTime, State
from fitserve.trial.progress import Progress
from fitserve.trial.reading import Reading

_TICK_SECONDS = 0.1
_HEALTH_EVERY_SECONDS = 0.5
_READY_WITHOUT_HEALTH_SECONDS = 10.0
"""How long a server may be unreachable after it said that it is up; then the checks have to say why."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a start may take.

    Attributes:
        start_seconds: from the launch to the first answer.
        silence_seconds: without a single new line.
        linger_seconds: alive after its end was certain from the log.
    """

    start_seconds: float = 1800.0
    silence_seconds: float = 600.0
    linger_seconds: float = 30.0


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a start.

    Attributes:
        state: how it ended.
        seconds: from the launch to that end.
        silent_seconds: since the last line, at that end.
        phases: the stages that were reached.
    """

    state: State
    seconds: float
    silent_seconds: float
    phases: list[PhaseTime]


class Watch:
    """One start under watch; what was seen stays readable when it is broken off.

    Args:
        process: the started program.
        health_url: where it says that it is well; None where that cannot be reached.
        own_port: the port of this machine on which one of its own processes has to listen; None where others do that
            for it, as for a container.
        reading: what its lines have said so far.
        progress: is told how it goes on.
        memory: what it holds.
        beat: called again and again while it is watched.
        expectation: how long it is likely to take.
    """

    def __init__(
        self,
        process: Process,
        *,
        health_url: str | None,
        own_port: int | None,
        reading: Reading,
        progress: Progress,
        memory: TrialMemory,
        beat: Callable[[], None] = lambda: None,
        expectation: Expectation = UNKNOWN,
    ) -> None:
        self.process = process
        self.health_url = health_url
        self.own_port = own_port
        self.reading = reading
        self.progress = progress
        self.memory = memory
        self.beat = beat
        self.expectation = expectation
        self.phases: list[PhaseTime] = []
        self.launched = time.monotonic()
        self.said_ready_at: float | None = None
        self.certain_at: float | None = None
        self.next_health = self.launched

    @property
    def seconds(self) -> float:
        """Since the launch."""
        return time.monotonic() - self.launched

    def until_settled(self, limits: Limits) -> Watched:
        """Wait until it serves, has failed, or has used up its time."""
        while (state := self._state(limits)) is None:
            time.sleep(_TICK_SECONDS)
            self.look()
            self.memory.sample()
            self.beat()
            self.progress.tick(self.reading.phase, self.seconds, self._words())
        self.look()
        return self.seen(state)

    def until_exit(self, on_ready: Callable[[], None] = lambda: None) -> Watched:
        """Wait until it has ended, however long it serves.

        Once it serves, its lines are no longer read here: that would take memory without end, and the log has them. Nor is
        its memory watched any longer.

        Args:
            on_ready: called when it serves, or has ended before that.
        """
        while self.said_ready_at is None and self.process.wait(_TICK_SECONDS) is None:
            self.look()
            self.memory.sample()
            self.beat()
        self.look()
        self.memory.close()
        on_ready()
        if self.process.output.log.failure is None:
            self.reading.close(0)
        self.process.wait()
        return self.seen("failed")

    def seen(self, state: State) -> Watched:
        """What was seen so far, under the given end."""
        return Watched(
            state=state,
            seconds=round(self.seconds, 3),
            silent_seconds=round(time.monotonic() - self.process.output.heard, 3),
            phases=self.phases,
        )

    def look(self) -> None:
        """Note what the log says now."""
        reading = self.reading
        if reading.ready and self.said_ready_at is None:
            self.said_ready_at = time.monotonic()
        if reading.certain and self.certain_at is None:
            self.certain_at = time.monotonic()
        if not self.phases or self.phases[-1].stage != reading.phase:
            self.memory.stage = reading.phase
            self.phases.append(PhaseTime(stage=reading.phase, start_seconds=round(self.seconds, 3)))
            self.progress.phase(reading.phase, self.seconds)

    def _words(self) -> str:
        """How far it is, and when it should be there; else its last line."""
        begun = self.phases[-1].start_seconds if self.phases else 0.0
        expected = self.expectation.words(self.reading.phase, self.seconds, self.seconds - begun)
        known = ", ".join(filter(None, (self.reading.advance, expected)))
        return known or self.reading.last_line

    def _state(self, limits: Limits) -> State | None:
        if self.process.poll() is not None:
            return "failed"
        if self._answers():
            return "served"
        now = time.monotonic()
        if self.certain_at is not None and now - self.certain_at > limits.linger_seconds:
            return "failed"
        if now - self.launched > limits.start_seconds:
            return "timed-out"
        return "silent" if now - self.process.output.heard > limits.silence_seconds else None

    def _answers(self) -> bool:
        if self.health_url is None:
            return self.said_ready_at is not None
        now = time.monotonic()
        if now < self.next_health:
            return False
        self.next_health = now + (_HEALTH_EVERY_SECONDS if self.said_ready_at is None else _TICK_SECONDS)
        if is_healthy(self.health_url):
            return self.own_port is None or answers_for(self.process.reaper_pid, self.own_port)
        return self.said_ready_at is not None and now - self.said_ready_at > _READY_WITHOUT_HEALTH_SECONDS


def is_healthy(url: str, timeout_seconds: float = 2.0) -> bool:
    """Ask a server whether it is well: 200, or 404 from one that has no such route. An answer of another kind is no."""
    import http.client
    import ssl

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        # The server was started by us on this machine, and nothing secret is sent: its certificate need not be known.
        context = ssl._create_unverified_context()  # noqa: S323, SLF001
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status in (200, 404)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
