"""KV cache: none, too small, pinned, eaten by the graph estimate, states, pages."""

from . import boot, fail, v0, wrap
from .case import EAGER, SHORTER, UP, Advice, Case, act
from .machine import (
    BRISA_8B,
    COBALT_H,
    COBALT_MOE,
    GIB,
    KESTREL_2B,
    KESTREL_7B,
    MIRADOR_13B,
    SOLANO_24B,
    TARN_32B,
    TARN_70B,
    DEVICES,
    Budget,
    Model,
    fit_tokens,
    gib,
)
from .story import Line, Story

NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."


def no_blocks(story: Story) -> str:
    """The text of this release."""
    if story.at_least("0.24.0"):
        return "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine. See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    return NO_BLOCKS


def too_small(story: Story, length: int, needed: float, available: float, estimate: int | None) -> str:
    """The refusal, as each release words it. Sizes in bytes."""
    if story.at_least("0.14.0"):
        need, have = gib(needed), gib(available)
    else:
        need, have = f"{needed / GIB:.2f}", f"{available / GIB:.2f}"
    whose = "model's" if story.at_least("0.24.0") else "models's"
    hint = (
        f"Based on the available memory, the estimated maximum model length is {estimate}. "
        if estimate and story.at_least("0.9.0")
        else ""
    )
    also = " (which also controls CPU memory on the CPU backend)" if story.at_least("0.24.0") else ""
    text = f"ValueError: To serve at least one request with the {whose} max seq len ({length}), ({need} GiB KV cache is needed, which is larger than the available KV cache memory ({have} GiB). {hint}"
    if not story.at_least("0.9.0"):
        text += "  "
    text += f"Try increasing `gpu_memory_utilization`{also} or decreasing `max_model_len` when initializing the engine."
    return text + (
        " See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
        if story.at_least("0.14.0")
        else ""
    )


def start(
    story: Story,
    model: Model,
    args: dict[str, object],
    *,
    length: int,
    batched: int = 2048,
    world: int = 1,
    pp: int = 1,
    weights: float | None = None,
) -> None:
    """From the banner to the compiled model."""
    boot.banner(story, model, args)
    boot.configured(story, model, length=length, batched=batched)
    boot.engine(story, model, length=length, world=world, pp=pp)
    boot.distribute(story, pp=pp)
    boot.begin_load(story, model)
    boot.shards(story, model)
    boot.loaded(story, weights if weights is not None else model.weights_gib / (world * pp))
    boot.compiled(story, batched=batched)


def context_case(
    id_: str, title: str, release: str, model: Model, *, seed: int, length: int, device: str, util: float, activation: float, non_torch: float, graphs: float = 0.0, world: int = 1,
    tags: list[str], wrappers: tuple[wrap.Wrapper, ...] = (), batched: int = 2048, args: dict[str, object] | None = None, raw: bool = True, ending: str = "\n", harmful: list[Advice] | None = None, site: str | None = None, packed: bool = False,
) -> Case:  # fmt: skip
    """One sequence of max_model_len does not fit; everything follows from the budget."""
    story = Story(release, seed=seed, **({"site": site} if site else {}))
    budget = Budget(DEVICES[device], util, model.weights_gib / world, activation, non_torch, graphs)
    token = model.token_bytes(world)
    estimate = fit_tokens(budget.kv_bytes, token, null_block=story.at_least("0.29.0"))
    start(
        story,
        model,
        {
            "max_model_len": length,
            "gpu_memory_utilization": util,
            **({"tensor_parallel_size": world} if world > 1 else {}),
            **(args or {}),
        },
        length=length,
        batched=batched,
        world=world,
    )
    boot.profiled(story, budget)
    fail.fail_in_core(
        story, fail.KV_CHECK, too_small(story, length, token * length, budget.kv_bytes, estimate), raw=raw
    )
    numbers = {
        "max_model_len": length,
        "needed_gib": round(token * length / GIB, 2),
        "available_gib": round(budget.kv_bytes / GIB, 2),
        "gpu_memory_utilization": util,
    }
    suggest: list[Advice] = [{"flag": "max_model_len", "at_most": estimate}]
    return Case(
        id_,
        title,
        release,
        "kv-cache-smaller-than-context",
        wrap.chain(story.lines, *wrappers),
        tags,
        numbers,
        suggest,
        harmful,
        ending=ending,
        packed=packed,
    )


