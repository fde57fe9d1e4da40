"""no-kv-cache-blocks and graph-estimate-too-large."""

from . import boot, fail, v0, wrap
from .case import EAGER, SHORTER, UP, Advice, Case, act
from .context import start
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_7B,
    MIRADOR_13B,
    SOLANO_24B,
    Budget,
)
from .story import Line, Story

NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."


def no_blocks(story: Story) -> str:
    """The text of this release."""
    if story.at_least("0.24.0"):
        return "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    return NO_BLOCKS


def empties() -> list[Case]:
    """no-kv-cache-blocks."""
    out = []
    story = Story("0.2.7", seed=21, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_13B, {"gpu_memory_utilization": 0.35, "tensor_parallel_size": 1})
    v0.engine(story, MIRADOR_13B, length=4096, dtype="float16")
    story.wait(30)
    v0.blocks(story, 0, 327, 4096)
    v0.fail(story, v0.NO_BLOCKS, NO_BLOCKS)
    out.append(
        Case(
            "kv-none-027-share",
            "13B weights above 0.35 of 80 GB",
            "0.2.7",
            "no-kv-cache-blocks",
            story.lines,
            ["bare", "v0"],
            {"gpu_blocks": 0, "gpu_memory_utilization": 0.35},
        )
    )

    story = Story("0.7.3", seed=22, site="/opt/conda/lib/python3.11/site-packages")
    budget = Budget(DEVICES["L4"], 0.7, 14.96, 1.21, 0.06)
    v0.banner(story, BRISA_8B, {"gpu_memory_utilization": 0.7})
    v0.engine(story, BRISA_8B, length=8192)
    v0.load(story, BRISA_8B, 14.96)
    v0.profiled(story, budget)
    v0.blocks(story, 0, 2048, 8192)
    v0.fail_in_process(story, v0.NO_BLOCKS, NO_BLOCKS)
    out.append(
        Case(
            "kv-none-073-hosted",
            "0.7 of 22 GiB for a 15 GiB model, indented",
            "0.7.3",
            "no-kv-cache-blocks",
            wrap.chain(story.lines, wrap.indent(4)),
            ["indented", "v0"],
            {"gpu_blocks": 0, "gpu_memory_utilization": 0.7},
        )
    )

    story = Story("0.8.5", seed=23)
    start(story, KESTREL_7B, {"gpu_memory_utilization": 0.25, "max_model_len": 8192}, length=8192)
    fail.fail_in_core(story, fail.KV_NONE, NO_BLOCKS)
    out.append(
        Case(
            "kv-none-085-quarter",
            "a quarter of 48 GB is less than the weights",
            "0.8.5",
            "no-kv-cache-blocks",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl"],
            {"gpu_memory_utilization": 0.25},
        )
    )

    for release, seed, util, device, tag, wrapper in (
        ("0.14.1", 24, 0.6, "RTX4090", "github-actions", wrap.actions()),
        ("0.31.0", 25, 0.55, "A40", "syslog", wrap.syslog("dl-07", "vllm")),
    ):
        model = BRISA_8B if device == "RTX4090" else COBALT_MOE
        story = Story(release, seed=seed)
        weights = 14.96 if device == "RTX4090" else 28.5
        budget = Budget(DEVICES[device], util, weights, 1.25, 0.2)
        start(
            story,
            model,
            {"gpu_memory_utilization": util, "max_model_len": 4096},
            length=4096,
            weights=weights,
        )
        boot.profiled(story, budget)
        fail.fail_in_core(story, fail.KV_NONE, no_blocks(story))
        out.append(
            Case(
                f"kv-none-{release.replace('.', '')}-{tag}",
                f"{util} of {device} leaves less than nothing",
                release,
                "no-kv-cache-blocks",
                wrap.chain(story.lines, wrapper),
                [tag],
                {"available_gib": round(budget.kv_bytes / GIB, 2), "gpu_memory_utilization": util},
            )
        )
    return out


