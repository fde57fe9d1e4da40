"""A program that starts like ``vllm serve`` and answers like it, or fails like it. Standard library alone.

``FAKE_VLLM`` names what it does, words apart. ``FAKE_KV_TOKENS`` is the room of its KV cache. It has a
child in a session of its own, and that one a child whose parent has gone: what vLLM's engine core and workers become
when they are left alone.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DEEDS = set(os.environ.get("FAKE_VLLM", "").split())
KV_TOKENS = int(os.environ.get("FAKE_KV_TOKENS", "4096"))
SLEEP = "import time; time.sleep(600)"


def say(
    message: str, *, level: str = "INFO", process: str = "APIServer", source: str = "api_utils.py:347"
) -> None:
    """Write a line in the shape of vLLM 0.32.0."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    sys.stdout.write(f"({process} pid={os.getpid()}) {level} {stamp} [{source}] {message}\n")
    sys.stdout.flush()


def size(text: str) -> int:
    """A number with vLLM's suffixes."""
    factors = {"k": 1000, "K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * factors[text[-1]] if text[-1] in factors else int(text)


def read_arguments() -> argparse.Namespace:
    """The few options that matter here; the others are passed over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("serve")
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-model-len", type=size, default=2048)
    parser.add_argument("--kv-cache-memory-bytes", type=size)
    parser.add_argument("--served-model-name", default="")
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--max-cudagraph-capture-size", type=int, default=512)
    parser.add_argument("--api-key", default="")
    known, _ = parser.parse_known_args([*sys.argv[1:3], *configured(), *sys.argv[3:]])
    return known


def configured() -> list[str]:
    """The options of a config file of plain lines, which stand before the command's own."""
    if "--config" not in sys.argv:
        return []
    text = Path(sys.argv[sys.argv.index("--config") + 1]).read_text(encoding="utf-8")
    pairs = [line.partition("#")[0].split(":", 1) for line in text.splitlines() if ":" in line]
    return [word.strip() for name, value in pairs for word in (f"--{name}", value)]


def begin(arguments: argparse.Namespace) -> None:
    """The first lines, and the processes of an engine."""
    say("  version 0.32.0")
    given = {name: value for name, value in vars(arguments).items() if value and name != "serve"}
    say(f"non-default args: {given}", source="api_utils.py:286")
    engine = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"
    )
    subprocess.run([sys.executable, "-c", engine], check=True)
    subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    core = {"process": "EngineCore", "source": "core.py:133"}
    say(f"Initializing a V1 LLM engine (v0.32.0) with config: model='{arguments.model}'", **core)
    say(f"Starting to load model {arguments.model}...", process="Worker", source="cpu_model_runner.py:68")


def refuse(arguments: argparse.Namespace) -> None:
    """The room is too small for the context: the lines of the real refusal."""
    needed, room = arguments.max_model_len / 65536, KV_TOKENS / 65536
    say("EngineCore failed to start.", level="ERROR", process="EngineCore", source="core.py:1510")
    say(
        f"ValueError: To serve at least one request with the model's max seq len ({arguments.max_model_len}), "
        f"({needed:.2f} GiB KV cache is needed, which is larger than the available KV cache memory ({room:.2f} GiB). "
        f"Based on the available memory, the estimated maximum model length is {KV_TOKENS}. Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        level="ERROR",
        process="EngineCore",
        source="core.py:1510",
    )
    sys.stderr.write(
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    )
    if "lingers" in DEEDS:
        time.sleep(600)
    sys.exit(1)


def capture(arguments: argparse.Namespace) -> None:
    """Graphs that fail above 100 tokens, in words that nobody knows."""
    core = {"process": "EngineCore", "source": "gpu_model_runner.py:5012"}
    say("Model loading took 1.00 GiB memory and 1.0 seconds", **core)
    say("Available KV cache memory: 4.00 GiB", process="EngineCore", source="gpu_worker.py:298")
    if arguments.enforce_eager:
        return
    bar = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/67 [00:00<?, ?it/s]"
    sys.stdout.write(f"(EngineCore pid={os.getpid()}) {bar}\n")
    if arguments.max_cudagraph_capture_size > 100:
        for line in (
            "EngineCore failed to start.",
            "Traceback (most recent call last):",
            '  File "/usr/lib/python3/dist-packages/vllm/v1/worker/gpu_model_runner.py", line 5012, in capture_model',
            "    self._capture_cudagraphs(sizes)",
            "RuntimeError: the replay went astray",
        ):
            say(line, level="ERROR", process="EngineCore", source="core.py:1510")
        sys.exit(1)


