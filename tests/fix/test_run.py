"""``run`` changes nothing: output, signals and the exit code are the program's own; its failure is explained."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def launch(port: int) -> list[str]:
    """A launch that serves where there is room for 8,192 tokens."""
    return ["vllm", "serve", "org/model", "--port", str(port), "--max-model-len", "8192"]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(7)", 7),
        ("raise SystemExit(255)", 255),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.kill(os.getpid(), 15)", 143),
    ],
)
def test_the_exit_code_is_the_programs(code: str, exit_code: int, tool: Any) -> None:
    """A signal that ended it is 128 more, as in a shell."""
    assert exit_code == tool.run("run", "--", sys.executable, "-c", code).returncode


def test_output_is_untouched(tool: Any) -> None:
    """Each stream has the program's bytes and no others, where it ends well."""
    code = "import os; os.write(1, b'out\\r\\x1b[1mbold\\n'); os.write(2, b'no line end')"
    process = tool.start("run", "--", sys.executable, "-c", code, text=False)
    out, err = process.communicate(timeout=60)

    assert (0, b"out\r\x1b[1mbold\n", b"no line end") == (process.returncode, out, err)


def test_a_failure_is_explained(tool: Any, port: int, mark: Any) -> None:
    """After the program's own words, stderr has the cause and the help; stdout has nothing of ours."""
    done = tool.run("run", "--", *launch(port))

    assert (1, []) == (done.returncode, mark.processes())
    assert "error[kv-cache-smaller-than-context]" in done.stderr
    assert "error[" not in done.stdout
    assert "help:" in done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["bash", "-c", "true || vllm serve org/model"], True),
        (["sh", "-c", "exit 0; vllm serve org/model"], True),
        (["sh", "-c", "exit 0"], False),
    ],
)
def test_an_end_before_it_served_is_said(command: list[str], said: bool, tool: Any) -> None:
    """A launch that ends with 0 and never served is told about in one line; what starts no server is not."""
    done = tool.run("run", "--", *command)
    quiet = tool.run("run", "--quiet", "--", *command)

    words = "note: the program ended with exit code 0 before it served"
    assert (0, said, 0, False) == (
        done.returncode,
        words in done.stderr,
        quiet.returncode,
        words in quiet.stderr,
    )


def test_quiet_explains_nothing(tool: Any, port: int) -> None:
    """With --quiet, stderr is the program's alone."""
    done = tool.run("run", "--quiet", "--", *launch(port))

    assert (1, False) == (done.returncode, "error[" in done.stderr)


def test_a_termination_message_is_left(tool: Any, port: int, tmp_path: Path) -> None:
    """A short diagnosis stands in the named file, at most 4,096 bytes of it."""
    path = tmp_path / "termination"
    tool.run("run", "--termination-log", str(path), "--", *launch(port))
    text = path.read_bytes()

    assert text.startswith(b"error[kv-cache-smaller-than-context]: max_model_len 8,192 needs")
    assert len(text) <= 4096


def test_a_termination_message_that_cannot_be_left_is_one_line(tool: Any, port: int, tmp_path: Path) -> None:
    """The exit code stays the program's."""
    done = tool.run("run", "--termination-log", str(tmp_path / "no" / "where"), "--", *launch(port))

    assert (1, True) == (done.returncode, "cannot be written" in done.stderr)


def test_no_message_is_left_where_nothing_failed(tool: Any, tmp_path: Path) -> None:
    """A program that ends well has no diagnosis."""
    path = tmp_path / "termination"
    tool.run("run", "--termination-log", str(path), "--", sys.executable, "-c", "pass")

    assert not path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_handed_on(number: signal.Signals, tool: Any, mark: Any) -> None:
    """The program gets each signal, decides what it means, and its exit code is kept; it is no failure."""
    code = (
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()"
    )
    process = tool.start("run", "--", sys.executable, "-c", code)
    assert process.stdout is not None
    assert "ready\n" == process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)

    assert (42, "", []) == (process.returncode, err, mark.processes())


def test_a_killed_supervisor_leaves_nothing(tool: Any, port: int, mark: Any) -> None:
    """After SIGKILL no process is left five seconds later."""
    process = tool.start("run", "--", *launch(port), FAKE_KV_TOKENS="8192")
    assert process.stdout is not None
    while "startup complete" not in process.stdout.readline():
        pass
    process.kill()
    process.communicate()

    assert [] == mark.left_after(5)


def test_a_death_while_serving_is_explained(tool: Any, port: int) -> None:
    """A server that was up and died has its cause told."""
    done = tool.run("run", "--", *launch(port), FAKE_KV_TOKENS="8192", FAKE_VLLM="dies-serving")

    assert (1, True) == (done.returncode, "error[serving-oom]" in done.stderr)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [(["/no/such/vllm", "serve", "m"], 4, "there is no program"), ([], 2, "Missing argument")],
)
def test_what_cannot_be_started(words: list[str], code: int, said: str, tool: Any) -> None:
    """A missing program is the machine's error, a missing command the user's."""
    done = tool.run("run", "--", *words)

    assert (code, True) == (done.returncode, said in done.stderr)


def test_the_run_is_kept(tool: Any, port: int) -> None:
    """The journal has the run with its cause and its log."""
    tool.run("run", "--", *launch(port))
    record = tool.record()

    assert ("run", "not-reached", "kv-cache-smaller-than-context") == (
        record["made_by"],
        record["outcome"],
        record["trials"][0]["cause"],
    )
    assert "To serve at least one request" in tool.run("report", "last", "--log", "1").stdout


def test_standard_input_is_the_programs(tool: Any) -> None:
    """What is piped into the supervisor reaches the program."""
    program = [sys.executable, "-c", "print(input())"]
    done = subprocess.run(
        [sys.executable, "-c", "from fitserve.cli import main; main()", "run", "--", *program],
        env=tool.env,
        input="words\n",
        capture_output=True,
        text=True,
        check=True,
    )

    assert "words\n" == done.stdout


def test_a_closed_output_does_not_end_the_program(tool: Any, tmp_path: Path) -> None:
    """When nobody reads its output any more, the program goes on to its end."""
    done = tmp_path / "done"
    code = f"print('x' * 1_000_000); open({str(done)!r}, 'w')"
    process = tool.start("run", "--", sys.executable, "-c", code)
    assert process.stdout is not None
    process.stdout.close()
    process.wait(60)
    process.stderr.close()

    assert (0, True) == (process.returncode, done.exists())
