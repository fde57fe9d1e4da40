"""Many logs at once: which causes, how often, with one example each."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import msgspec

from fitserve.errors import FitserveError, MachineError

_SUFFIXES = (".log", ".txt", ".gz", ".out", ".err")
_ALONE = 32
"""Up to so many logs are read in this process: starting others would take longer."""

_CHUNK = 16
_GIVEN_AHEAD = 4
_SNIFFED_BYTES = 4096


class Example(msgspec.Struct, frozen=True):
    """One log of a group: where its cause stands, and what the diagnosis says."""

    file: str
    line: int | None
    message: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The logs with one cause."""

    cause: str
    stage: str
    count: int
    files: list[str]
    example: Example


class Failure(msgspec.Struct, frozen=True):
    """A file that could not be read as a log, and why."""

    file: str
    reason: str


class Triage(msgspec.Struct, frozen=True, kw_only=True):
    """Many logs by cause, the most frequent first. Its JSON is the contract of ``diagnose --json DIR``."""

    schema: int = 1
    kind: Literal["triage"] = "triage"
    groups: list[Group] = []
    failed: list[Failure] = []

    @property
    def count(self) -> int:
        """How many logs were read."""
        return sum(group.count for group in self.groups)


class _Verdict(msgspec.Struct, frozen=True):
    file: str
    cause: str
    stage: str
    line: int | None
    message: str


_Outcome = _Verdict | Failure


class _Tally:
    """Verdicts by cause; the example is that of the first file by name, whatever order they come in."""

    def __init__(self) -> None:
        self._first: dict[str, _Verdict] = {}
        self._files: dict[str, list[str]] = {}
        self._failed: list[Failure] = []

    def add(self, outcome: _Outcome) -> None:
        if isinstance(outcome, Failure):
            self._failed.append(outcome)
            return
        self._files.setdefault(outcome.cause, []).append(outcome.file)
        first = self._first.setdefault(outcome.cause, outcome)
        if outcome.file < first.file:
            self._first[outcome.cause] = outcome

    def triage(self) -> Triage:
        groups = [
            Group(
                cause=cause,
                stage=first.stage,
                count=len(self._files[cause]),
                files=sorted(self._files[cause]),
                example=Example(first.file, first.line, first.message),
            )
            for cause, first in self._first.items()
        ]
        groups.sort(key=lambda group: (-group.count, group.cause))
        return Triage(groups=groups, failed=sorted(self._failed, key=lambda failure: failure.file))


def triage(
    logs: Iterable[Path], *, processes: int | None = None, progress: Callable[[int], None] | None = None
) -> Triage:
    """Diagnose every log, on all cores, with memory for the results alone.

    Args:
        logs: the files; read once, one after the other.
        processes: how many processes read; None for one a core.
        progress: told the number of finished logs, now and then.

    Raises:
        MachineError: a reading process was killed.
    """
    pending = iter(logs)
    first = list(islice(pending, _ALONE + 1))
    tally = _Tally()
    wanted = processes or os.cpu_count() or 1
    if len(first) <= _ALONE or wanted == 1:
        batches: Iterator[list[_Outcome]] = ([_verdict(log)] for part in (first, pending) for log in part)
    else:
        batches = _in_processes(_chunks(first, pending), wanted)
    done = 0
    for batch in batches:
        for outcome in batch:
            tally.add(outcome)
        done += len(batch)
        if progress is not None:
            progress(done)
    return tally.triage()


def find_logs(places: Iterable[Path]) -> Iterator[Path]:
    """The logs at these places: a file as it is, a folder's logs at any depth, in order of name.

    A folder's logs are ``*.log``, ``*.txt``, ``*.out``, ``*.err``, ``*.gz``, rotated ``*.log.1``, and text without a suffix.
    A folder that cannot be listed comes itself.
    """
    for place in places:
        if not place.is_dir():
            yield place
            continue
        closed: list[OSError] = []
        for folder, folders, names in os.walk(place, onerror=closed.append):
            folders.sort()
            found = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
            yield from (path for path in found if _is_log(path))
        yield from (Path(error.filename) for error in closed)


def _is_log(path: Path) -> bool:
    if not (path.is_file() or path.is_symlink()):
        return False
    if path.suffix.lower() in _SUFFIXES or ".log." in path.name:
        return True
    return not path.suffix and _is_text(path)


def _is_text(path: Path) -> bool:
    """True where the beginning holds no zero byte; also where it cannot be read, so that the failure is reported."""
    try:
        with path.open("rb") as stream:
            return b"\0" not in stream.read(_SNIFFED_BYTES)
    except OSError:
        return True


def _chunks(first: list[Path], rest: Iterator[Path]) -> Iterator[list[Path]]:
    for start in range(0, len(first), _CHUNK):
        yield first[start : start + _CHUNK]
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def _in_processes(chunks: Iterator[list[Path]], processes: int) -> Iterator[list[_Outcome]]:
    """The verdicts of each chunk as they come; only a few chunks are given out ahead."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: set[Future[list[_Outcome]]] = set()
        try:
            while True:
                for chunk in islice(chunks, processes * _GIVEN_AHEAD - len(running)):
                    running.add(pool.submit(_verdicts, chunk))
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        except BrokenProcessPool as error:
            raise MachineError(
                "a process that read the logs was killed",
                hint="memory may be short; give the logs in smaller parts",
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _verdicts(logs: list[Path]) -> list[_Outcome]:
    return [_verdict(log) for log in logs]


def _verdict(log: Path) -> _Outcome:
    from fitserve.diagnose.engine import diagnose_path

    name = os.fsencode(log).decode(errors="replace")
    if log.is_dir():
        return Failure(name, "the folder cannot be listed")
    try:
        found = diagnose_path(log)
    except FitserveError as error:
        return Failure(name, error.what)
    return _Verdict(name, found.cause, found.stage, found.line, found.message)
