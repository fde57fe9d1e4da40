"""From the lines of a log to its diagnosis, at once or as they come."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from fitserve.diagnose.boot import Boot
from fitserve.diagnose.conclude import conclude
from fitserve.diagnose.finding import Diagnosis
from fitserve.diagnose.select import first_cause
from fitserve.facts.boots import number_boots
from fitserve.facts.line import Line
from fitserve.facts.log import open_log
from fitserve.facts.messages.catalogue import needles
from fitserve.facts.messages.event import Event
from fitserve.facts.scan import read_candidates


def diagnose_path(path: Path | None) -> Diagnosis:
    """Diagnose a log file, gzipped or not; None is the standard input.

    Raises:
        InputError: the file cannot be read.
    """
    with open_log(path) as stream:
        return diagnose_lines(read_candidates(stream, needles()))


def diagnose_lines(lines: Iterable[Line]) -> Diagnosis:
    """Diagnose lines, oldest first."""
    watcher = Watcher()
    for line in lines:
        watcher.feed(line)
    return watcher.diagnosis()


class Watcher:
    """Diagnoses a log while it is written."""

    def __init__(self) -> None:
        self._boots: dict[int, Boot] = {0: Boot(1)}
        self._latest = 0
        self._line: Line | None = None
        self._numbers = number_boots(self._handed_over())

    @property
    def boots(self) -> list[Boot]:
        """The boots so far, in the order in which they began."""
        return list(self._boots.values())

    @property
    def boot(self) -> Boot:
        """The boot that spoke last."""
        return self._boots[self._latest]

    @property
    def phase(self) -> str:
        """How far the start has come, in the vocabulary of the stages."""
        return self.boot.phase

    @property
    def ready(self) -> bool:
        """True once the server answers requests."""
        return self.boot.ready

    @property
    def certain(self) -> Diagnosis | None:
        """The diagnosis as soon as a line names the cause, even while processes are still giving up; else None."""
        found = first_cause(self.boot)
        return self.diagnosis() if found is not None and found.weight >= 2 else None

    def feed(self, line: Line) -> list[Event]:
        """Take the next line; returns the messages that it is, the most specific first."""
        if not line.text:
            return []
        self._line = line
        self._latest, _ = next(self._numbers)
        if self._latest not in self._boots:
            self._boots[self._latest] = Boot(len(self._boots) + 1)
        return self.boot.feed(line)

    def diagnosis(self) -> Diagnosis:
        """What the lines so far say."""
        return conclude(self.boots)

    def _handed_over(self) -> Iterator[Line]:
        """The line that was fed last; boots are numbered one line at a time."""
        while self._line is not None:
            yield self._line
