"""The text of a plan for ten different answers: its lines and words. Figures are tested where they are computed."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.devices import find_device
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import Device
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request
from fitserve.plan.values import Goal
from fitserve.report.plan_text import render_plan
from tests.plan.test_make import LLAMA_8B

TEXTS = Path(__file__).with_name("texts")
CONFIGS = json.loads((Path(__file__).parents[1] / "memory" / "kv" / "vllm_configs.json").read_text("utf-8"))
UNKNOWN = {
    **LLAMA_8B,
    "architectures": ["TotallyNewForCausalLM"],
    "auto_map": {"AutoModelForCausalLM": "modeling_new.TotallyNewForCausalLM"},
}
HYBRID = {
    **CONFIGS["qwen3next"],
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
LATENT = {
    **CONFIGS["deepseek-ai--DeepSeek-V3"],
    "num_hidden_layers": 4,
    "vocab_size": 129280,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
}
BEYOND = Goal(context=131072, concurrency=64)

CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "fits": (LLAMA_8B, "H100", {}),
    "cache_too_small": (LLAMA_8B, "L4", {}),
    "weights_do_not_fit": (LLAMA_8B, "RTX 3060", {"gpus": 1, "version": "0.4.2"}),
    "hybrid": (HYBRID, "H200", {"given": {"tensor_parallel_size": 4}}),
    "latent": (LATENT, "H200", {"given": {"max_model_len": 4096}}),
    "two_ranks": (LLAMA_8B, "L4", {"given": {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.85}}),
    "heads": (LLAMA_8B, "L4", {"given": {"tensor_parallel_size": 3}}),
    "pasted": (
        LLAMA_8B,
        "H100",
        {
            "argv": ("docker", "run", "vllm/vllm-openai:v0.19.0", "--model", "model"),
            "given": {"max_model_len": 8192},
            "version": "0.19.0",
        },
    ),
    "goal_met": (LLAMA_8B, "H100", {"goal": Goal(context=8192, concurrency=8)}),
    "goal_out_of_reach": (LLAMA_8B, "L4", {"goal": BEYOND, "gpus": 1}),
    "unified": (LLAMA_8B, "GB10", {}),
    "unknown_architecture": (UNKNOWN, "H100", {}),
    "unknown_option": (LLAMA_8B, "H100", {"given": {"max_modellen": 4096, "swap_space": 4}}),
    "frontier": (LLAMA_8B, "L4", {"given": {"max_model_len": 4096}, "with_frontier": True, "gpus": 2}),
}


def text_of(config: dict[str, Any], gpu: str, asked: dict[str, Any]) -> str:
    """The text for a configuration on a device of the catalogue."""
    facts = find_device(gpu)
    assert facts is not None
    device = Device(
        name=facts.name,
        total_bytes=facts.total_bytes,
        compute_capability=facts.compute_capability,
        unified=facts.unified,
    )
    checkpoint = Checkpoint(config=parse_config(json.dumps(config).encode(), source="model/config.json"))
    words: dict[str, Any] = {"given": {}, "version": "0.32.0", **asked}
    return render_plan(make_plan(Request(checkpoint=checkpoint, model="model", device=device, **words)))


def shape_of(text: str) -> str:
    """The text with every figure as N and every gap as one blank, so that it holds while figures get better."""
    figures = re.sub(r"(?<![A-Za-z\d])-?(?:\d[\d,.]*\d|\d)", "N", text)
    lines = (re.sub(r"(?<=\S) {2,}", " ", line).rstrip() for line in figures.splitlines())
    return "\n".join(re.sub(r"(?: N| -){3,}", " cells", line) for line in lines) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_the_text_has_its_lines_and_words(name: str) -> None:
    """Each kind of answer reads as it stands in ``texts/``; with ``FITSERVE_WRITE_TEXTS`` set it is written there."""
    found = shape_of(text_of(*CASES[name]))
    path = TEXTS / f"{name}.txt"
    if os.environ.get("FITSERVE_WRITE_TEXTS"):
        path.write_text(found, "utf-8")

    assert path.read_text("utf-8") == found