class Answers(BaseHTTPRequestHandler):
    """The OpenAI API, as far as a model of words has one."""

    protocol_version = "HTTP/1.1"
    arguments: argparse.Namespace

    def log_message(self, *_: object) -> None:
        """The access log of uvicorn is not needed here."""

    def do_GET(self) -> None:
        """Health, version, models."""
        name = self.arguments.served_model_name or self.arguments.model
        bodies: dict[str, Any] = {
            "/health": {},
            "/version": {"version": "0.32.0"},
            "/v1/models": {
                "data": [{"id": name, "owned_by": "vllm", "max_model_len": self.arguments.max_model_len}]
            },
        }
        if self.path not in bodies:
            self.answer(404, {"error": {"message": "Not Found", "code": 404}})
        elif self.path.startswith("/v1") and not self.has_key():
            self.answer(401, {"error": "Unauthorized"})
        else:
            self.answer(200, bodies[self.path])

    def do_POST(self) -> None:
        """Completions of a prompt given as words or as token ids."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.arguments.served_model_name or self.arguments.model
        if self.path != "/v1/completions":
            self.answer(404, {"error": {"message": "Not Found", "code": 404}})
        elif body["model"] != name:
            words = f"The model `{body['model']}` does not exist."
            self.answer(404, {"error": {"message": words, "type": "NotFoundError", "code": 404}})
        elif "ends-early" in DEEDS and "ignore_eos" in body:
            self.answer(400, {"error": {"message": "ignore_eos is not known", "code": 400}})
        elif "refuses-requests" in DEEDS:
            self.answer(500, {"error": {"message": "no", "type": "InternalServerError", "code": 500}})
        else:
            prompt = body["prompt"]
            self.complete(len(prompt.split() if isinstance(prompt, str) else prompt), body)

    def complete(self, tokens_in: int, body: dict[str, Any]) -> None:
        """So many words, or a refusal of what is too long."""
        tokens_out, length = body["max_tokens"], self.arguments.max_model_len
        if tokens_in + tokens_out > length:
            words = (
                f"This model's maximum context length is {length} tokens. However, you requested {tokens_out} output "
                f"tokens and your prompt contains {tokens_in} input tokens."
            )
            self.answer(400, {"error": {"message": words, "type": "BadRequestError", "code": 400}})
            return
        if "slow" in DEEDS:
            time.sleep(600)
        if "ends-early" in DEEDS:
            tokens_out = min(tokens_out, 2)
        usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        last = {"choices": [{"index": 0, "text": " word", "finish_reason": "length"}]}
        if not body.get("stream"):
            self.answer(200, last | {"usage": usage})
            return
        word = {"choices": [{"index": 0, "text": " word", "finish_reason": None}]}
        events = [*[word] * (tokens_out - 1), last, {"choices": [], "usage": usage}]
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.answer(200, lines.encode(), "text/event-stream")

    def has_key(self) -> bool:
        """True where the request carries the key, or none is asked for."""
        return (
            self.headers.get("Authorization", "") == f"Bearer {self.arguments.api_key}"
            or not self.arguments.api_key
        )

    def answer(self, status: int, body: Any, kind: str = "application/json") -> None:
        """Send the whole answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def before_the_first_line() -> None:
    """What goes wrong, or is arranged, before anything is said."""
    if "dies-at-once" in DEEDS:
        sys.exit(3)
    if "mute" in DEEDS:
        time.sleep(600)
    if "stubborn" in DEEDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def before_the_cache() -> None:
    """What goes wrong while the model is loaded."""
    if "silent" in DEEDS:
        time.sleep(600)
    if "naps" in DEEDS:
        time.sleep(9)
    if "floods" in DEEDS:
        for number in range(100_000):
            sys.stdout.write(f"line {number} " + "x" * 80 + "\n")
    if "floods-on" in DEEDS:
        block = ("x" * 127 + "\n").encode() * 8192
        for _ in range(300):
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
    if "worker-killed" in DEEDS:
        worker = subprocess.Popen([sys.executable, "-c", SLEEP])
        worker.kill()
        worker.wait()
        words = "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor."
        say(words, level="ERROR", process="EngineCore", source="multiproc_executor.py:273")
        sys.exit(1)
    if "killed" in DEEDS:
        os.kill(os.getpid(), signal.SIGKILL)


def serve(arguments: argparse.Namespace) -> None:
    """Answer until the end, or come to an early one."""
    Answers.arguments = arguments
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Answers)
    say(f"Starting vLLM server on http://0.0.0.0:{arguments.port}", source="entry.py:140")
    sys.stdout.write(f"(APIServer pid={os.getpid()}) INFO:     Application startup complete.\n")
    sys.stdout.flush()
    if "dies-serving" in DEEDS:
        sys.stderr.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
        sys.exit(1)
    if "ends" in DEEDS:
        sys.exit(0)
    server.serve_forever()


def main() -> None:
    """Start as a server does: arguments, engine, weights, cache, API."""
    arguments = read_arguments()
    before_the_first_line()
    begin(arguments)
    before_the_cache()
    pinned = arguments.kv_cache_memory_bytes
    if arguments.max_model_len > (KV_TOKENS if pinned is None else pinned // 16384):
        refuse(arguments)
    if "dies-capturing" in DEEDS:
        capture(arguments)
    serve(arguments)


if __name__ == "__main__":
    main()
