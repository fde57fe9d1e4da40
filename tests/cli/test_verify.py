"""``fitserve verify`` as a program: exit codes, JSON, files, and what Ctrl-C leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

FITSERVE = Path(sys.executable).with_name("fitserve")
FAKE_SERVER = Path(__file__).parents[1] / "verify" / "fake_server.py"


@pytest.fixture(scope="module")
def fake_url() -> Iterator[str]:
    """The address of a running fake server; a mode's name is added as the base path."""
    with subprocess.Popen([sys.executable, FAKE_SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


def fitserve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [FITSERVE, "verify", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("mode", "code"),
    [("good", 0), ("over-accepted", 1), ("http-500", 1), ("key", 1), ("html", 3), ("nothing", 3)],
)
def test_the_exit_code_is_the_answer(fake_url: str, mode: str, code: int) -> None:
    """0 proven, 1 a check failed, 3 no OpenAI-compatible server; the JSON is one object in every case."""
    done = fitserve(f"{fake_url}/{mode}", "--quick", "--json", "--deadline", "5")

    assert code == done.returncode
    answer = json.loads(done.stdout)
    assert (1, "verification") == (answer["schema"], answer["kind"])
    assert set(answer["checks"][0]) == {
        "name",
        "passed",
        "expected",
        "actual",
        "seconds",
        "prompt_tokens",
        "output_tokens",
        "concurrency",
        "error_type",
    }


def test_nothing_there_is_exit_4() -> None:
    """A server that cannot be reached is no answer about the server; the JSON still says what was tried."""
    done = fitserve("http://127.0.0.1:1", "--json")

    assert 4 == done.returncode
    assert ["connection-refused"] == [check["error_type"] for check in json.loads(done.stdout)["checks"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ("ftp://host",),
        ("http://8.8.8.8:8000",),
        ("http://127.0.0.1:1", "--deadline", "0"),
        ("http://127.0.0.1:1", "--goal-context", "-5"),
        ("http://127.0.0.1:1", "--api-key-env", "FITSERVE_NO_SUCH_KEY"),
        ("http://127.0.0.1:1", "--ca-file", "no-such-file.pem"),
        (),
    ],
)
def test_a_wrong_command_line_is_exit_2(arguments: tuple[str, ...]) -> None:
    """What the user has to write differently is said in words, without a traceback, before anything is asked."""
    done = fitserve(*arguments)

    assert (2, "") == (done.returncode, done.stdout)
    assert "rror: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_trace_that_is_none_is_exit_3(tmp_path: Path) -> None:
    """The line that is no request is named before anything is asked."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"input_tokens": 5, "output_tokens": 2}\n{"words": "hello"}\n')

    done = fitserve("http://127.0.0.1:1", "--trace", str(trace))

    assert (3, "") == (done.returncode, done.stdout)
    assert f"--> {trace}:2" in done.stderr
    assert "help: " in done.stderr


def test_the_table_is_the_answer(fake_url: str) -> None:
    """The proof table goes to stdout; progress is for a terminal alone."""
    done = fitserve(f"{fake_url}/good", "--quick")

    assert (0, "") == (done.returncode, done.stderr)
    assert "boundary-exact" in done.stdout
    assert "one request of full length" in done.stdout


def test_progress_is_shown_on_a_terminal(fake_url: str) -> None:
    """On a terminal each check is told as it is answered, unless the user wants quiet."""
    url = f"{fake_url}/good"

    assert b"passed    boundary-exact" in progress(url)
    assert b"" == progress(url, "--quiet")


def progress(url: str, *options: str) -> bytes:
    """What the command writes to a terminal's stderr."""
    terminal, its_end = os.openpty()
    command = [FITSERVE, "verify", url, "--quick", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=its_end, check=True, timeout=60)
    os.close(its_end)
    seen = b""
    try:
        while piece := os.read(terminal, 4096):
            seen += piece
    except OSError:
        pass  # Linux ends a terminal without writers by an error
    os.close(terminal)
    assert 0 == done.returncode
    return seen


def test_the_answer_goes_to_a_file(fake_url: str, tmp_path: Path) -> None:
    """``-o`` writes the answer without colours, and stdout stays empty."""
    path = tmp_path / "proof.txt"

    done = fitserve(f"{fake_url}/good", "--quick", "-o", str(path))

    assert (0, "") == (done.returncode, done.stdout)
    assert "boundary-exact" in path.read_text()
    assert "\x1b" not in path.read_text()


def running_requests(url: str) -> int:
    """Requests that the fake server holds at this moment."""
    with urllib.request.urlopen(f"{url}/metrics") as page:
        lines = page.read().decode().splitlines()
    return int(next(line for line in lines if line.startswith("vllm:num_requests_waiting")).split()[-1])


def test_ctrl_c_cancels_what_is_in_flight(fake_url: str) -> None:
    """An interrupt ends with 130, and the server is left without any of our requests."""
    url = f"{fake_url}/never-scheduled"
    # A shell lets its background jobs ignore the interrupt, and children inherit that.
    with subprocess.Popen(
        [FITSERVE, "verify", url],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread runs here
    ) as child:
        while running_requests(url) == 0:
            time.sleep(0.02)

        os.kill(child.pid, signal.SIGINT)
        stdout, stderr = child.communicate(timeout=30)

    assert (130, "") == (child.returncode, stdout)
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    while running_requests(url) > 0:
        time.sleep(0.02)
