"""A simulated server, asked over HTTP: answers, refusals, limits, and its ends."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fitserve.diagnose.engine import diagnose_path

READY = "Application startup complete."
NAME = "simulated"


class Server:
    """A server that is up."""

    def __init__(self, place: Any, port: int, *words: str, **env: str) -> None:
        self.port = port
        self.process, self.log = place.start("--port", str(port), "--served-model-name", NAME, *words, **env)
        self.text = place.until(self.log, READY, self.process)
        assert READY in self.text, self.text[-2000:]

    def get(self, path: str) -> tuple[int, str]:
        """Status and text."""
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}"))

    def post(self, path: str, body: dict[str, Any], key: str = "") -> tuple[int, str]:
        """Status and text."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        url = f"http://127.0.0.1:{self.port}{path}"
        return self._ask(urllib.request.Request(url, json.dumps(body).encode(), headers))

    def complete(self, tokens: int, most: int, **more: Any) -> tuple[int, dict[str, Any]]:
        """A completion of that many token ids."""
        body = {"model": NAME, "prompt": [5] * tokens, "max_tokens": most, **more}
        status, text = self.post("/v1/completions", body)
        return status, json.loads(text)

    def metric(self, name: str) -> float:
        """One value of ``/metrics``."""
        lines = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(f"vllm:{name}{{")]
        return float(lines[0].rpartition(" ")[2])

    def _ask(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture
def serve(site: Callable[..., Any], free_port: int) -> Iterator[Callable[..., Server]]:
    """Starts a server on a machine of its own."""

    def start(*words: str, **machine: Any) -> Server:
        return Server(site(**machine), free_port, *words)

    return start


@pytest.mark.parametrize("release", ["0.8.5", "0.19.0", "0.32.0"])
def test_what_it_says_of_itself(release: str, serve: Callable[..., Server]) -> None:
    """Health, version, served names with the context, the cache's size in the log and in the metrics."""
    server = serve("--max-model-len", "4096", vllm_version=release)
    card = json.loads(server.get("/v1/models")[1])["data"][0]

    assert (200, "") == server.get("/health")
    assert {"version": release} == json.loads(server.get("/version")[1])
    assert (NAME, "vllm", 4096) == (card["id"], card["owned_by"], card["max_model_len"])
    assert 0.0 == server.metric("num_requests_running")


def test_answers_and_their_counts(serve: Callable[..., Server]) -> None:
    """Whole and streamed, text and chat: as many tokens as were asked for, counted as ``/tokenize`` counts."""
    server = serve("--max-model-len", "4096", vllm_version="0.19.0")
    counted = json.loads(server.post("/tokenize", {"model": NAME, "prompt": "a small winter garden"})[1])
    status, whole = server.complete(20, 7)
    chat = {"model": NAME, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    _, said = server.post("/v1/chat/completions", chat)
    _, streamed = server.post(
        "/v1/completions", {"model": NAME, "prompt": "one two", "max_tokens": 3, "stream": True}
    )
    events = [line for line in streamed.splitlines() if line.startswith("data: {")]

    assert 4 == counted["count"] == len(counted["tokens"])
    assert (200, 20, 7) == (status, whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"])
    assert 5 == json.loads(said)["usage"]["completion_tokens"]
    assert (3, True) == (len(events), streamed.rstrip().endswith("data: [DONE]"))
    assert 15.0 == server.metric("generation_tokens_total")


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("0.8.5", "However, you requested 4101 tokens (4001 in the messages, 100 in the completion)"),
        ("0.10.2", "'max_tokens' or 'max_completion_tokens' is too large: 100."),
        (
            "0.24.0",
            "However, you requested 100 output tokens and your prompt contains 4001 input tokens, for a total of 4101",
        ),
    ],
)
def test_a_request_at_the_edge(release: str, words: str, serve: Callable[..., Server]) -> None:
    """Exactly the context is answered; a token more is refused with the release's words."""
    server = serve("--max-model-len", "4096", vllm_version=release)
    exact, _ = server.complete(3996, 100)
    status, refused = server.complete(4001, 100)
    message = refused.get("error", refused)["message"]

    assert (200, 400) == (exact, status)
    assert words in message


@pytest.mark.parametrize(("release", "more"), [("0.19.0", ""), ("0.32.0", f" Valid aliases: {NAME}.")])
def test_an_unknown_name(release: str, more: str, serve: Callable[..., Server]) -> None:
    """404 with the name; from 0.32 on with those that there are."""
    status, text = serve(vllm_version=release).post("/v1/completions", {"model": "other", "prompt": "x"})

    assert (404, f"The model `other` does not exist.{more}") == (status, json.loads(text)["error"]["message"])


def test_a_key_is_asked_for(serve: Callable[..., Server]) -> None:
    """401 without it, an answer with it."""
    server = serve("--api-key", "secret", vllm_version="0.19.0")

    assert 401 == server.post("/v1/completions", {"model": NAME, "prompt": "x"})[0]
    assert 200 == server.post("/v1/completions", {"model": NAME, "prompt": "x"}, key="secret")[0]


def test_requests_beyond_the_cache_wait_and_are_preempted(serve: Callable[..., Server]) -> None:
    """Two requests whose prompts fit and whose outputs do not: both are answered, one of them twice computed."""
    server = serve("--max-model-len", "4096", "--num-gpu-blocks-override", "256", vllm_version="0.24.0")
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: server.complete(1900, 400), range(2)))

    assert [200, 200] == [status for status, _ in answers]
    assert [400, 400] == [answer["usage"]["completion_tokens"] for _, answer in answers]
    assert 1 <= server.metric("num_preemptions_total")
    assert 0.0 == server.metric("kv_cache_usage_perc")


