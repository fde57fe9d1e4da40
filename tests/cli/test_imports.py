"""What a command imports: a fast start is guarded by names, not by a clock."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "aiohttp",
    "alembic",
    "asyncio",
    "filelock",
    "huggingface_hub",
    "multiprocessing",
    "prometheus_client",
    "psutil",
    "pynvml",
    "rich",
    "sqlalchemy",
    "sqlite3",
    "ssl",
    "yaml",
}
"""Packages that only the commands that start, watch, ask or keep something need."""

RUN = """
import json, sys
from fitserve.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


def modules_after(*arguments: str, stdin: str = "") -> tuple[int, set[str]]:
    """The exit code of a command, and every module that it has imported."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], input=stdin, capture_output=True, text=True, check=True
    )
    seen = json.loads(done.stderr.splitlines()[-1])
    return seen["code"], set(seen["modules"])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """The help and the version pay for no command and for no package of one."""
    code, modules = modules_after(*arguments)

    assert 0 == code
    assert set() == modules & (HEAVY | {"msgspec", "fitserve.facts", "fitserve.diagnose", "fitserve.store"})


@pytest.mark.parametrize("command", ["diagnose", "explain"])
def test_reading_imports_nothing_heavy(command: str) -> None:
    """A command that only reads pays for no database, no network, no process table, no terminal layout."""
    source = Path(__file__).parents[2] / f"src/fitserve/cli/{command}.py"
    if not source.exists():
        pytest.skip(f"{source.name} is not written yet")
    arguments = ["diagnose", "-"] if command == "diagnose" else ["explain"]
    code, modules = modules_after(
        *arguments, stdin="INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.19.0\n"
    )

    assert code in (0, 1, 3)
    assert f"fitserve.cli.{command}" in modules
    assert set() == modules & HEAVY


def test_a_plan_imports_what_it_needs(tmp_path: Path) -> None:
    """A start that is as wanted pays for no search, no probe of devices, no child process, no defect report."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 128,
        "max_position_embeddings": 256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    code, modules = modules_after("plan", str(tmp_path), "--gpu", "L4")
    unneeded = {
        "difflib",
        "subprocess",
        "tempfile",
        "traceback",
        "fitserve.facts.find_launch",
        "fitserve.facts.machine",
        "fitserve.plan.ask",
        "fitserve.plan.frontier",
        "fitserve.plan.search",
        "fitserve.memory.kv.drafts",
        "fitserve.memory.weights.compressed",
        "fitserve.memory.weights.drafts",
        "fitserve.memory.weights.gguf",
        "fitserve.memory.weights.lora",
        "fitserve.memory.weights.lora_targets",
        "fitserve.memory.weights.modelopt",
    }
    families = {name for name in modules if name.startswith("fitserve.memory.weights.families.")}
    layouts = {name for name in modules if name.startswith("fitserve.memory.kv.layouts.")}

    assert 0 == code
    assert "fitserve.plan.make" in modules
    assert set() == modules & (HEAVY | unneeded)
    assert {"dense", "registry"} == {name.rpartition(".")[2] for name in families}
    assert {"dense", "registry"} == {name.rpartition(".")[2] for name in layouts}
