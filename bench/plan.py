"""What a plan costs: one in process, a frontier of 10,000 points, and ``fitserve plan DIR --gpu L4`` cold beside peers.

    python -m bench plan [--peers PYTHON | --no-peers]

The peers (vramscout, kvfit, hf-mem) answer for the same directory in the same rounds: a Llama 3.1 8B whose files have
true headers and no weights. A peer that reads only from a Hub gets its Hub's address replaced by a server of that
directory, and is marked so. Without ``--peers`` they are installed into an environment of their own that is removed
again. All run with their bytecode kept, as an installation has it; fitserve once more from sources alone.
Others may use the machine: the quickest of the rounds stands beside the median. Exits with 1 where a target is missed.
"""

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

import fitserve
from fitserve.facts.checkpoint import read_checkpoint
from fitserve.facts.devices import find_device
from fitserve.memory.history import NEWEST
from fitserve.memory.options import Device
from fitserve.plan.frontier import find_frontier
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.units import GIB

ROUNDS = 10
SHARDS = 4
LENGTHS = range(512, 131073, 512)
UTILIZATION = 0.92
PLAN_MS, FRONTIER_MS, COLD_MS = 1.0, 100.0, 300.0
REPOSITORY = "local/model"
PINS = ("vramscout==0.7.0", "kvfit==0.3.0", "hf-mem==0.5.6")
HIDDEN, INNER, LAYERS, KV_ROWS, WORDS = 4096, 14336, 32, 1024, 128256
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": WORDS,
    "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 131072, "tie_word_embeddings": False, "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192 },
}  # fmt: skip
LAYER = {
    "input_layernorm": [HIDDEN], "post_attention_layernorm": [HIDDEN], "mlp.down_proj": [HIDDEN, INNER],
    "mlp.gate_proj": [INNER, HIDDEN], "mlp.up_proj": [INNER, HIDDEN], "self_attn.k_proj": [KV_ROWS, HIDDEN],
    "self_attn.o_proj": [HIDDEN, HIDDEN], "self_attn.q_proj": [HIDDEN, HIDDEN], "self_attn.v_proj": [KV_ROWS, HIDDEN],
}  # fmt: skip
MAIN = "import sys; from {}.cli import main; sys.exit(main())"
KVFIT = "import sys, kvfit.hf; kvfit.hf.HF_BASE = sys.argv.pop(1); " + MAIN.format("kvfit")
HF_MEM = """import sys, httpx2
root, send = httpx2.URL(sys.argv.pop(1)), httpx2.AsyncClient.send
def send_there(self, request, **options):
    request.url = request.url.copy_with(scheme=root.scheme, host=root.host, port=root.port)
    return send(self, request, **options)
httpx2.AsyncClient.send = send_there
from hf_mem.cli import main
sys.exit(main())
"""

Answer = tuple[float, str]
"""GiB of weights, and what else a tool says."""


class Taken(NamedTuple):
    """Milliseconds of a call: the medians of CPU time and clock, and the quickest by the clock."""

    cpu: float
    clock: float
    best: float

    def __str__(self) -> str:
        return f"{self.cpu:8.2f} ms CPU, {self.clock:.2f} by the clock, best {self.best:.2f}"


class Tool(NamedTuple):
    """A command, how its JSON is read (None where it answers nothing), and its environment."""

    name: str
    argv: list[str]
    read: Callable[[Any], Answer] | None
    environment: dict[str, str]
    note: str = ""


def tensor_shapes() -> dict[str, list[int]]:
    """Every tensor of the model."""
    layers = {
        f"model.layers.{n}.{name}.weight": shape for n in range(LAYERS) for name, shape in LAYER.items()
    }
    ends = {"model.norm.weight": [HIDDEN], "lm_head.weight": [WORDS, HIDDEN]}
    return {"model.embed_tokens.weight": [WORDS, HIDDEN], **layers, **ends}


