"""kv-cache-smaller-than-context over releases and carriers."""

from . import boot, fail, v0, wrap
from .case import Advice, Case
from .machine import (
    BRISA_8B,
    COBALT_MOE,
    DEVICES,
    GIB,
    KESTREL_7B,
    SOLANO_24B,
    TARN_32B,
    Budget,
    Model,
    fit_tokens,
    gib,
)
from .story import Story


def too_small(story: Story, length: int, needed: float, available: float, estimate: int | None) -> str:
    """The refusal, as each release words it. Sizes in bytes."""
    if available >= needed:
        raise ValueError(f"{needed} bytes fit into {available}: vLLM would start")
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
        context_case("kv-context-0102-compose", "24B with its full context on 80 GB", "0.10.2", SOLANO_24B, seed=11, length=131072, device="A100-80", util=0.8, activation=1.93, non_torch=0.11, tags=["compose"], wrappers=(wrap.compose("mistral-serve-1"),)),
        context_case("kv-context-0092-narrow", "a terminal of 100 columns", "0.9.2", KESTREL_7B, seed=12, length=32768, device="RTX4080", util=0.98, activation=0.42, non_torch=0.09, tags=["terminal-wrap"], wrappers=(wrap.columns(100),), site=conda),
        context_case("kv-context-0191-rank2", "two ranks, journald", "0.19.1", TARN_32B, seed=13, length=32768, device="A6000", util=0.78, activation=1.4, non_torch=2.02, graphs=0.0, world=2, tags=["journald", "multi-rank"], wrappers=(wrap.journald("gpu-rack3", "vllm"),)),
        context_case("kv-context-0330-json", "docker json-file, tag in the format", "0.33.0", BRISA_8B, seed=14, length=131072, device="L4", util=0.92, activation=0.88, non_torch=0.31, graphs=0.61, tags=["docker-json"], wrappers=(wrap.docker_json(),)),
        context_case("kv-context-0240-german", "German words around it", "0.24.0", COBALT_MOE, seed=15, length=40960, device="A100-80", util=0.75, activation=0.99, non_torch=0.42, graphs=0.5, tags=["german"], site=conda, wrappers=(wrap.around("Hallo zusammen,\nseit dem Update startet der Dienst nicht mehr. Fehlermeldung unten – hat jemand eine Idee?\nGrafikkarte: A100 80GB, Treiber 570\n", "\nIch habe schon neu gestartet, Speicher ist frei. Danke!"),)),  # noqa: RUF001
        context_case("kv-context-0290-crlf", "copied from a Windows console", "0.29.0", KESTREL_7B, seed=16, length=32768, device="RTX4080", util=0.99, activation=0.47, non_torch=0.24, graphs=0.15, tags=["crlf"], ending="\r\n"),
        context_case("kv-context-0122-cri", "containerd's log file", "0.12.0", BRISA_8B, seed=17, length=131072, device="RTX4090", util=0.9, activation=1.26, non_torch=0.13, tags=["cri"], wrappers=(wrap.cri(),)),
        context_case("kv-context-0171-noise", "failed at the top, 40,000 gateway lines after it", "0.17.1", BRISA_8B, seed=18, length=65536, device="L4", util=0.93, activation=1.22, non_torch=0.25, tags=["big", "compose"], wrappers=(wrap.compose("api"), wrap.gateway_noise(40000, 5)), packed=True),
    ]  # fmt: skip


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
            v0.TOO_FEW_BLOCKS,
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


def cases() -> list[Case]:
    """This family's cases."""
    return [*contexts(), *old_contexts()]
