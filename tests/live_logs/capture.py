"""Make the logs of this folder with a real CPU build of vLLM: ``python capture.py ENGINE_PYTHON [NAME...]``.

Each case is one launch, with what is done to it once it serves. What belongs to the machine (paths, process ids, addresses) is
replaced. The answers, ``NAME.toml``, are written by hand from reading the log.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fitserve.facts.tiny_model import build_tiny_model

HERE = Path(__file__).parent
MODULE = "vllm.entrypoints.openai.api_server"
TERM_SECONDS = 60
READY = "Application startup complete."
SMALL = ("--max-model-len", "2048", "--kv-cache-memory-bytes", "40M")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A case.

    Attributes:
        options: what follows ``--model MODEL --load-format dummy --enforce-eager --port PORT``.
        env: variables.
        model: changes of config.json; ``architectures`` and so on.
        without: files that are taken out of the model.
        path: the model to name instead.
        act: what is done when it serves; it gets the port and the process.
        at: a line at which all processes get SIGTERM, as a batch system sends it.
        taken: another program listens at the port.
        load_format: None leaves the option out.
    """

    options: tuple[str, ...] = SMALL
    env: dict[str, str] = {}
    model: dict[str, Any] = {}
    without: tuple[str, ...] = ()
    path: str | None = None
    act: Callable[[int, "subprocess.Popen[bytes]"], object] | None = None
    at: str | None = None
    taken: bool = False
    load_format: str | None = "dummy"


def ask(port: int, path: str, body: dict[str, Any]) -> int:
    """Post a request; its HTTP status, 0 where there was no answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=1800) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def ask_completion(tokens: int, output: int, model: str = "tiny") -> Callable[[int, Any], object]:
    """An action: one completion of so many token ids."""
    body = {"model": model, "prompt": [7] * tokens, "max_tokens": output, "ignore_eos": True}
    return lambda port, _: ask(port, "/v1/completions", body)


def ask_chat(port: int, _: object) -> None:
    """An action: a chat and a completion."""
    ask(port, "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]})


def overload(port: int, _: object) -> None:
    """An action: 24 requests at once that fill the cache."""
    bodies = [
        {"model": "tiny", "prompt": [number, *[7] * 99], "max_tokens": 1900, "ignore_eos": True}
        for number in range(24)
    ]
    threads = [threading.Thread(target=ask, args=(port, "/v1/completions", body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def kill_worker(port: int, process: "subprocess.Popen[bytes]") -> None:
    """An action: SIGKILL for the process that holds the model, as the kernel's OOM killer does."""
    import psutil

    for child in psutil.Process(process.pid).children(recursive=True):
        if "Worker" in child.name() or "Worker" in " ".join(child.cmdline()):
            child.kill()
            break
    ask_completion(10, 5)(port, process)
    time.sleep(3)


def terminate(_: int, process: "subprocess.Popen[bytes]") -> None:
    """An action: SIGTERM, as a scheduler sends it."""
    process.terminate()
    process.wait()


