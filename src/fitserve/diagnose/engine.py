"""From the lines of a log to its diagnosis, at once or as they come."""

from collections.abc import Iterable
from pathlib import Path

from fitserve.diagnose.boot import BANNERS, ENGINE_STARTS, Boot
from fitserve.diagnose.conclude import conclude
from fitserve.diagnose.finding import Diagnosis
from fitserve.diagnose.select import first_cause
from fitserve.facts.line import Line
from fitserve.facts.log import open_log, read_lines
from fitserve.facts.messages.catalogue import catalogue
from fitserve.facts.messages.event import Event
from fitserve.facts.settings import is_command


def diagnose_path(path: Path | None) -> Diagnosis:
    """Diagnose a log file, gzipped or not; None is the standard input.

    Raises:
        InputError: the file cannot be read.
    """
    with open_log(path) as stream:
        return diagnose_lines(read_lines(stream))


def diagnose_lines(lines: Iterable[Line]) -> Diagnosis:
    """Diagnose lines, oldest first."""
    watcher = Watcher()
    for line in lines:
        watcher.feed(line)
    return watcher.diagnosis()


class Watcher:
    """Diagnoses a log while it is written."""

    def __init__(self) -> None:
        self.boots: list[Boot] = [Boot(1)]

    @property
    def boot(self) -> Boot:
        """The boot that is being read."""
        return self.boots[-1]

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
        if self._starts_anew(line):
            self.boots.append(Boot(self.boot.number + 1))
        return self.boot.feed(line)

    def diagnosis(self) -> Diagnosis:
        """What the lines so far say."""
        return conclude(self.boots)

    def _starts_anew(self, line: Line) -> bool:
        boot = self.boot
        over = boot.ready or boot.failed
        text = line.text
        if line.level is None and over and is_command(text):
            return True
        if "version" not in text and "args: " not in text and "Initializing a" not in text:
            return False
        ids = {event.id for event in _banner(line)}
        if ids & BANNERS:
            return over or any(boot.seen(message_id) for message_id in ids & BANNERS)
        return (
            bool(ids & ENGINE_STARTS) and over and any(boot.seen(message_id) for message_id in ENGINE_STARTS)
        )


def _banner(line: Line) -> list[Event]:
    return [event for event in catalogue().events(line) if event.id in BANNERS | ENGINE_STARTS]
