"""One tool at a time on a device: locks that the kernel lets go of when their holder dies (o: files).

A lock is ``flock`` on a file named after the device's UUID, or ``host`` where a launch sees no device. The file stays; what
it says of its holder is for the reader's eyes alone.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fitserve.errors import MachineError

FOLDER_VARIABLE = "FITSERVE_LOCK_DIR"
_SHARED = Path("/run/lock")
"""Where every user of a machine may lock, on most of them."""

_EVERY_SECONDS = 0.2
_SAY_EVERY_SECONDS = 60.0
_FOLDER_MODE = 0o1777
_FILE_MODE = 0o666


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock, as it wrote itself down.

    Attributes:
        pid: the tool's process.
        run: the id of its run.
        since_utc: ISO 8601, seconds.
    """

    pid: int
    run: str
    since_utc: str


def lock_folder(environ: Mapping[str, str]) -> Path:
    """``FITSERVE_LOCK_DIR``, or a folder that all users of this machine share."""
    if given := environ.get(FOLDER_VARIABLE):
        return Path(given)
    shared = _SHARED if os.access(_SHARED, os.W_OK) else Path(tempfile.gettempdir())
    return shared / "fitserve"


class Locks:
    """The locks of one run.

    Args:
        run: its id.
        folder: where the lock files are.
    """

    def __init__(self, run: str, folder: Path) -> None:
        self.run = run
        self.folder = folder
        self._held: dict[str, int] = {}

    def hold(self, keys: Iterable[str], wait_seconds: float, say: Callable[[str], None]) -> None:
        """Take the locks that are not held yet; in one order everywhere, so that two tools never wait for each other.

        Args:
            keys: the devices.
            wait_seconds: how long another one may keep them.
            say: told for whom it waits.

        Raises:
            MachineError: another one holds a lock for longer, or locks cannot be kept here.
        """
        deadline = time.monotonic() + wait_seconds
        for key in sorted(set(keys) - self._held.keys()):
            self._held[key] = self._take(key, deadline, say)

    def release(self) -> None:
        """Let go of all."""
        while self._held:
            _, descriptor = self._held.popitem()
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def _take(self, key: str, deadline: float, say: Callable[[str], None]) -> int:
        path = self.folder / f"{_in_a_name(key)}.lock"
        try:
            descriptor = _open(path)
        except OSError as error:
            raise MachineError(
                f"no lock can be kept: {error.strerror}",
                where=str(path),
                hint=f"set {FOLDER_VARIABLE} to a folder that can be written",
            ) from error
        try:
            self._wait(descriptor, key, deadline, say)
        except BaseException:
            os.close(descriptor)
            raise
        _write(descriptor, self.run)
        return descriptor

    def _wait(self, descriptor: int, key: str, deadline: float, say: Callable[[str], None]) -> None:
        next_word = 0.0
        while not _locked(descriptor):
            holder = _holder_words(descriptor)
            now = time.monotonic()
            if now >= deadline:
                raise MachineError(
                    f"{_key_words(key)} is in use by {holder}",
                    where=_key_words(key),
                    hint="wait for it with --wait SECONDS, or leave it to the other one with CUDA_VISIBLE_DEVICES",
                )
            if now >= next_word:
                say(f"waiting for {_key_words(key)}, in use by {holder}")
                next_word = now + _SAY_EVERY_SECONDS
            time.sleep(min(_EVERY_SECONDS, deadline - now))


def _open(path: Path) -> int:
    """The lock's file, made for all users where there is none; one that another user made is opened as far as that goes."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            path.parent.chmod(_FOLDER_MODE)
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        os.fchmod(descriptor, _FILE_MODE)
        return descriptor
    try:
        return os.open(path, flags | os.O_RDWR)
    except PermissionError:
        return os.open(path, flags | os.O_RDONLY)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(descriptor: int, run: str) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(Holder(pid=os.getpid(), run=run, since_utc=since)), 0)


def _holder_words(descriptor: int) -> str:
    try:
        holder = msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except (OSError, msgspec.DecodeError):
        return "another fitserve"
    return f"process {holder.pid}, run {holder.run}, since {holder.since_utc}"


def _key_words(key: str) -> str:
    return "this machine" if key == "host" else f"device {key}"


def _in_a_name(key: str) -> str:
    return "".join(character if character.isalnum() or character in "-_" else "_" for character in key)