CASES = {
    "healthy": Launch(act=ask_chat),
    "healthy-then-sigterm": Launch(act=terminate),
    "sigterm-while-importing": Launch(at="Resolved architecture"),
    "sigterm-while-loading": Launch(at="Initializing a V1 LLM engine"),
    "pinned-bytes": Launch(options=("--max-model-len", "131072", "--kv-cache-memory-bytes", "100M")),
    "pinned-blocks": Launch(
        options=(
            "--max-model-len",
            "131072",
            "--kv-cache-memory-bytes",
            "40M",
            "--num-gpu-blocks-override",
            "20",
        )
    ),
    "pinned-cpu-space": Launch(
        options=("--max-model-len", "131072"),
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
        model={"num_hidden_layers": 32},
    ),
    "pinned-larger-than-memory": Launch(options=("--max-model-len", "2048", "--kv-cache-memory-bytes", "4T")),
    "utilization-too-small": Launch(
        options=("--max-model-len", "131072", "--gpu-memory-utilization", "0.08"),
        model={"num_hidden_layers": 64},
    ),
    "memory-taken": Launch(options=("--max-model-len", "2048", "--gpu-memory-utilization", "0.999")),
    "context-beyond-model": Launch(options=("--max-model-len", "200000")),
    "unknown-flag": Launch(options=("--max-model-length", "2048")),
    "refused-value": Launch(options=("--kv-cache-dtype", "fp9")),
    "model-path-missing": Launch(path="/models/absent"),
    "model-offline": Launch(path="example/absent"),
    "port-in-use": Launch(taken=True),
    "architecture-unknown": Launch(model={"architectures": ["AbsentForCausalLM"], "model_type": "absent"}),
    "tokenizer-missing": Launch(without=("tokenizer.json", "tokenizer_config.json")),
    "weights-missing": Launch(load_format=None),
    "heads-not-divisible": Launch(options=(*SMALL, "--tensor-parallel-size", "3")),
    "healthy-two-ranks": Launch(options=(*SMALL, "--tensor-parallel-size", "2")),
    "batched-tokens-below-context": Launch(
        options=(*SMALL, "--max-num-batched-tokens", "1024", "--no-enable-chunked-prefill")
    ),
    "quantization-unsupported": Launch(options=(*SMALL, "--quantization", "awq")),
    "name-unknown": Launch(act=ask_completion(5, 5, "other")),
    "prompt-too-long": Launch(act=ask_completion(5000, 5)),
    "output-too-long": Launch(act=ask_completion(100, 4000)),
    "preemptions": Launch(
        options=("--max-model-len", "2048", "--kv-cache-memory-bytes", "40M"),
        env={"VLLM_LOG_STATS_INTERVAL": "5"},
        act=overload,
    ),
    "worker-killed": Launch(act=kill_worker),
    "socket-path-too-long": Launch(env={"VLLM_RPC_BASE_PATH": "/tmp/" + "long-" * 16}),
}


def run_case(case: Launch, python: str, log: Path) -> None:
    """Launch, act, end."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        model = build_tiny_model(Path(folder) / "tiny")
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | case.model))
        for name in case.without:
            (model / name).unlink()
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        if case.taken:
            listener.listen()
        else:
            listener.close()
        command = [python, "-m", MODULE, "--model", case.path or str(model), "--served-model-name", "tiny"]
        command += ["--load-format", case.load_format] if case.load_format else []
        command += ["--enforce-eager", "--host", "127.0.0.1", "--port", str(port), *case.options]
        env = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            **case.env,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=env, start_new_session=True)
            until_settled(process, log, case)
            if process.poll() is None and case.act:
                case.act(port, process)
        text = log.read_text(errors="replace")
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    (HERE / log.name).write_text(scrubbed(text, str(model), python))


def until_settled(process: "subprocess.Popen[bytes]", log: Path, case: Launch) -> None:
    """Wait until the server is ready, dead, or at the line where it is to be stopped."""
    while process.poll() is None:
        text = log.read_text(errors="replace")
        if case.at and case.at in text:
            os.killpg(process.pid, signal.SIGTERM)
            # An API server that gets it while its engine starts may hang with a dead engine.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERM_SECONDS)
            return
        if READY in text:
            return
        time.sleep(0.2)


def scrubbed(text: str, model: str, python: str) -> str:
    """The text without what belongs to the machine that made it."""
    numbers: dict[str, str] = {}

    def stable(match: "re.Match[str]") -> str:
        return match[1] + numbers.setdefault(match[2], str(100 + len(numbers)))

    base = subprocess.run(
        [python, "-c", "import sys, os; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for real, shown in (
        (str(Path(python).parents[1]), "/opt/engine"),
        (base, "/usr"),
        (model, "/models/tiny"),
    ):
        text = text.replace(real, shown)
    text = re.sub(r"((?:pid[ =]|process \[))(\d+)", stable, text)
    text = re.sub(r"vllm_dist_[0-9a-f]+", "vllm_dist_0", text)
    text = re.sub(r"0x7f[0-9a-f]{10}", "0x7f0000000000", text)
    return re.sub(r"mq_connect_ip=[0-9.]+", "mq_connect_ip=10.0.0.2", text)


if __name__ == "__main__":
    wanted = sys.argv[2:] or list(CASES)
    for name in wanted:
        with tempfile.TemporaryDirectory() as scratch:
            began = time.monotonic()
            run_case(CASES[name], sys.argv[1], Path(scratch) / f"{name}.log")
            sys.stdout.write(f"{name}: {time.monotonic() - began:.0f} s\n")
