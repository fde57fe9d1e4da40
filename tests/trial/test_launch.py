"""A started program is kept, watched and ended with everything below it, whatever becomes of the tool."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from fitserve.errors import MachineError
from fitserve.trial.launch import Exit, Process, launch

SCATTER = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, start_new_session=True)
child = os.fork()
if child == 0:
    subprocess.Popen(sleep, start_new_session=True)
    os._exit(0)
os.waitpid(child, 0)
print("scattered", flush=True)
time.sleep(600)
"""
"""A child in its group, one in a session of its own, and one whose parent has gone."""


def start(code: str, log: Path, env: dict[str, str] | None = None, **how: Any) -> Process:
    """Start a Python program."""
    return launch([sys.executable, "-c", code], env={**os.environ, **(env or {})}, log_path=log, **how)


def wait_for(log: Path, words: bytes) -> None:
    """Wait until the log holds the words."""
    end = time.monotonic() + 20
    while words not in log.read_bytes():
        assert time.monotonic() < end, "the program has not spoken"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("pass", Exit(0, None)),
        ("raise SystemExit(7)", Exit(7, None)),
        ("import os; os.kill(os.getpid(), 9)", Exit(None, 9)),
        ("import os; os.abort()", Exit(None, signal.SIGABRT)),
    ],
)
def test_the_exit_is_the_programs_own(code: str, ended: Exit, tmp_path: Path) -> None:
    """A code stays a code, a signal a signal."""
    process = start(code, tmp_path / "log")

    assert ended == process.wait()
    process.end(0)


@pytest.mark.parametrize(("ended", "code"), [(Exit(7, None), 7), (Exit(None, 9), 137), (Exit(None, 15), 143)])
def test_a_signal_is_128_more_for_a_shell(ended: Exit, code: int) -> None:
    """A shell's exit code tells the signal."""
    assert code == ended.shell_code


def test_both_streams_are_kept_in_their_order(tmp_path: Path) -> None:
    """What goes to stdout and to stderr stands in the log as it was written."""
    code = "import os\nfor i in range(50): os.write(1, b'out %d\\n' % i); os.write(2, b'err %d\\n' % i)"
    process = start(code, tmp_path / "log")
    process.wait()
    process.end(0)

    expected = [f"{stream} {i}" for i in range(50) for stream in ("out", "err")]
    assert expected == (tmp_path / "log").read_text().splitlines()


def test_a_flood_is_kept_whole_while_nobody_reads(tmp_path: Path) -> None:
    """Fifteen megabytes arrive in the log though the watcher takes none of them."""
    process = start("for i in range(150_000): print(i, 'x' * 93)", tmp_path / "log")
    process.wait()
    process.end(0)

    lines = (tmp_path / "log").read_text().splitlines()
    assert (150_000, "149999 " + "x" * 93) == (len(lines), lines[-1])


def test_the_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A log may hold keys: nobody else can read it."""
    process = start("print(1)", tmp_path / "log")
    process.wait()
    process.end(0)

    assert 0o600 == (tmp_path / "log").stat().st_mode & 0o777


def test_the_end_reaches_what_has_left_the_group(tmp_path: Path, mark: Any) -> None:
    """Children in other sessions and orphans end with the program."""
    process = start(SCATTER, tmp_path / "log", mark.env)
    wait_for(tmp_path / "log", b"scattered")
    before = len(mark.processes())
    process.end(5)

    assert (6, []) == (before, mark.processes())


def test_what_outlives_the_program_is_ended(tmp_path: Path, mark: Any) -> None:
    """When the program itself has gone, its scattered children go too."""
    process = start(SCATTER.replace("time.sleep(600)\n", "", 1), tmp_path / "log", mark.env)
    process.wait()
    process.end(5)

    assert [] == mark.processes()


def test_a_program_that_ignores_term_is_killed(tmp_path: Path, mark: Any) -> None:
    """After the grace there is no choice left."""
    code = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    process = start(code, tmp_path / "log", mark.env)
    wait_for(tmp_path / "log", b"deaf")
    process.end(0.2)

    assert (Exit(None, 9), []) == (process.exit, mark.processes())


def test_the_program_may_tidy_up(tmp_path: Path) -> None:
    """Within the grace a program ends in its own way, and says so."""
    code = (
        "import signal, time\n"
        "def bye(*_): print('tidied', flush=True); raise SystemExit(0)\n"
        "signal.signal(15, bye); print('ready', flush=True); time.sleep(600)"
    )
    process = start(code, tmp_path / "log")
    wait_for(tmp_path / "log", b"ready")
    process.end(20)

    assert (Exit(0, None), ["ready", "tidied"]) == (process.exit, (tmp_path / "log").read_text().splitlines())


def test_a_signal_is_handed_on(tmp_path: Path) -> None:
    """The program gets the signal that the tool was told to hand on."""
    code = (
        "import signal, time\n"
        "def told(*_): print('usr1', flush=True); raise SystemExit(0)\n"
        "signal.signal(signal.SIGUSR1, told)\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    process = start(code, tmp_path / "log")
    wait_for(tmp_path / "log", b"ready")
    process.signal(signal.SIGUSR1)
    process.wait()
    process.end(0)

    assert ["ready", "usr1"] == (tmp_path / "log").read_text().splitlines()


def test_the_program_has_the_usual_signals(tmp_path: Path) -> None:
    """Nothing that the tool does with signals is left in the program: interrupts interrupt, pipes break."""
    code = (
        "import signal\n"
        "print([signal.getsignal(n) for n in (1, 10, 12, 15)] == [signal.SIG_DFL] * 4)\n"
        "print(signal.getsignal(2) is signal.default_int_handler, signal.pthread_sigmask(0, []))"
    )
    process = start(code, tmp_path / "log")
    process.wait()
    process.end(0)

    assert ["True", "True set()"] == (tmp_path / "log").read_text().splitlines()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("no-such-program-anywhere", "there is no program"),
        ("/no/such/program", "there is no program"),
        ("{tmp}/plain-file", "permission denied"),
        ("/etc", "permission denied"),
    ],
)
def test_what_cannot_be_run_is_an_error_of_the_machine(program: str, words: str, tmp_path: Path) -> None:
    """A program that is not there or not executable ends with exit code 4 and its name."""
    (tmp_path / "plain-file").write_text("no program")
    program = program.format(tmp=tmp_path)
    with pytest.raises(MachineError) as caught:
        launch([program], env=os.environ, log_path=tmp_path / "log")

    assert (4, program) == (caught.value.exit_code, caught.value.where)
    assert words in caught.value.what.lower()


def test_a_file_that_is_no_program_is_an_error_of_the_machine(tmp_path: Path) -> None:
    """An executable file that the kernel cannot run is found out when it is started."""
    program = tmp_path / "program"
    program.write_bytes(b"\x00\x01\x02")
    program.chmod(0o755)

    with pytest.raises(MachineError, match=os.strerror(errno.ENOEXEC)):
        launch([str(program)], env=os.environ, log_path=tmp_path / "log")


@pytest.mark.parametrize("victim", ["tool", "tool's group"])
def test_nothing_outlives_a_killed_tool(victim: str, tmp_path: Path, mark: Any) -> None:
    """Within five seconds of the tool's death by SIGKILL no process is left of what it had started."""
    code = f"""
import os, sys, time
from pathlib import Path
from fitserve.trial.launch import launch
launch([sys.executable, "-c", {SCATTER!r}], env=os.environ, log_path=Path({str(tmp_path / "log")!r}))
time.sleep(600)
"""
    tool = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **mark.env}, start_new_session=True
    )
    end = time.monotonic() + 20
    while not (tmp_path / "log").exists() and time.monotonic() < end:
        time.sleep(0.02)
    wait_for(tmp_path / "log", b"scattered")
    if victim == "tool":
        tool.kill()
    else:
        os.killpg(tool.pid, signal.SIGKILL)
    tool.wait()

    assert [] == mark.left_after(5)


