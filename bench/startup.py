"""How long a command takes from a cold start: the median of 10, beside bare Python in the same run.

Each round runs every command once, so that a busy moment of the machine meets all of them. The processes are new
each time; the files are in the page cache after the first, uncounted round. Exits with 1 where a target is missed
or a command fails.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROUNDS = 10
TOOL = [sys.executable, "-c", "from fitserve.cli import main; main()"]

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
"""What is planned: the sizes of Llama 3.1 8B."""


class Command(NamedTuple):
    """What is measured, and the target in milliseconds (None where there is none)."""

    name: str
    argv: list[str]
    target_ms: float | None


def failing_log(lines: int) -> str:
    """A start-up that ends with a KV cache that is too small, of so many lines."""
    stamp = "(EngineCore_DP0 pid=4321) {} 12-01 15:22:33 [{}] {}"
    body = [
        stamp.format("INFO", "weight_utils.py:392", f"Time spent downloading weights: {n * 0.1:.1f} seconds")
        for n in range(lines - 4)
    ]
    head = ["(APIServer pid=4320) INFO 12-01 15:22:20 [api_server.py:1839] vLLM API server version 0.11.0"]
    end = [
        stamp.format("INFO", "gpu_worker.py:298", "Available KV cache memory: 9.32 GiB"),
        stamp.format("ERROR", "core.py:708", "EngineCore failed to start."),
        stamp.format(
            "ERROR",
            "core.py:708",
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (9.32 GiB). Based on the available memory, the "
            "estimated maximum model length is 76304. Try increasing `gpu_memory_utilization` or decreasing "
            "`max_model_len` when initializing the engine.",
        ),
    ]
    return "\n".join([*head, *body, *end]) + "\n"


def elapsed_ms(command: Command, environ: dict[str, str]) -> float | None:
    """One run, in milliseconds; None where it ended with something else than yes or no."""
    start = time.perf_counter()
    done = subprocess.run(command.argv, env=environ, capture_output=True, check=False)
    taken = (time.perf_counter() - start) * 1000
    return taken if done.returncode in (0, 1) else None


def measure(commands: list[Command], environ: dict[str, str]) -> list[float | None]:
    """The median of each command, in milliseconds; None where one of its runs ended badly."""
    rounds = [[elapsed_ms(command, environ) for command in commands] for _ in range(ROUNDS + 1)][1:]
    medians: list[float | None] = []
    for times in zip(*rounds, strict=True):
        good = [taken for taken in times if taken is not None]
        medians.append(statistics.median(good) if len(good) == ROUNDS else None)
    return medians


def main() -> int:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "serve.log"
        log.write_text(failing_log(200), encoding="utf-8")
        (Path(folder) / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        commands = [
            Command("python -c pass", [sys.executable, "-c", "pass"], None),
            Command("fitserve --help", [*TOOL, "--help"], 150),
            Command("fitserve diagnose (200 lines)", [*TOOL, "diagnose", str(log)], 250),
            Command("fitserve plan", [*TOOL, "plan", folder, "--gpu", "H100", "--json"], 300),
            Command("fitserve runs", [*TOOL, "runs"], None),
        ]
        medians = measure(commands, {**os.environ, "FITSERVE_DATA_DIR": folder})
    print(f"median of {ROUNDS} cold runs, Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    print(f"{'command':<32}{'ms':>8}{'ratio':>8}{'target ms':>11}")
    bare = medians[0] or math.nan
    reached = True
    for command, taken in zip(commands, medians, strict=True):
        target = "-" if command.target_ms is None else f"{command.target_ms:.0f}"
        figures = "  failed" if taken is None else f"{taken:>8.0f}{taken / bare:>8.1f}"
        print(f"{command.name:<32}{figures:<16}{target:>11}")
        reached &= taken is not None and taken <= (command.target_ms or math.inf)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