def write_model(folder: Path) -> None:
    """The directory: configuration, index, and sparse files with whole headers."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2), encoding="utf-8")
    shapes = list(tensor_shapes().items())
    part = math.ceil(len(shapes) / SHARDS)
    weight_map: dict[str, str] = {}
    for shard in range(SHARDS):
        name = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        place = 0
        for tensor, shape in shapes[shard * part : (shard + 1) * part]:
            size = 2 * math.prod(shape)
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [place, place + size]}
            weight_map[tensor] = name
            place += size
        text = json.dumps(header).encode()
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + place)
    total = sum(2 * math.prod(shape) for _, shape in shapes)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def serve(folder: Path) -> ThreadingHTTPServer:
    """The directory as a Hub shows a repository: its list of files, and each file by ranges."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, files = self.path.partition("?")[0], list(folder.iterdir())
            known = [(file.name, file.stat().st_size) for file in files]
            named = [{"type": "file", "path": name, "rfilename": name, "size": size} for name, size in known]
            if path.startswith(f"/api/models/{REPOSITORY}"):
                self.answer(200, json.dumps(named if "/tree/" in path else {"siblings": named}).encode())
            elif folder / Path(path).name in files:
                self.send_file(folder / Path(path).name)
            else:
                self.answer(404, b"")

        def send_file(self, path: Path) -> None:
            whole = f"bytes=0-{path.stat().st_size - 1}"
            first, last = map(int, self.headers.get("Range", whole)[len("bytes=") :].split("-"))
            with path.open("rb") as file:
                file.seek(first)
                body = file.read(last + 1 - first)
            self.answer(206 if "Range" in self.headers else 200, body)

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the table is the output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def taken_ms(work: Callable[[], object], times: int) -> "Taken":
    """CPU time and clock of a call: the median of so many, after one that is not counted, and the quickest."""
    work()
    cpu, clock = [], []
    for _ in range(times):
        begin, start = time.process_time(), time.perf_counter()
        work()
        cpu.append((time.process_time() - begin) * 1000)
        clock.append((time.perf_counter() - start) * 1000)
    return Taken(statistics.median(cpu), statistics.median(clock), min(clock))


def request_for(folder: Path, gpu: str, gpus: int | None) -> Request:
    """The question about the model on a device of the catalogue."""
    facts = find_device(gpu)
    assert facts is not None
    memory, capability = facts.total_bytes, facts.compute_capability
    device = Device(name=facts.name, total_bytes=memory, compute_capability=capability)
    given, checkpoint = {"gpu_memory_utilization": UTILIZATION}, read_checkpoint(str(folder))
    return Request(
        checkpoint=checkpoint, model="model", device=device, given=given, version=NEWEST, gpus=gpus
    )


def in_process(folder: Path) -> bool:
    """One plan that starts, one that has to look for settings, and the frontier; True where the targets are kept."""
    starts, refused = request_for(folder, "H100", 16), request_for(folder, "L4", None)
    plan = taken_ms(lambda: make_plan(replace(starts)), 200)  # A copy has counted nothing yet.
    search = taken_ms(lambda: make_plan(replace(refused)), 20)
    frontier = taken_ms(lambda: find_frontier(starts, LENGTHS), 20)
    points = sum(len(point.concurrency) for point in find_frontier(starts, LENGTHS))
    print(f"{'one plan in process (H100, starts)':<46}{plan}   target {PLAN_MS:g}")
    print(f"{'one plan with its search for settings (L4)':<46}{search}")
    print(f"{f'a frontier of {points:,} points':<46}{frontier}   target {FRONTIER_MS:g}")
    return plan.cpu <= PLAN_MS and frontier.cpu <= FRONTIER_MS and points >= 10_000


def ours(found: Any) -> Answer:
    """Fitserve's answer, with its interval."""
    longest, tokens = found["max_model_len_that_fits"], found["kv_cache"]["tokens"]
    words = ", ".join(
        f"{name} {size['expected']:,} ({size['low']:,} to {size['high']:,})"
        for name, size in (("longest context", longest), ("KV tokens", tokens))
    )
    return found["budget"][0]["weights_bytes"]["expected"] / GIB, words


def vramscouts(found: Any) -> Answer:
    """The longest context that the memory holds, without an interval."""
    return found["parts_gib"]["Model weights / rank"], f"longest context {found['max_context_vram']:,}"


def kvfits(found: Any) -> Answer:
    """How many sequences of one length: it looks for no longest context."""
    tokens, sequences = found["cache"]["context_tokens"], found["layouts"][0]["total_sequences"]
    return found["weights"]["gib"], f"{sequences:,} sequences of {tokens:,} tokens ({sequences * tokens:,})"


def hf_mems(found: Any) -> Answer:
    """What one sequence of the model's length needs: it knows no device."""
    words = f"needs {found['kv_cache'] / GIB:.2f} GiB for the model's own length; knows no device"
    return found["memory"] / GIB, words


