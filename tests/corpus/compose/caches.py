"""KV refusals whose numbers need care."""

from . import boot, fail, v0, wrap
from .blocks import NO_BLOCKS, no_blocks
from .case import Advice, Case, act
from .context import start, too_small
from .fail import KV_CHECK
from .machine import (
    BRISA_8B,
    COBALT_H,
    DEVICES,
    GIB,
    KESTREL_7B,
    MIRADOR_7B,
    SOLANO_24B,
    TARN_32B,
    Budget,
    fit_tokens,
)
from .story import Line, Story


def caches() -> list[Case]:
    """KV refusals whose numbers need care."""
    out = []
    story = Story("0.8.5", seed=741)
    budget = Budget(DEVICES["A10"], 0.9, 14.96, 1.22, 0.1)
    start(story, BRISA_8B, {"max_model_len": 65536}, length=65536)
    text = f"ValueError: To serve at least one request with the models's max seq len (65536), (8.00 GiB KV cache is needed, which is larger than the available KV cache memory ({budget.kv_bytes / GIB:.2f} GiB). Based on the available memory,  Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    fail.fail_in_core(story, KV_CHECK, text)
    fits = fit_tokens(budget.kv_bytes, BRISA_8B.token_bytes())
    out.append(
        Case(
            "kv-context-085-lost-estimate",
            "0.8.5 loses its own estimate by a slip; the arithmetic gives it",
            "0.8.5",
            "kv-cache-smaller-than-context",
            wrap.chain(story.lines, wrap.columns(120)),
            ["terminal-wrap", "tricky-no-estimate"],
            {"max_model_len": 65536, "needed_gib": 8.0, "available_gib": round(budget.kv_bytes / GIB, 2)},
            [{"flag": "max_model_len", "at_most": fits + 16}],
        )
    )

    story = Story("0.17.1", seed=742)
    tp, pp = 2, 2
    token = TARN_32B.token_bytes(tp, pp)
    budget = Budget(DEVICES["RTX4090"], 0.9, TARN_32B.weights_gib / 4, 1.6, 2.1)
    available = budget.kv_bytes
    start(
        story,
        TARN_32B,
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "max_model_len": 131072},
        length=131072,
        world=2,
        pp=2,
    )
    boot.profiled(story, budget)
    fits = fit_tokens(available, token)
    fail.fail_in_core(story, KV_CHECK, too_small(story, 131072, token * 131072, available, fits))
    out.append(
        Case(
            "kv-context-0171-stages",
            "two stages of two ranks; 0.17 counts a stage's own layers",
            "0.17.1",
            "kv-cache-smaller-than-context",
            wrap.chain(story.lines, wrap.syslog("pp", "vllm")),
            ["multi-rank", "pipeline", "syslog"],
            {
                "max_model_len": 131072,
                "needed_gib": round(token * 131072 / GIB, 2),
                "available_gib": round(available / GIB, 2),
                "pipeline_parallel_size": 2,
            },
            [{"flag": "max_model_len", "at_most": fits}],
        )
    )

    story = Story("0.22.1", seed=743)
    start(
        story,
        COBALT_H,
        {"tensor_parallel_size": 4, "max_model_len": 262144},
        length=262144,
        world=4,
        batched=8192,
        weights=37.2,
    )
    available = int(2.11 * GIB)
    story.lines.append(
        Line(
            f"{story.tag('rank0')}{story.prefix('INFO', 'gpu_worker.py:440')}Available KV cache memory: 2.11 GiB"
        )
    )
    fail.fail_in_core(story, KV_CHECK, too_small(story, 262144, 4.02 * GIB, available, 61440))
    out.append(
        Case(
            "kv-context-0220-hybrid",
            "a hybrid: 2.11 of 4.02 GiB would be 137,000 tokens by rule of three, 61,440 fit",
            "0.22.1",
            "kv-cache-smaller-than-context",
            wrap.chain(story.lines, wrap.compose("next")),
            ["compose", "multi-rank", "tricky-fixed-state"],
            {
                "max_model_len": 262144,
                "needed_gib": 4.02,
                "available_gib": 2.11,
                "estimated_max_model_len": 61440,
            },
            [{"flag": "max_model_len", "at_most": 61440}],
            [{"flag": "max_model_len", "at_least": 70000}],
        )
    )
    return out


