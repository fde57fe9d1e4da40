"""Watches a start: phases, readiness, silence, time (o: processes, sockets, clock)."""

import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from fitserve.trial.launch import Process
from fitserve.trial.memory import TreeMemory
from fitserve.trial.outcome import PhaseTime, State
from fitserve.trial.progress import Progress

READY_LINE = "Application startup complete"
"""uvicorn's line, in every release of vLLM's server. Source: uvicorn ``lifespan/on.py``."""

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


class Reader(Protocol):
    """Whoever understands the log while it is written."""

    @property
    def phase(self) -> str:
        """The stage that the start has reached."""

    @property
    def certain(self) -> bool:
        """True once a line says that this start has failed."""

    def feed(self, line: str) -> object:
        """Take the next line."""


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a start.

    Attributes:
        state: how it ended.
        seconds: from the launch to that end.
        phases: the stages that were reached.
        peak_rss_bytes: the most resident memory of its processes.
    """

    state: State
    seconds: float
    phases: list[PhaseTime]
    peak_rss_bytes: int


class Watch:
    """One start under watch; what was seen stays readable when it is broken off.

    Args:
        process: the started program.
        health_url: where it says that it is well; None where that cannot be reached.
        reader: understands its lines.
        progress: is told how it goes on.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        process: Process,
        *,
        health_url: str | None,
        reader: Reader,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.process = process
        self.health_url = health_url
        self.reader = reader
        self.progress = progress
        self.clock = clock
        self.memory = TreeMemory(process.reaper_pid)
        self.phases: list[PhaseTime] = []
        self.last_line = ""
        self.launched = clock()
        self.heard = self.launched
        self.ready_line_at: float | None = None
        self.certain_at: float | None = None
        self.next_health = self.launched

    @property
    def seconds(self) -> float:
        """Since the launch."""
        return self.clock() - self.launched

    def until_settled(self, limits: Limits) -> Watched:
        """Wait until it serves, has failed, or has used up its time."""
        while (state := self._state(limits)) is None:
            self.process.output.arrived.wait(_TICK_SECONDS)
            self.read_lines()
            self.memory.sample()
            self.progress.tick(self.reader.phase, self.seconds, self.last_line)
        seconds = self.seconds
        if state != "served":
            self.drain()
        return self.seen(state, seconds)

    def drain(self) -> None:
        """Take everything that has been written so far."""
        self.read_lines()
        while self.process.output.arrived.is_set():
            self.read_lines()

    def seen(self, state: State, seconds: float | None = None) -> Watched:
        """What was seen so far, under the given end."""
        return Watched(
            state=state,
            seconds=round(self.seconds if seconds is None else seconds, 3),
            phases=self.phases,
            peak_rss_bytes=self.memory.peak_rss_bytes,
        )

    def read_lines(self) -> None:
        """Take what has been written since the last look."""
        lines = self.process.output.take_lines()
        for line in lines:
            self.reader.feed(line)
            if READY_LINE in line:
                self.ready_line_at = self.clock()
        if lines:
            self.heard = self.clock()
            self.last_line = next((line for line in reversed(lines) if line.strip()), self.last_line)
        if self.reader.certain and self.certain_at is None:
            self.certain_at = self.clock()
        if not self.phases or self.phases[-1].stage != self.reader.phase:
            self.phases.append(PhaseTime(stage=self.reader.phase, start_seconds=round(self.seconds, 3)))
            self.progress.phase(self.reader.phase, self.seconds)

    def _state(self, limits: Limits) -> State | None:
        if self.process.poll() is not None:
            return "failed"
        if self._answers():
            return "served"
        now = self.clock()
        if self.certain_at is not None and now - self.certain_at > limits.linger_seconds:
            return "failed"
        if now - self.launched > limits.start_seconds:
            return "timed-out"
        return "silent" if now - self.heard > limits.silence_seconds else None

    def _answers(self) -> bool:
        now = self.clock()
        if self.health_url is None:
            return self.ready_line_at is not None
        if now < self.next_health:
            return False
        said_ready = self.ready_line_at is not None
        self.next_health = now + (_TICK_SECONDS if said_ready else _HEALTH_EVERY_SECONDS)
        if is_healthy(self.health_url):
            return True
        return self.ready_line_at is not None and now - self.ready_line_at > _READY_WITHOUT_HEALTH_SECONDS


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