def already_high() -> list[Case]:
    """0.97 already: raising utilization cannot be the answer."""
    story = Story("0.11.2", seed=26)
    budget = Budget(DEVICES["A10"], 0.97, 20.9, 0.94, 0.1)
    start(
        story,
        SOLANO_24B,
        {"gpu_memory_utilization": 0.97, "quantization": "fp8", "max_model_len": 2048},
        length=2048,
        weights=20.9,
    )
    boot.profiled(story, budget)
    fail.fail_in_core(story, fail.KV_NONE, NO_BLOCKS)
    suggest: list[Advice] = [
        *act("smaller-or-quantized-model"),
        {"flag": "tensor_parallel_size", "direction": "up"},
        {"flag": "max_num_batched_tokens", "direction": "down"},
    ]
    return [
        Case(
            "kv-none-0112-at-the-top",
            "0.97 given and still nothing left",
            "0.11.2",
            "no-kv-cache-blocks",
            story.lines,
            ["bare", "tricky-already-high"],
            {"gpu_memory_utilization": 0.97, "available_gib": round(budget.kv_bytes / GIB, 2)},
            suggest,
            [{"flag": "gpu_memory_utilization", "at_least": 1.0}, EAGER],
        )
    ]


def foreign_charged() -> Case:
    """V1 to 0.9.0 subtracts what others hold: the share must be raised, not the neighbour's memory blamed on the model."""
    story = Story("0.8.5", seed=27)
    start(story, KESTREL_7B, {"gpu_memory_utilization": 0.45, "max_model_len": 16384}, length=16384)
    fail.fail_in_core(story, fail.KV_NONE, NO_BLOCKS)
    smi = "$ nvidia-smi --query-gpu=memory.used,memory.total --format=csv\nmemory.used [MiB], memory.total [MiB]\n36411 MiB, 81559 MiB   <- TTS service, must stay\n$ vllm serve kestrelml/Kestrel-7B-Instruct --gpu-memory-utilization 0.45 --max-model-len 16384"
    return Case(
        "kv-none-085-neighbour",
        "a neighbour's 36 GB count against 0.45 of 80 GB",
        "0.8.5",
        "no-kv-cache-blocks",
        wrap.chain(story.lines, wrap.around(smi)),
        ["shell", "tricky-foreign-charged"],
        {"gpu_memory_utilization": 0.45},
        [UP, *act("free-other-process")],
        [EAGER, *act("smaller-or-quantized-model")],
    )


def estimates() -> list[Case]:
    """graph-estimate-too-large: the estimate is what ate the cache."""
    out = []
    for id_, release, seed, device, util, estimate, wrapper, tag in (
        ("kv-graphs-0202-plain", "0.20.2", 31, "H100", 0.92, 58.4, None, "bare"),
        ("kv-graphs-0270-kube", "0.27.1", 32, "L40S", 0.9, 31.77, wrap.kubectl(), "kubectl"),
        ("kv-graphs-0320-ansi", "0.32.0", 33, "A100-80", 0.92, 71.2, wrap.ansi(), "ansi"),
    ):
        story = Story(release, seed=seed)
        budget = Budget(DEVICES[device], util, 14.96, 1.1, 0.4, estimate)
        start(
            story,
            BRISA_8B,
            {"max_model_len": 16384, **({"gpu_memory_utilization": util} if util != 0.92 else {})},
            length=16384,
            batched=8192,
        )
        boot.profiled(story, budget)
        for n, line in enumerate(story.lines):
            if "Estimated CUDA graph memory" in line.text:
                story.lines[n] = Line(line.text, "cause")
        fail.fail_in_core(story, fail.KV_NONE, no_blocks(story), mark="", again="")
        lines = wrap.chain(story.lines, *([wrapper] if wrapper else []))
        out.append(
            Case(
                id_,
                f"an estimate of {estimate} GiB for the graphs of an 8B model",
                release,
                "graph-estimate-too-large",
                lines,
                [tag, "tricky-graph-estimate"],
                {"graph_estimate_gib": estimate, "available_gib": round(budget.kv_bytes / GIB, 2)},
                harmful=[UP, SHORTER],
            )
        )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*empties(), *already_high(), foreign_charged(), *estimates()]