def contexts() -> list[Case]:
    """kv-cache-smaller-than-context over releases and carriers."""
    conda = "/home/tessa/envs/serve/lib/python3.12/site-packages"
    return [
        context_case("kv-context-0102-compose", "24B with its full context on 80 GB", "0.10.2", SOLANO_24B, seed=11, length=131072, device="A100-80", util=0.9, activation=1.93, non_torch=0.11, tags=["compose"], wrappers=(wrap.compose("mistral-serve-1"),)),
        context_case("kv-context-0092-narrow", "a terminal of 100 columns", "0.9.2", KESTREL_7B, seed=12, length=32768, device="RTX4080", util=0.98, activation=0.42, non_torch=0.09, tags=["terminal-wrap"], wrappers=(wrap.columns(100),), site=conda),
        context_case("kv-context-0191-rank2", "two ranks, journald", "0.19.1", TARN_32B, seed=13, length=32768, device="A6000", util=0.78, activation=1.4, non_torch=2.02, graphs=0.0, world=2, tags=["journald", "multi-rank"], wrappers=(wrap.journald("gpu-rack3", "vllm"),)),
        context_case("kv-context-0330-json", "docker json-file, tag in the format", "0.33.0", BRISA_8B, seed=14, length=131072, device="L4", util=0.92, activation=0.88, non_torch=0.31, graphs=0.61, tags=["docker-json"], wrappers=(wrap.docker_json(),)),
        context_case("kv-context-0240-german", "German words around it", "0.24.0", COBALT_MOE, seed=15, length=40960, device="A100-80", util=0.75, activation=0.99, non_torch=0.42, graphs=0.5, tags=["german"], site=conda, wrappers=(wrap.around("Hallo zusammen,\nseit dem Update startet der Dienst nicht mehr. Fehlermeldung unten – hat jemand eine Idee?\nGrafikkarte: A100 80GB, Treiber 570\n", "\nIch habe schon neu gestartet, Speicher ist frei. Danke!"),)),
        context_case("kv-context-0290-crlf", "copied from a Windows console", "0.29.0", KESTREL_7B, seed=16, length=32768, device="RTX4080", util=0.99, activation=0.47, non_torch=0.24, graphs=0.15, tags=["crlf"], ending="\r\n"),
        context_case("kv-context-0122-cri", "containerd's log file", "0.12.0", BRISA_8B, seed=17, length=131072, device="RTX4090", util=0.9, activation=1.26, non_torch=0.13, tags=["cri"], wrappers=(wrap.cri(),)),
        context_case("kv-context-0171-noise", "failed at the top, 40,000 gateway lines after it", "0.17.1", BRISA_8B, seed=18, length=65536, device="L4", util=0.93, activation=1.22, non_torch=0.25, tags=["big", "compose"], wrappers=(wrap.compose("api"), wrap.gateway_noise(40000, 5)), packed=True),
    ]  # fmt: skip


def empties() -> list[Case]:
    """no-kv-cache-blocks."""
    out = []
    story = Story("0.2.7", seed=21, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_13B, {"gpu_memory_utilization": 0.35, "tensor_parallel_size": 1})
    v0.engine(story, MIRADOR_13B, length=4096, dtype="float16")
    story.wait(30)
    v0.blocks(story, 0, 327, 4096)
    v0.fail(story, v0.INIT_CACHE, NO_BLOCKS)
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
    v0.fail_in_process(story, v0.INIT_CACHE, NO_BLOCKS)
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
    fail.fail_in_core(story, fail.KV_CHECK, NO_BLOCKS)
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
        fail.fail_in_core(story, fail.KV_CHECK, no_blocks(story))
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
    fail.fail_in_core(story, fail.KV_CHECK, NO_BLOCKS)
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
    fail.fail_in_core(story, fail.KV_CHECK, NO_BLOCKS)
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
        fail.fail_in_core(story, fail.KV_CHECK, no_blocks(story), mark="", again="")
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
        v0.INIT_CACHE,
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


def old_contexts() -> list[Case]:
    """V0: the cache stores fewer tokens than max_model_len."""
    out = []
    for id_, release, seed, tokens, wrapper, tag in (
        ("kv-context-033-slots", "0.3.3", 51, 11264, None, "bare"),
        (
            "kv-context-042-fence",
            "0.4.2",
            52,
            9040,
            wrap.fence(
                "### Your current environment\nA10, driver 535\n\n### 🐛 Describe the bug\nEngine does not start:",
                "Same with a fresh container.",
            ),
            "markdown-fence",
        ),
    ):
        story = Story(release, seed=seed, site="/usr/local/lib/python3.10/dist-packages")
        v0.banner(story, KESTREL_7B, {"max_model_len": 32768, "gpu_memory_utilization": 0.9})
        v0.engine(story, KESTREL_7B, length=32768)
        v0.load(story, KESTREL_7B, 14.25)
        v0.blocks(story, tokens // 16, 4681, 32768)
        v0.fail(
            story,
            v0.INIT_CACHE,
            f"ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache ({tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        )
        out.append(
            Case(
                id_,
                f"{tokens} tokens fit, 32768 asked",
                release,
                "kv-cache-smaller-than-context",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag, "v0"],
                {"max_model_len": 32768, "kv_tokens": tokens, "gpu_blocks": tokens // 16},
                [{"flag": "max_model_len", "at_most": tokens}],
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
    return [
        *contexts(),
        *empties(),
        *already_high(),
        foreign_charged(),
        *estimates(),
        *pinned(),
        *old_contexts(),
        *states_and_pages(),
    ]


__all__ = ["TARN_70B", "cases"]
