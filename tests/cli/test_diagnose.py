"""``fitserve diagnose`` as its users meet it: real processes, files, folders, pipes and growing logs."""

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fitserve.diagnose.triage import find_logs, triage

LOGS = Path(__file__).parent / "logs"
GOLDENS = sorted(path.stem for path in LOGS.glob("*.txt"))
"""A pair of files makes a case: NAME.log, a log, and NAME.txt, what is said about it."""

KV = LOGS / "kv_cache.log"
CAUSE_LINE = 12
COMMAND = [sys.executable, "-m", "fitserve", "diagnose"]
PATIENCE_SECONDS = 60


def diagnose(
    *arguments: str | Path, stdin: bytes | None = None, cwd: Path = LOGS
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, without a terminal."""
    run = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin if stdin is not None else b"",
        capture_output=True,
        cwd=cwd,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return subprocess.CompletedProcess(run.args, run.returncode, run.stdout.decode(), run.stderr.decode())


def following(*arguments: str | Path) -> "subprocess.Popen[bytes]":
    """``diagnose --follow`` with pipes, running."""
    return subprocess.Popen(
        [*COMMAND, "--follow", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_until_read(process: "subprocess.Popen[bytes]", path: Path) -> None:
    """Wait until the process has read the file to its end."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                is_ours = descriptor.samefile(path)
                position = int(Path(f"/proc/{process.pid}/fdinfo/{descriptor.name}").read_text().split()[1])
            except FileNotFoundError:
                continue
            if is_ours and position == path.stat().st_size:
                return
        time.sleep(0.02)
    pytest.fail("the log was never read")


def head(path: Path, lines: int) -> bytes:
    """The first lines of a log."""
    return b"".join(path.read_bytes().splitlines(keepends=True)[:lines])


@pytest.mark.parametrize("name", GOLDENS)
def test_whole_answer(name: str) -> None:
    """What a person reads about a log is that of its case, to the letter."""
    expected = (LOGS / f"{name}.txt").read_text(encoding="utf-8")

    assert expected == diagnose(f"{name}.log").stdout


@pytest.mark.parametrize(
    ("name", "code"),
    [("kv_cache", 1), ("taken", 1), ("two_boots", 1), ("echo", 1), ("healthy", 0), ("other", 3)],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_exit_code(name: str, code: int, form: list[str]) -> None:
    """0 healthy, 1 a cause or its echo, 3 no vLLM log; the same as text and as JSON."""
    run = diagnose(*form, f"{name}.log")

    assert code == run.returncode


@pytest.mark.parametrize("content", [b"", b"\n\n", bytes(range(256)) * 40, b"\x00" * 500])
def test_nothing_to_read(tmp_path: Path, content: bytes) -> None:
    """An empty or binary file is no vLLM log: code 3, and one sentence on stderr."""
    log = tmp_path / "serve.log"
    log.write_bytes(content)
    run = diagnose(log)

    assert run.returncode == 3
    assert run.stdout == ""
    assert run.stderr.startswith("error: ")
    assert f"--> {log}" in run.stderr
    assert "Traceback" not in run.stderr


def test_missing_file() -> None:
    """A file that is not there is code 3, and the sentence names it."""
    run = diagnose("nowhere.log")

    assert run.returncode == 3
    assert "no such file" in run.stderr
    assert "--> nowhere.log" in run.stderr


def test_json_has_the_contract() -> None:
    """The JSON is one object with the agreed keys, and nothing else on stdout."""
    found: dict[str, Any] = json.loads(diagnose("kv_cache.log", "--json").stdout)
    keys = {
        "schema", "kind", "stage", "cause", "line", "severity", "confidence", "message", "evidence", "numbers",
        "wrappers", "vllm_version", "boots", "budget", "advice", "not_advised",
    }  # fmt: skip

    assert keys <= found.keys()
    assert (1, "diagnosis", "kv_cache", "kv-cache-smaller-than-context") == tuple(
        found[key] for key in ("schema", "kind", "stage", "cause")
    )
    assert found["line"] == CAUSE_LINE
    assert {"flag", "from", "to", "direction", "cost", "why"} <= found["advice"][0].keys()
    assert all(item.keys() == {"line", "text"} for item in found["evidence"])


def test_json_of_something_else() -> None:
    """A text that is not vLLM's is an object, too; the code is 3."""
    run = diagnose("other.log", "--json")

    assert run.returncode == 3
    assert json.loads(run.stdout)["cause"] == "not-a-vllm-log"
    assert run.stderr == ""


@pytest.mark.parametrize("arguments", [["-"], []])
def test_pipe(arguments: list[str]) -> None:
    """A pipe is read with - and without."""
    run = diagnose(*arguments, stdin=KV.read_bytes())

    assert run.returncode == 1
    assert f"--> stdin:{CAUSE_LINE}" in run.stdout


def test_terminal_without_a_log_is_told_what_to_type() -> None:
    """On a terminal without a file nobody is kept waiting: code 2, and an example."""
    leader, follower = pty.openpty()
    try:
        run = subprocess.run(
            COMMAND, stdin=follower, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    finally:
        os.close(leader)
        os.close(follower)

    assert run.returncode == 2
    assert "no log was given" in run.stderr
    assert "| fitserve diagnose" in run.stderr


def test_gzip(tmp_path: Path) -> None:
    """A gzipped log gives the answer of the plain one."""
    packed = tmp_path / "kv_cache.log.gz"
    packed.write_bytes(gzip.compress(KV.read_bytes()))
    plain, unpacked = (json.loads(diagnose(path, "--json").stdout) for path in (KV, packed))

    assert plain == unpacked


def test_answer_in_a_file(tmp_path: Path) -> None:
    """With -o the answer is in the file, and the code stays."""
    out = tmp_path / "answer.txt"
    run = diagnose("taken.log", "-o", out)

    assert (run.returncode, run.stdout) == (1, "")
    assert (LOGS / "taken.txt").read_text(encoding="utf-8") == out.read_text(encoding="utf-8")


def test_colours_when_asked_for() -> None:
    """A pipe gets no colours unless they are asked for."""
    assert "\x1b[" not in diagnose("taken.log").stdout
    assert "\x1b[" in diagnose("taken.log", "--color", "always").stdout


def test_reader_that_leaves_early() -> None:
    """A reader that closes the pipe draws no complaint."""
    with subprocess.Popen([*COMMAND, str(KV)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()

    assert complaint == b""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of logs of several kinds, at several depths."""
    for name in ("kv_cache", "healthy"):
        for pod in range(3):
            place = tmp_path / "pods" / f"pod-{pod}" / f"{name}.log"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((LOGS / f"{name}.log").read_bytes())
    (tmp_path / "taken.txt.gz").write_bytes(gzip.compress((LOGS / "taken.log").read_bytes()))
    (tmp_path / "serve.log.1").write_bytes((LOGS / "taken.log").read_bytes())
    (tmp_path / "stdout").write_bytes((LOGS / "echo.log").read_bytes())
    (tmp_path / "weights").write_bytes(b"\x00" * 100)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "queue.log")
    return tmp_path


def test_folder_as_json(folder: Path) -> None:
    """A folder gives its logs by cause, at any depth, gzipped, rotated or without a suffix; what is unreadable is apart."""
    run = diagnose(folder, "--json")
    found: dict[str, Any] = json.loads(run.stdout)
    counts = {group["cause"]: group["count"] for group in found["groups"]}

    assert run.returncode == 1
    assert (1, "triage") == (found["schema"], found["kind"])
    assert {
        "kv-cache-smaller-than-context": 3,
        "healthy": 3,
        "gpu-memory-taken": 2,
        "wrapper-only": 1,
    } == counts
    assert all(group["count"] == len(group["files"]) for group in found["groups"])
    assert all(group["example"]["file"] == group["files"][0] for group in found["groups"])
    assert [str(folder / "gone.log")] == [failure["file"] for failure in found["failed"]]


def test_folder_as_text(folder: Path) -> None:
    """The table names each cause once, with its count and an example's place."""
    run = diagnose(".", cwd=folder)

    assert "3  kv-cache-smaller-than-context" in run.stdout
    assert f"--> pods/pod-0/kv_cache.log:{CAUSE_LINE}" in run.stdout
    assert "not read: gone.log" in run.stdout
    assert run.stderr == ""


def test_several_files() -> None:
    """Several files are sorted like a folder; all of them are read, whatever their names."""
    found = json.loads(diagnose("kv_cache.log", "healthy.log", "nowhere.log", "--json").stdout)

    assert {"kv-cache-smaller-than-context", "healthy"} == {group["cause"] for group in found["groups"]}
    assert ["nowhere.log"] == [failure["file"] for failure in found["failed"]]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["healthy.log", "healthy.log"], 0),
        (["healthy.log", "other.log"], 0),
        (["healthy.log", "echo.log"], 1),
        (["other.log", "other.log"], 3),
        (["nowhere.log", "nothing.log"], 3),
    ],
)
def test_exit_code_of_many(names: list[str], code: int) -> None:
    """1 if any log has a cause, 0 if those that are vLLM's are healthy, 3 if none is vLLM's."""
    assert code == diagnose(*names).returncode


def test_empty_folder(tmp_path: Path) -> None:
    """A folder without a log cannot be used."""
    run = diagnose(tmp_path)

    assert run.returncode == 3
    assert "no log is there" in run.stderr


def test_many_logs_over_processes(tmp_path: Path) -> None:
    """More logs than one process reads give the same groups, whoever reads them and in whatever order."""
    names = ("kv_cache", "taken", "echo", "healthy")
    for number in range(120):
        (tmp_path / f"{number:03}.log").write_bytes((LOGS / f"{names[number % 4]}.log").read_bytes())
    counts: list[int] = []
    alone = triage(find_logs([tmp_path]), processes=1)
    together = triage(find_logs([tmp_path]), processes=2, progress=counts.append)

    assert alone == together
    assert [30] * 4 == [group.count for group in together.groups]
    assert sorted(counts) == counts
    assert counts[-1] == 120


def test_stdin_beside_files_is_refused() -> None:
    """The standard input is read alone or not at all."""
    assert diagnose("-", "kv_cache.log").returncode == 2


def test_follow_speaks_before_the_end(tmp_path: Path) -> None:
    """The cause is said as soon as its line has come, while the writer still holds the pipe open."""
    with following("-", "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(head(KV, CAUSE_LINE))
        process.stdin.flush()
        spoken = json.loads(process.stdout.readline())
        was_running = process.poll() is None
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert spoken["cause"] == "kv-cache-smaller-than-context"
    assert was_running
    assert (b"", 1) == (rest, process.returncode)


def test_follow_answers_at_the_end_of_the_pipe() -> None:
    """Where no line makes the cause certain the answer comes when the writer has gone."""
    with following("-") as process:
        out, _ = process.communicate((LOGS / "healthy.log").read_bytes(), timeout=PATIENCE_SECONDS)

    assert process.returncode == 0
    assert out.startswith(b"healthy: ")


def test_follow_never_stops_the_writer() -> None:
    """All of a pipe is taken, however much comes after the cause."""
    with following("-") as process:
        out, _ = process.communicate(KV.read_bytes() + b"INFO: noise\n" * 200_000, timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert out.startswith(b"error[kv-cache-smaller-than-context]")


def test_follow_a_growing_file(tmp_path: Path) -> None:
    """A file is followed while it grows, until its cause is certain."""
    log = tmp_path / "serve.log"
    log.write_bytes(head(KV, 6))
    with following(log) as process:
        wait_until_read(process, log)
        with log.open("ab") as writer:
            writer.write(KV.read_bytes()[len(head(KV, 6)) : len(head(KV, CAUSE_LINE))])
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert f"--> {log}:{CAUSE_LINE}" in out.decode()


def test_follow_a_truncated_file(tmp_path: Path) -> None:
    """A file that is emptied and written anew is read from its new beginning."""
    log = tmp_path / "serve.log"
    log.write_bytes(head(LOGS / "healthy.log", 5) * 4)
    with following(log) as process:
        wait_until_read(process, log)
        os.truncate(log, 0)
        wait_until_read(process, log)
        log.write_bytes(head(LOGS / "taken.log", 8))
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert f"--> {log}:8" in out.decode()


def test_follow_a_replaced_file(tmp_path: Path) -> None:
    """A rotated log is followed by its name: the new file counts."""
    log = tmp_path / "serve.log"
    log.write_bytes(head(LOGS / "healthy.log", 3))
    with following(log) as process:
        wait_until_read(process, log)
        log.rename(tmp_path / "serve.log.1")
        log.write_bytes(head(LOGS / "taken.log", 8))
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert b"gpu-memory-taken" in out


def test_follow_interrupted(tmp_path: Path) -> None:
    """Ctrl-C ends it with code 130."""
    log = tmp_path / "serve.log"
    log.write_bytes(head(LOGS / "healthy.log", 3))
    with following(log) as process:
        wait_until_read(process, log)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE_SECONDS)

    assert (130, b"") == (process.returncode, out)
    assert b"Traceback" not in error


@pytest.mark.parametrize("places", [[], ["kv_cache.log", "taken.log"], ["."]])
def test_follow_needs_one_log(places: list[str]) -> None:
    """A folder or several files cannot be followed; without a file a pipe is."""
    run = diagnose("--follow", *places)

    assert run.returncode == (3 if not places else 2)