def tools(folder: Path, peers: str | None, root: str) -> list[Tool]:
    """What is measured, bare Python and fitserve first."""
    utilization = ["--gpu-memory-utilization", str(UTILIZATION)]
    kept, bare = environments(folder.parent)
    plan = ["plan", str(folder), "--gpu", "L4", *utilization, "--json"]
    fitserve = [sys.executable, "-c", MAIN.format("fitserve"), *plan]
    found = [
        Tool("python -c pass", [sys.executable, "-c", "pass"], None, kept),
        Tool("fitserve", fitserve, ours, kept),
        Tool("  no bytecode", fitserve, ours, bare),
    ]
    if peers is None:
        return found
    total = f"{request_for(folder, 'L4', None).device.total_bytes / GIB:.2f}"
    scout = [str(folder), "--engine", "vllm", *utilization, "--vram-gib", total, "--json"]
    fit = ["--hardware", f"custom:{total}", "--utilization", str(UTILIZATION), "--context", "1024", "--json"]
    mem = ["--experimental", "--json-output"]
    note = " [Hub only: its Hub's address replaced]"
    return [
        *found,
        Tool("vramscout", [peers, "-c", MAIN.format("vramscout"), *scout], vramscouts, kept),
        Tool("kvfit", [peers, "-c", KVFIT, root, REPOSITORY, *fit], kvfits, kept, note),
        Tool("hf-mem", [peers, "-c", HF_MEM, root, "--model-id", REPOSITORY, *mem], hf_mems, kept, note),
    ]


def environments(parent: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Variables with which bytecode is kept, and those with which this package is a copy that has none."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    sources = parent / "sources"
    shutil.copytree(
        Path(fitserve.__file__).parent, sources / "fitserve", ignore=shutil.ignore_patterns("__pycache__")
    )
    kept = {**plain, "PYTHONPYCACHEPREFIX": str(parent / "bytecode")}
    return kept, {**plain, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}


class Run(NamedTuple):
    """One cold run: milliseconds by the clock and of CPU time, and what it printed."""

    clock_ms: float
    cpu_ms: float
    text: str


def children_ms() -> float:
    """CPU time of all child processes so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def run(tool: Tool) -> Run:
    """One cold run."""
    begin, before = time.perf_counter(), children_ms()
    done = subprocess.run(tool.argv, env=tool.environment, capture_output=True, text=True, check=False)
    taken = (time.perf_counter() - begin) * 1000
    if done.returncode and not done.stdout.startswith("{"):
        raise SystemExit(f"error: {tool.name} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return Run(taken, children_ms() - before, done.stdout)


def cold(measured: list[Tool]) -> bool:
    """The table of cold runs, in turns; True where the target is kept."""
    first = [run(tool).text for tool in measured]
    rounds = [[run(tool) for tool in measured] for _ in range(ROUNDS)]
    by_tool = list(zip(*rounds, strict=True))
    clock = [statistics.median(one.clock_ms for one in runs) for runs in by_tool]
    best = [min(one.clock_ms for one in runs) for runs in by_tool]
    cpu = [statistics.median(one.cpu_ms for one in runs) for runs in by_tool]
    print(
        f"\ncold, {ROUNDS} rounds in turns; L4, utilization {UTILIZATION}; target {COLD_MS:g} ms by the clock"
    )
    print(
        f"{'':<15}{'median ms':>10}{'best':>6}{'CPU ms':>8}{'CPU / fitserve':>16}{'weights GiB':>13}  answer"
    )
    for tool, text, *taken in zip(measured, first, clock, best, cpu, strict=True):
        figures = (
            f"{tool.name:<15}{taken[0]:>10.0f}{taken[1]:>6.0f}{taken[2]:>8.0f}{taken[2] / cpu[1]:>16.2f}"
        )
        if tool.read is None:
            print(figures)
            continue
        weights_gib, words = tool.read(json.loads(text))
        print(f"{figures}{weights_gib:>13.2f}  {words}{tool.note}")
    return bool(clock[1] <= COLD_MS)


def installed(folder: Path) -> str:
    """The Python of a new environment with the peers."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PINS], check=True)
    return python


def versions(peers: str | None) -> str:
    """The peers' releases, as installed."""
    names = [pin.partition("=")[0] for pin in PINS]
    code = (
        "import sys, importlib.metadata as m; print(*(f', {n} {m.version(n)}' for n in sys.argv[1:]), sep='')"
    )
    return subprocess.check_output([peers, "-c", code, *names], text=True).strip() if peers else ""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="the Python of an environment that has them")
    parser.add_argument("--no-peers", action="store_true", help="leave them out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "model")
        write_model(folder)
        peers = None if options.no_peers else options.peers or installed(Path(parent, "peers"))
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores{versions(peers)}")
        kept = in_process(folder)
        kept &= cold(tools(folder, peers, f"http://127.0.0.1:{serve(folder).server_port}"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
