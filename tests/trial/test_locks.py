"""One tool at a time on a device: real processes, real locks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fitserve.errors import MachineError
from fitserve.trial.locks import Locks, lock_folder

HOLD = """
import sys, time
from pathlib import Path
from fitserve.trial.locks import Locks
Locks(sys.argv[2], Path(sys.argv[1])).hold(sys.argv[3:], 0, print)
print("held", flush=True)
time.sleep(600)
"""


def hold_elsewhere(folder: Path, *keys: str) -> subprocess.Popen[str]:
    """Another process that holds locks."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), "their-run", *keys], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "held\n" == process.stdout.readline()
    return process


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    """Process, run, and since when; exit code 4."""
    with hold_elsewhere(tmp_path, "GPU-1") as other:
        with pytest.raises(MachineError) as refused:
            Locks("our-run", tmp_path).hold(["GPU-1"], 0, print)
        other.kill()

    assert 4 == refused.value.exit_code
    assert refused.value.what.startswith(
        f"device GPU-1 is in use by process {other.pid}, run their-run, since 20"
    )
    assert "--wait" in refused.value.hint


def test_other_devices_are_free(tmp_path: Path) -> None:
    """A lock is one device's."""
    ours = Locks("our-run", tmp_path)
    with hold_elsewhere(tmp_path, "GPU-1") as other:
        ours.hold(["GPU-2", "host"], 0, print)
        with pytest.raises(MachineError, match="GPU-1"):
            ours.hold(["GPU-2", "GPU-1"], 0, print)
        other.kill()
    ours.release()


def test_a_lock_is_free_when_its_holder_is_dead(tmp_path: Path) -> None:
    """SIGKILL leaves nothing that has to be cleaned up."""
    ours = Locks("our-run", tmp_path)
    with hold_elsewhere(tmp_path, "host") as other:
        other.kill()
    ours.hold(["host"], 0, print)
    with pytest.raises(MachineError, match=f"this machine is in use by process {os.getpid()}, run our-run"):
        Locks("a third", tmp_path).hold(["host"], 0, print)
    ours.release()


def test_waiting_is_said_and_ends_with_the_lock(tmp_path: Path) -> None:
    """With time to wait the second one goes on when the first has ended."""
    said: list[str] = []
    ours = Locks("our-run", tmp_path)
    with hold_elsewhere(tmp_path, "GPU-1") as other:

        def say(line: str) -> None:
            said.append(line)
            other.kill()

        ours.hold(["GPU-1"], 60, say)

    assert 1 == len(said)
    assert said[0].startswith(f"waiting for device GPU-1, in use by process {other.pid}, run their-run")
    ours.release()


def test_a_lock_is_held_once_and_let_go_of(tmp_path: Path) -> None:
    """Holding again is nothing new; after the release another may have it."""
    ours = Locks("our-run", tmp_path)
    ours.hold(["GPU-1", "GPU-1"], 0, print)
    ours.hold(["GPU-1"], 0, print)
    ours.release()
    theirs = Locks("their-run", tmp_path)
    theirs.hold(["GPU-1"], 0, print)
    theirs.release()


def test_a_child_does_not_keep_a_lock(tmp_path: Path) -> None:
    """What the holder has started does not hold the lock on after it."""
    code = (
        "import subprocess, sys; from pathlib import Path; from fitserve.trial.locks import Locks;"
        f"Locks('r', Path({str(tmp_path)!r})).hold(['host'], 0, print);"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], close_fds=False,"
        "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = Locks("our-run", tmp_path)
    ours.hold(["host"], 0, print)
    ours.release()
    os.kill(int(done.stdout), 9)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """Below a file there is no place for locks."""
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="no lock can be kept"):
        Locks("our-run", tmp_path / "file" / "locks").hold(["host"], 0, print)


def test_a_lock_is_for_all_users(tmp_path: Path) -> None:
    """Its file can be locked by everybody, whatever the umask."""
    before = os.umask(0o077)
    try:
        ours = Locks("our-run", tmp_path / "locks")
        ours.hold(["MIG-GPU-1/../2"], 0, print)
    finally:
        os.umask(before)
    (file,) = (tmp_path / "locks").iterdir()

    assert ("MIG-GPU-1____2.lock", 0o666) == (file.name, file.stat().st_mode & 0o777)
    assert 0o1777 == (tmp_path / "locks").stat().st_mode & 0o7777
    ours.release()


def test_the_folder_is_named_or_shared() -> None:
    """One variable names it; without it, all users of the machine have the same."""
    assert Path("/some/where") == lock_folder({"FITSERVE_LOCK_DIR": "/some/where"})
    assert "fitserve" == lock_folder({}).name