@pytest.mark.parametrize(
    ("victim", "signals"), [("guard", {signal.SIGTERM, signal.SIGKILL}), ("keeper", {signal.SIGKILL})]
)
def test_nothing_outlives_a_killed_reaper(victim: str, signals: set[int], tmp_path: Path, mark: Any) -> None:
    """If one of the two processes between is killed, the other one ends the program and all that it has scattered."""
    process = start(SCATTER, tmp_path / "log", mark.env)
    wait_for(tmp_path / "log", b"scattered")
    guard = process.reaper_pid
    (keeper,) = [child.pid for child in psutil.Process(guard).children()]
    os.kill(guard if victim == "guard" else keeper, signal.SIGKILL)
    ended = process.wait(20)

    assert ended is not None
    assert (None, True, []) == (ended.code, ended.signal in signals, mark.left_after(5))
    process.end(0)


def test_what_is_ended_by_a_command_is_ended_once(tmp_path: Path) -> None:
    """The command that ends what is no descendant runs after the program, also when the keeper was killed."""
    for victim in (False, True):
        note = tmp_path / f"note-{victim}"
        stop = [sys.executable, "-c", f"open({str(note)!r}, 'a').write('ended')"]
        process = start("import time; print('up', flush=True); time.sleep(600)", tmp_path / "log", stop=stop)
        wait_for(tmp_path / "log", b"up")
        if victim:
            psutil.Process(process.reaper_pid).children()[0].kill()
        process.end(5)

        assert "ended" == note.read_text()


def test_only_what_was_started_is_touched(tmp_path: Path, mark: Any) -> None:
    """A process that the tool has not started is alive after the end, though it carries the same mark."""
    other = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, **mark.env}
    )
    process = start(SCATTER, tmp_path / "log", mark.env)
    wait_for(tmp_path / "log", b"scattered")
    process.end(1)

    assert [other.pid] == mark.processes()
    other.kill()
    other.wait()


def test_a_full_disk_ends_the_log_and_not_the_program(tmp_path: Path) -> None:
    """When the log cannot grow, the program goes on to its end, and the reason is known."""
    code = f"""
import os, resource, sys
from pathlib import Path
from fitserve.trial.launch import launch
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
program = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\\nfor i in range(1000): print(i)\\nraise SystemExit(5)"
process = launch([sys.executable, "-c", program], env=os.environ, log_path=Path({str(tmp_path / "log")!r}))
print(process.wait().code)
process.end(0)
print(process.output.log.failure, process.output.total_bytes)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ["5", f"{os.strerror(errno.EFBIG)} 3890"] == run.stdout.splitlines()
    assert 1000 == (tmp_path / "log").stat().st_size


def test_output_passes_through_to_both_streams(tmp_path: Path) -> None:
    """With passing on, stdout is stdout and stderr is stderr, byte for byte, and the log has both."""
    program = "import os; os.write(1, b'to out \\xff\\n'); os.write(2, b'to err \\xfe')"
    code = f"""
import os, sys
from pathlib import Path
from fitserve.trial.launch import launch
process = launch([sys.executable, "-c", {program!r}], env=os.environ, log_path=Path({str(tmp_path / "log")!r}),
                 pass_through=True)
process.wait()
process.end(0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert (b"to out \xff\n", b"to err \xfe") == (run.stdout, run.stderr)
    assert sorted(b"to out \xff\nto err \xfe") == sorted((tmp_path / "log").read_bytes())