def sizes() -> list[Case]:
    """A size set by hand, an innocent estimate, a worker's death as an echo."""
    out = []
    story = Story("0.24.0", seed=744)
    per_block = KESTREL_7B.token_bytes() * 16
    budget = Budget(DEVICES["L4"], 0.92, 14.25, 1.1, 0.3, 0.3)
    pin = 512 * per_block
    start(story, KESTREL_7B, {"num_gpu_blocks_override": 512, "max_model_len": 32768}, length=32768)
    boot.profiled(story, budget)
    story.say(
        "INFO",
        "v1/core/kv_cache_utils.py",
        "Overriding num_gpu_blocks=%d",
        f"Overriding num_gpu_blocks={budget.kv_bytes // per_block} with num_gpu_blocks_override=512",
    )
    fail.fail_in_core(story, KV_CHECK, too_small(story, 32768, KESTREL_7B.token_bytes() * 32768, pin, 8192))
    out.append(
        Case(
            "kv-pinned-0240-override",
            "512 blocks by hand; the memory would be there",
            "0.24.0",
            "kv-cache-pinned-too-small",
            wrap.chain(story.lines, wrap.cri()),
            ["cri", "tricky-override"],
            {"max_model_len": 32768, "num_gpu_blocks_override": 512},
            [
                {"flag": "num_gpu_blocks_override", "direction": "up"},
                {"action": "remove-flag"},
                {"flag": "max_model_len", "at_most": 8192},
            ],
        )
    )

    story = Story("0.16.0", seed=745)
    pin = 2 * GIB
    start(story, BRISA_8B, {"max_model_len": 32768}, length=32768)
    story.lines = [
        Line(
            line.text.replace("device_config=cuda", "device_config=cpu")
            .replace("backend=nccl", "backend=gloo")
            .replace("gpu_model_runner.py", "cpu_model_runner.py")
        )
        for line in story.lines
        if "FLASH_ATTN" not in line.text
    ]
    fail.fail_in_core(
        story,
        KV_CHECK,
        too_small(story, 32768, BRISA_8B.token_bytes() * 32768, pin, fit_tokens(pin, BRISA_8B.token_bytes())),
    )
    out.append(
        Case(
            "kv-pinned-0160-cpu",
            "2 GiB of VLLM_CPU_KVCACHE_SPACE",
            "0.16.0",
            "kv-cache-pinned-too-small",
            wrap.chain(
                story.lines,
                wrap.around(
                    "$ VLLM_CPU_KVCACHE_SPACE=2 vllm serve brisa-ai/Brisa-8B-Chat --max-model-len 32768"
                ),
            ),
            ["cpu", "shell"],
            {"max_model_len": 32768, "vllm_cpu_kvcache_space_gib": 2},
            [
                {"flag": "VLLM_CPU_KVCACHE_SPACE", "direction": "up"},
                {"flag": "max_model_len", "at_most": 16384},
            ],
        )
    )

    story = Story("0.27.1", seed=746)
    budget = Budget(DEVICES["L4"], 0.92, 20.6, 0.9, 0.2, 0.55)
    start(story, SOLANO_24B, {"quantization": "fp8", "max_model_len": 4096}, length=4096, weights=20.6)
    boot.profiled(story, budget)
    fail.fail_in_core(story, fail.KV_NONE, no_blocks(story))
    high: list[Advice] = [
        {"flag": "gpu_memory_utilization", "direction": "up"},
        *act("smaller-or-quantized-model"),
        {"flag": "tensor_parallel_size", "direction": "up"},
    ]
    out.append(
        Case(
            "kv-none-0271-small-estimate",
            "an estimate of 0.55 GiB is innocent: the weights alone exceed the share",
            "0.27.1",
            "no-kv-cache-blocks",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl", "tricky-innocent-estimate"],
            {"graph_estimate_gib": 0.55, "available_gib": round(budget.kv_bytes / GIB, 2)},
            high,
        )
    )

    story = Story("0.5.4", seed=747, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {"gpu_memory_utilization": 0.3, "tensor_parallel_size": 2})
    v0.engine(story, MIRADOR_7B, length=4096, world=2, dtype="float16")
    story.world = 2
    v0.load(story, MIRADOR_7B, 6.3, world=2)
    v0.blocks(story, 0, 1024, 4096)
    v0.fail(story, v0.NO_BLOCKS, NO_BLOCKS)
    story.raw(
        "ERROR 03-14 09:22:10 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 4401 died, exit code: -15\nINFO 03-14 09:22:10 multiproc_worker_utils.py:123] Killing local vLLM worker processes"
    )
    out.append(
        Case(
            "kv-none-054-workers",
            "two ranks; the worker's death is only the end",
            "0.5.4",
            "no-kv-cache-blocks",
            wrap.chain(story.lines, wrap.stamped("[2026-03-14 09:21:{s}] ")),
            ["logger-prefix", "multi-rank", "v0"],
            {"gpu_blocks": 0, "gpu_memory_utilization": 0.3},
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*caches(), *sizes()]
