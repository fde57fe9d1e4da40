"""A log that is still being written (o: a growing file or a pipe, the clock)."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from fitserve.diagnose.engine import Watcher
from fitserve.diagnose.finding import Diagnosis
from fitserve.errors import InputError
from fitserve.facts.line import Line
from fitserve.facts.reading.shape import Shape
from fitserve.facts.reading.stream import physical_lines
from fitserve.facts.reading.taking import SAMPLE_LINES, shape_in, take_apart

_CHUNK_BYTES = 1 << 16
_PAUSE_SECONDS = 0.2
_SAMPLE_BYTES = 1 << 20


class StoppedFollowing(KeyboardInterrupt):
    """The user has stopped it before the cause was certain.

    Args:
        diagnosis: what the lines so far say.
    """

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__()
        self.diagnosis = diagnosis


def follow_file(path: Path) -> Diagnosis:
    """Wait until the log names its cause, and return it; a file that is truncated or replaced is read anew.

    Raises:
        InputError: the file cannot be opened.
        StoppedFollowing: Ctrl-C.
    """
    while True:
        with _opened(path) as stream:
            shape = _shape_so_far(stream)
            watcher = Watcher()
            if found := next(
                _certainties(watcher, take_apart(physical_lines(_grown(stream, path)), shape)), None
            ):
                return found


def follow_stream(stream: BinaryIO) -> Iterator[Diagnosis]:
    """The diagnosis as soon as it is certain, if that comes before the end; then the one at the end of the stream.

    Args:
        stream: a pipe; it is read to its end, so that its writer is never stopped by us.

    Raises:
        StoppedFollowing: Ctrl-C before the cause was certain.
    """
    watcher = Watcher()
    lines = take_apart(physical_lines(_arriving(stream)), Shape())
    if found := next(_certainties(watcher, lines), None):
        yield found
    for line in lines:
        watcher.feed(line)
    yield watcher.diagnosis()


def _certainties(watcher: Watcher, lines: Iterable[Line]) -> Iterator[Diagnosis]:
    """The diagnosis after each line that makes one certain."""
    try:
        for line in lines:
            if watcher.feed(line) and (found := watcher.certain) is not None:
                yield found
    except KeyboardInterrupt:
        raise StoppedFollowing(watcher.diagnosis()) from None


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"the log cannot be read: {reason}", where=str(path)) from error


def _shape_so_far(stream: BinaryIO) -> Shape:
    """What the lines that are there already have in common; the stream then stands at its beginning again."""
    head = stream.read(_SAMPLE_BYTES)
    stream.seek(0)
    lines = (numbered for numbered in physical_lines([head]) if numbered[0] <= SAMPLE_LINES)
    return shape_in(lines)


def _grown(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    """What is written to the file, as it comes, until the file is truncated or another one takes its name."""
    while True:
        if data := stream.read(_CHUNK_BYTES):
            yield data
        elif _is_over(stream, path):
            return
        else:
            time.sleep(_PAUSE_SECONDS)


def _is_over(stream: BinaryIO, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(stream.fileno())
    return (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino) or held.st_size < stream.tell()


def _arriving(stream: BinaryIO) -> Iterator[bytes]:
    """What comes through a pipe, without waiting until a buffer is full."""
    return iter(lambda: os.read(stream.fileno(), _CHUNK_BYTES), b"")
