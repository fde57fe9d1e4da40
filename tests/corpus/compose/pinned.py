"""A KV cache sized by hand; state blocks; page sizes."""

from . import boot, fail, v0, wrap
from .case import Case
from .context import start, too_small
from .machine import (
    BRISA_8B,
    COBALT_H,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_2B,
    KESTREL_7B,
    MIRADOR_13B,
    Budget,
    fit_tokens,
)
from .story import Story


def pinned() -> list[Case]:
    """kv-cache-pinned-too-small: bytes, CPU space, block override."""
    out = []
    pin = 3 * GIB
    story = Story("0.18.1", seed=41)
    estimate = fit_tokens(pin, BRISA_8B.token_bytes())
    start(
        story,
        BRISA_8B,
        {"max_model_len": 65536, "gpu_memory_utilization": 0.95, "kv_cache_memory_bytes": pin},
        length=65536,
    )
    fail.fail_in_core(
        story, fail.KV_CHECK, too_small(story, 65536, BRISA_8B.token_bytes() * 65536, pin, estimate)
    )
    out.append(
        Case(
            "kv-pinned-0181-bytes",
            "3 GiB by hand on a card with 80",
            "0.18.1",
            "kv-cache-pinned-too-small",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json", "tricky-pinned-bytes"],
            {"max_model_len": 65536, "kv_cache_memory_bytes": pin},
            [
                {"flag": "kv_cache_memory_bytes", "direction": "up"},
                {"flag": "max_model_len", "at_most": estimate},
            ],
        )
    )

    story = Story("0.13.0", seed=42)
    pin = 5 * GIB // 2
    estimate = fit_tokens(pin, COBALT_MOE.token_bytes(2))
    start(
        story,
        COBALT_MOE,
        {"max_model_len": 131072, "tensor_parallel_size": 2, "kv_cache_memory_bytes": pin},
        length=131072,
        world=2,
    )
    fail.fail_in_core(
        story, fail.KV_CHECK, too_small(story, 131072, COBALT_MOE.token_bytes(2) * 131072, pin, estimate)
    )
    out.append(
        Case(
            "kv-pinned-0130-ranks",
            "2.5 GiB a rank by hand, two ranks",
            "0.13.0",
            "kv-cache-pinned-too-small",
            wrap.chain(story.lines, wrap.compose("moe")),
            ["compose", "multi-rank", "tricky-pinned-bytes"],
            {"max_model_len": 131072, "kv_cache_memory_bytes": pin},
            [
                {"flag": "kv_cache_memory_bytes", "direction": "up"},
                {"flag": "max_model_len", "at_most": estimate},
            ],
        )
    )

    story = Story("0.5.4", seed=43, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_13B, {"num_gpu_blocks_override": 128, "gpu_memory_utilization": 0.95})
    v0.engine(story, MIRADOR_13B, length=4096, dtype="float16")
    v0.load(story, MIRADOR_13B, 24.26)
    story.say(
        "INFO",
        "engine/llm_engine.py",
        "Overriding num_gpu_blocks",
        "Overriding num_gpu_blocks=1312 with num_gpu_blocks_override=128",
        proc="none",
    )
    v0.blocks(story, 128, 327, 4096)
    v0.fail(
        story,
        v0.TOO_FEW_BLOCKS,
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache (2048). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
    )
    out.append(
        Case(
            "kv-pinned-054-override",
            "128 blocks by hand",
            "0.5.4",
            "kv-cache-pinned-too-small",
            wrap.chain(story.lines, wrap.quote()),
            ["markdown-quote", "v0"],
            {"max_model_len": 4096, "kv_tokens": 2048, "num_gpu_blocks_override": 128},
            [
                {"flag": "num_gpu_blocks_override", "direction": "up"},
                {"flag": "max_model_len", "at_most": 2048},
            ],
        )
    )
    return out


def states_and_pages() -> list[Case]:
    """Mamba state blocks, page sizes."""
    out = []
    for id_, release, seed, blocks, seqs, wrapper, tag in (
        ("kv-state-0270-plain", "0.27.1", 61, 311, 1024, None, "bare"),
        ("kv-state-0330-journal", "0.33.0", 62, 148, 256, wrap.journald("h100-a", "serve-next"), "journald"),
    ):
        story = Story(release, seed=seed)
        budget = Budget(DEVICES["H200"], 0.92, 37.2 * 2, 3.1, 0.9, 0.4)
        start(
            story,
            COBALT_H,
            {"max_model_len": 65536, "max_num_seqs": seqs},
            length=65536,
            batched=8192,
            weights=74.4,
        )
        boot.profiled(story, budget)
        boot.sized(story, 402_176, 65536, concurrency=blocks / 53)
        error = f"ValueError: max_num_seqs ({seqs}) exceeds available Mamba cache blocks ({blocks}). Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most {blocks} or increase gpu_memory_utilization."
        fail.fail_in_core(
            story,
            (
                *fail.WARM_UP,
                "v1/worker/gpu_model_runner.py:GPUModelRunner.initialize_kv_cache:self.initialize_attn_backend(",
            ),
            error,
        )
        out.append(
            Case(
                id_,
                f"{blocks} state blocks for {seqs} sequences",
                release,
                "state-cache-too-small",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                {"max_num_seqs": seqs, "mamba_blocks": blocks},
                [{"flag": "max_num_seqs", "at_most": blocks}],
            )
        )
    pages = "NotImplementedError: The page size of the layer is not divisible by the maximum page size. Cannot unify by adjusting block_size."
    for id_, release, seed, wrapper, tag in (
        ("kv-pages-0141-compose", "0.14.1", 63, wrap.compose("spec-1"), "compose"),
        ("kv-pages-0191-cri", "0.19.1", 64, wrap.cri(), "cri"),
    ):
        story = Story(release, seed=seed)
        start(
            story,
            KESTREL_7B,
            {
                "max_model_len": 16384,
                "speculative_config": {
                    "method": "draft_model",
                    "model": KESTREL_2B.name,
                    "num_speculative_tokens": 3,
                },
            },
            length=16384,
        )
        boot.profiled(story, Budget(DEVICES["A40"], 0.9, 17.7, 1.3, 0.2))
        fail.fail_in_core(
            story,
            (
                *fail.KV_CACHES,
                "v1/engine/core.py:EngineCore._initialize_kv_caches:get_kv_cache_configs(",
                "v1/core/kv_cache_utils.py:get_kv_cache_configs:get_kv_cache_groups(",
                "v1/core/kv_cache_utils.py:get_kv_cache_groups:unify_kv_cache_spec_page_size(",
                "v1/core/kv_cache_utils.py:unify_kv_cache_spec_page_size:raise NotImplementedError(",
            ),
            pages,
        )
        out.append(
            Case(
                id_,
                "pages of draft and target differ",
                release,
                "kv-pages-not-unifiable",
                wrap.chain(story.lines, wrapper),
                [tag],
            )
        )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*pinned(), *states_and_pages()]
