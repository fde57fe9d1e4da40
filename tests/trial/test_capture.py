"""A log keeps the beginning and the end of an output, and a watcher never holds the program up."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fitserve.trial.capture import Capture, Chunks, LogFile


def test_chunks_keep_the_newest_bytes() -> None:
    """Beyond the limit the oldest pieces go, and their bytes are counted."""
    chunks = Chunks(10)
    for piece in (b"aaaa", b"bbbb", b"cccc"):
        chunks.add(piece)

    assert (4, b"bbbbcccc") == (chunks.dropped_bytes, chunks.take(100))


def test_chunks_are_taken_about_as_asked() -> None:
    """Whole pieces come, oldest first, until enough are there."""
    chunks = Chunks(100)
    for piece in (b"aaaa", b"bbbb", b"cccc"):
        chunks.add(piece)

    assert [b"aaaabbbb", b"cccc", b""] == [chunks.take(5), chunks.take(5), chunks.take(5)]


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ([b"12345"], b"12345"),
        ([b"1234567890"], b"1234567890"),
        ([b"1234567890", b"abc"], b"1234567890abc"),
        ([b"12345678", b"90abc"], b"1234567890abc"),
        (
            [b"1234567890", b"abcde", b"fghij"],
            b"1234567890\n... 5 bytes of output are left out here ...\nfghij",
        ),
    ],
)
def test_a_log_keeps_both_ends(pieces: list[bytes], kept: bytes, tmp_path: Path) -> None:
    """What lies between the kept beginning and the kept end is counted in a line of its own."""
    log = LogFile(tmp_path / "log", head_bytes=10, tail_bytes=8)
    for piece in pieces:
        log.add(piece)
    log.close()

    assert kept == (tmp_path / "log").read_bytes()


def test_a_slow_watcher_misses_lines_that_the_log_has(tmp_path: Path) -> None:
    """The program writes more than is held back for the watcher, and is not kept waiting: the log has all of it."""
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", "print('x' * 12_000_000)"], stdout=write, text=False
    ) as program:
        os.close(write)
        capture = Capture(LogFile(tmp_path / "log"), {read: None})
        program.wait()
    capture.join(20)
    seen = b"".join(iter(capture.read, b""))

    assert (12_000_001, True) == ((tmp_path / "log").stat().st_size, 0 < len(seen) <= 8 << 20)


def test_a_reader_that_has_gone_ends_the_passing_on(tmp_path: Path) -> None:
    """When nobody reads our own stream any more, the program still comes to its end, and the log is whole."""
    read, write = os.pipe()
    gone, closed = os.pipe()
    os.close(gone)
    with subprocess.Popen([sys.executable, "-c", "print('x' * 1_000_000)"], stdout=write) as program:
        os.close(write)
        capture = Capture(LogFile(tmp_path / "log"), {read: closed})
        code = program.wait()
    capture.join(20)
    os.close(closed)

    assert (0, 1_000_001) == (code, (tmp_path / "log").stat().st_size)


def test_a_log_that_cannot_even_be_made_for_want_of_room_is_no_error(tmp_path: Path) -> None:
    """A disk without room for another file leaves the log unwritten, with the reason."""
    room = tmp_path / "room"
    room.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "none", str(room)], check=False
        ).returncode
    ):
        pytest.skip("only root can make a full disk")
    try:
        log = LogFile(room / "log")
        log.add(b"words")
        log.close()
    finally:
        subprocess.run(["umount", str(room)], check=True)

    assert os.strerror(28) == log.failure


def test_a_log_in_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A place that was named and is wrong is said at once."""
    with pytest.raises(FileNotFoundError):
        LogFile(tmp_path / "nowhere" / "log")


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """After the output's end, the pipes and the file are closed."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        read, write = os.pipe()
        os.write(write, b"words")
        os.close(write)
        capture = Capture(LogFile(tmp_path / "log"), {read: None})
        capture.join(20)

    assert before == len(list(Path("/proc/self/fd").iterdir()))
    assert soft > before