def test_no_more_run_than_may(serve: Callable[..., Server]) -> None:
    """With one sequence at a time the second request waits, and is answered."""
    server = serve("--max-num-seqs", "1", "--max-model-len", "2048", vllm_version="0.19.0")
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(server.complete, 10, 300) for _ in range(2)]
        seen = set()
        while not all(job.done() for job in jobs):
            seen.add(server.metric("num_requests_running"))

    assert max(seen) <= 1
    assert [200, 200] == [job.result()[0] for job in jobs]


def test_what_is_never_scheduled_waits(serve: Callable[..., Server]) -> None:
    """A server with that fault accepts a request and leaves it waiting."""
    server = serve(vllm_version="0.19.0", faults=("never-schedules",))
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(lambda: server.complete(8, 8))
        while server.metric("num_requests_waiting") < 1:
            time.sleep(0.01)
        waiting = not job.done()
        server.process.kill()
        with contextlib.suppress(OSError):
            job.result()

    assert waiting


def test_a_batch_that_does_not_fit_ends_the_engine(serve: Callable[..., Server]) -> None:
    """At a share so high that nothing is left beside the cache, the first long prompt is the end: 500, and exit code 1."""
    words = ("--gpu-memory-utilization", "0.98", "--max-model-len", "32768", "--max-num-seqs", "256")
    server = serve(*words, "--max-num-batched-tokens", "8192", device="L40S", vllm_version="0.19.0", seed=3)
    status, _ = server.complete(20000, 4)
    code = server.process.wait()

    assert (500, 1, "serving-oom") == (status, code, diagnose_path(server.log).cause)


def test_a_dead_engine_is_noticed(serve: Callable[..., Server]) -> None:
    """The engine killed: requests fail, the server ends with code 1 and says why."""
    server = serve(vllm_version="0.19.0", faults=("worker-dies",))
    status, _ = server.complete(8, 500)

    assert (500, 1) == (status, server.process.wait())
    assert "died unexpectedly, shutting down client." in server.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(
    number: signal.Signals, serve: Callable[..., Server], site: Callable[..., Any]
) -> None:
    """Exit code 0, uvicorn's last lines, and nothing is held any more."""
    server = serve("--tensor-parallel-size", "2", count=2, vllm_version="0.19.0")
    children = descendants(server.process.pid)
    server.process.send_signal(number)

    assert 0 == server.process.wait()
    assert "INFO:     Application shutdown complete." in server.log.read_text()
    assert [] == alive_after(children, 5)


def test_workers_leave_when_their_server_is_killed(serve: Callable[..., Server]) -> None:
    """``kill -9`` of the API server: engine and workers notice, and go."""
    server = serve("--tensor-parallel-size", "2", count=2, vllm_version="0.32.0")
    children = descendants(server.process.pid)
    os.kill(server.process.pid, signal.SIGKILL)

    assert 3 == len(children)
    assert [] == alive_after(children, 5)


def test_a_signal_while_loading(site: Callable[..., Any], free_port: int) -> None:
    """A start that is stopped says so in vLLM's way."""
    place = site(vllm_version="0.19.0", speed=10.0)
    process, log = place.start("--port", str(free_port))
    place.until(log, "Loading safetensors", process)
    process.terminate()

    assert 1 == process.wait()
    assert "KeyboardInterrupt: terminated" in log.read_text()


def test_a_taken_port(site: Callable[..., Any]) -> None:
    """The address is bound before the engine: a taken one is the first error."""
    place = site(vllm_version="0.32.0")
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        process, log = place.start("--port", str(server.getsockname()[1]))

        assert 1 == process.wait()
    assert "port-in-use" == diagnose_path(log).cause


def test_a_file_of_arguments(site: Callable[..., Any], free_port: int, tmp_path: Path) -> None:
    """``--config FILE`` is read; what is typed counts more."""
    place = site(vllm_version="0.19.0")
    config = tmp_path / "serve.yaml"
    config.write_text("max-model-len: 2048\nenforce-eager: true\ngpu-memory-utilization: 0.5\n")
    process, log = place.start("--config", str(config), "--port", str(free_port), "--max-model-len", "4k")
    text = place.until(log, READY, process)

    assert "Using max model len 4000" in text
    assert "'enforce_eager': True" in text
    assert "Capturing CUDA graphs" not in text


def test_memory_that_others_let_go_of_while_it_profiles(site: Callable[..., Any], free_port: int) -> None:
    """A neighbour that ends between the first look and the profile run: the assertion, and its cause."""
    from fitserve.simulator.machine import hold

    place = site(model="Qwen/Qwen2.5-0.5B-Instruct", vllm_version="0.19.0", speed=20.0)
    neighbour = subprocess.Popen(["sleep", "60"])
    hold(place.folder / "machine", {0: 5 << 30}, name="python3", pid=neighbour.pid)
    process, log = place.start("--port", str(free_port), "--gpu-memory-utilization", "0.5")
    place.until(log, "Model loading took", process)
    neighbour.kill()
    neighbour.wait()

    assert 1 == process.wait()
    assert "gpu-memory-changed-while-profiling" == diagnose_path(log).cause


def descendants(pid: int) -> list[int]:
    """The processes below a process."""
    text = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(line.split()[0]): int(line.split()[1]) for line in text.splitlines()}
    found: list[int] = []
    for child in parents:
        above = child
        while above in parents and above != pid:
            above = parents[above]
        if above == pid and child != pid:
            found.append(child)
    return found


def alive_after(pids: list[int], seconds: float) -> list[int]:
    """Those that still live when all are gone, or when so much time has passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        left = [pid for pid in pids if is_alive(pid)]
        if not left:
            return []
        time.sleep(0.02)
    return left


def is_alive(pid: int) -> bool:
    """True where it runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
