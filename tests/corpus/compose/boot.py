"""The start-up of the V1 engine (0.8.0+), phase by phase, as each release prints it."""

from .machine import GIB, Budget, Model, gib
from .story import Story

LOGO = ("", "       █     █     █▄   ▄█", " ▄▄ ▄█ █     █     █ ▀▄▀ █  version {v}", "  █▄█▀ █     █     █     █  model   {m}", "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀", "")  # fmt: skip
API_FILES = (
    "entrypoints/openai/api_server.py",
    "entrypoints/utils.py",
    "entrypoints/serve/utils/api_utils.py",
    "entrypoints/common/startup.py",
    "launchers/api_server/entry.py",
    "launchers/launcher.py",
    "entrypoints/launcher.py",
    "serve/utils/server_utils.py",
    "openai/cli_args.py",
    "vllm/utils/__init__.py",
)


def api(story: Story, text: str, message: str, level: str = "INFO") -> None:
    """A record of the API server, in whichever file this release has it."""
    for file in API_FILES:
        if story.maybe(level, file, text, message, proc="api"):
            return


def banner(story: Story, model: Model, args: dict[str, object]) -> None:
    """Version and arguments."""
    if story.at_least("0.15.0"):
        for part in LOGO:
            api(story, "▄▄${r} ${b}▄█", part.format(v=story.release, m=model.name))
    else:
        api(story, "vLLM API server version", f"vLLM API server version {story.release}")
    shown: dict[str, object] = (
        {"model_tag": model.name, "model": model.name, **args}
        if story.at_least("0.10.0")
        else {"model": model.name, **args}
    )
    if story.at_least("0.9.0"):
        api(story, "non-default args: %s", f"non-default args: {shown}")
    else:
        api(
            story,
            'args: %s"',
            "args: Namespace(subparser='serve', "
            f"model_tag='{model.name}', host=None, port=8000, "
            + ", ".join(f"{k}={v!r}" for k, v in args.items())
            + ")",
        )


def configured(story: Story, model: Model, *, length: int, batched: int) -> None:
    """What the front end derives from the checkpoint."""
    story.wait(6)
    files = (
        "config/model.py",
        "vllm/config.py",
        "config/__init__.py",
        "config/scheduler.py",
        "config/vllm.py",
    )
    for text, message in (
        ("Resolved architecture: %s", f"Resolved architecture: {model.architecture}"),
        ("Using max model len %s", f"Using max model len {length}"),
        (
            "Chunked prefill is enabled with",
            f"Chunked prefill is enabled with max_num_batched_tokens={batched}.",
        ),
        ("Asynchronous scheduling is enabled.", "Asynchronous scheduling is enabled."),
    ):
        any(story.maybe("INFO", file, text, message, proc="api") for file in files)


def engine(
    story: Story,
    model: Model,
    *,
    length: int,
    world: int = 1,
    pp: int = 1,
    dtype: str = "bfloat16",
    extra: str = "",
    device: str = "cuda",
    proc: str = "core",
) -> None:
    """The engine core begins."""
    story.wait(7)
    story.world = world * pp
    load = "LoadFormat.AUTO" if not story.at_least("0.10.0") else "auto"
    quant = extra or "None"
    story.say(
        "INFO", "v1/engine/core.py", "Initializing a V1 LLM engine",
        f"Initializing a V1 LLM engine (v{story.release}) with config: model='{model.name}', speculative_config=None, tokenizer='{model.name}', skip_tokenizer_init=False, "
        f"tokenizer_mode=auto, revision=None, trust_remote_code=False, dtype=torch.{dtype}, max_seq_len={length}, download_dir=None, load_format={load}, "
        f"tensor_parallel_size={world}, pipeline_parallel_size={pp}, data_parallel_size={story.data_parallel}, disable_custom_all_reduce=False, quantization={quant}, enforce_eager=False, kv_cache_dtype=auto, "
        f"device_config={device}, seed=0, served_model_name={model.name}, enable_prefix_caching=True, chunked_prefill_enabled=True",
        proc=proc,
    )  # fmt: skip


def ranks(story: Story) -> list[str]:
    """The process names of the workers (the engine core itself where there is one)."""
    return ["core"] if story.world == 1 else [f"rank{n}" for n in range(story.world)]


def distribute(story: Story, *, pp: int = 1, names: list[str] | None = None, backend: str = "nccl") -> None:
    """The ranks find each other."""
    story.wait(2)
    port = story.random.randint(41000, 59000)
    world = story.world
    tp = world // pp
    for number, name in enumerate(names or ranks(story)):
        story.maybe(
            "INFO",
            "distributed/parallel_state.py",
            "world_size=%d rank=%d local_rank=%d distributed",
            f"world_size={world} rank={number} local_rank={number} distributed_init_method=tcp://127.0.0.1:{port} backend={backend}",
            proc=name,
        )
        if world > 1:
            story.maybe(
                "INFO",
                "device_communicators/pynccl.py",
                "vLLM is using nccl",
                "vLLM is using nccl==2.27.5" if story.at_least("0.11.1") else "vLLM is using nccl==2.21.5",
                proc=name,
            )
    for number, name in enumerate(names or ranks(story)):
        story.maybe(
            "INFO",
            "distributed/parallel_state.py",
            "is assigned as",
            f"rank {number} in world size {world} is assigned as DP rank 0, PP rank {number // tp}, TP rank {number % tp}"
            + (f", EP rank {number % tp}" if story.at_least("0.9.0") else ""),
            proc=name,
        )
    story.workers_named = True


def begin_load(
    story: Story, model: Model, *, attention: str = "FLASH_ATTN", names: list[str] | None = None
) -> None:
    """The model is built."""
    story.wait(1)
    for name in names or ranks(story):
        story.maybe(
            "INFO",
            "v1/worker/gpu_model_runner.py",
            "Starting to load model",
            f"Starting to load model {model.name}...",
            proc=name,
        )
    for name in (names or ranks(story))[: 1 if story.at_least("0.11.1") else None]:
        story.maybe(
            "INFO",
            "platforms/cuda.py",
            "attention backend out of potential",
            f"Using {attention} attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER', 'TRITON_ATTN', 'FLEX_ATTENTION'].",
            proc=name,
        ) or story.maybe(
            "INFO",
            "platforms/cuda.py",
            "Using Flash Attention backend on V1 engine",
            "Using Flash Attention backend on V1 engine.",
            proc=name,
        )


def shards(story: Story, model: Model, *, upto: int | None = None, proc: str | None = None) -> None:
    """The progress bar of the checkpoint shards."""
    total = model.shards
    pace = story.random.uniform(0.8, 2.4)
    for done in range((total if upto is None else upto) + 1):
        if total > 8 and 0 < done < total and done % (total // 6):
            continue
        share = int(100 * done / total)
        left = (
            "?"
            if done == 0
            else f"{int((total - done) * pace) // 60:02d}:{int((total - done) * pace) % 60:02d}"
        )
        rate = "?it/s" if done == 0 else f"{pace:5.2f}s/it"
        story.raw(
            f"Loading safetensors checkpoint shards: {share:3d}% Completed | {done}/{total} [{int(done * pace) // 60:02d}:{int(done * pace) % 60:02d}<{left}, {rate}]",
            proc=proc or ranks(story)[0],
        )
        story.wait(pace)
    story.raw("", proc=proc or ranks(story)[0])


def loaded(story: Story, weights_gib: float, *, names: list[str] | None = None) -> None:
    """Weights are in."""
    for name in names or ranks(story):
        seconds = story.random.uniform(3, 30)
        story.maybe(
            "INFO",
            "model_loader/default_loader.py",
            "Loading weights took",
            f"Loading weights took {seconds:.2f} seconds",
            proc=name,
        ) or story.maybe(
            "INFO",
            "model_loader/loader.py",
            "Loading weights took",
            f"Loading weights took {seconds:.2f} seconds",
            proc=name,
        )
        size = (
            f"{weights_gib:.4f} GiB"
            if not story.at_least("0.12.0")
            else f"{round(weights_gib, 2)} GiB memory"
        )
        if story.place("v1/worker/gpu_model_runner.py", "Model loading took %.4f GiB memory"):
            size = f"{weights_gib:.4f} GiB memory"
        story.maybe(
            "INFO",
            "v1/worker/gpu_model_runner.py",
            "Model loading took",
            f"Model loading took {size} and {seconds + 0.8:.6f} seconds",
            proc=name,
        )


def compiled(story: Story, *, batched: int, names: list[str] | None = None) -> None:
    """torch.compile."""
    for name in names or ranks(story):
        story.wait(4)
        cache = f"{'/root' if story.site.startswith('/usr') else '/home/tessa'}/.cache/vllm/torch_compile_cache/{story.random.getrandbits(40):010x}/rank_0_0"
        file = "compilation/backends.py"
        story.maybe(
            "INFO",
            file,
            "Using cache directory: %s for",
            f"Using cache directory: {cache}{'/backbone' if story.at_least('0.11.0') else ''} for vLLM's torch.compile",
            proc=name,
        )
        story.maybe(
            "INFO",
            file,
            "bytecode transform time",
            f"Dynamo bytecode transform time: {story.random.uniform(4, 12):.2f} s",
            proc=name,
        )
        story.wait(18)
        took = story.random.uniform(9, 30)
        if not story.maybe(
            "INFO",
            file,
            "Compiling a graph for compile range",
            f"Compiling a graph for compile range (1, {batched}) takes {took:.2f} s",
            proc=name,
        ):
            kind = "dynamic" if story.place(file, "graph for dynamic shape takes") else "general"
            story.maybe(
                "INFO",
                file,
                f"Compiling a graph for {kind} shape takes",
                f"Compiling a graph for {kind} shape takes {took:.2f} s",
                proc=name,
            )
        story.maybe(
            "INFO",
            "compilation/monitor.py",
            "torch.compile takes",
            f"torch.compile takes {took + 7:.2f} s in total",
            proc=name,
        )


def profiled(story: Story, budget: Budget, *, names: list[str] | None = None) -> None:
    """What memory profiling leaves for the KV cache (0.9.1+ prints it)."""
    story.wait(2)
    who = names or ranks(story)
    shown = f"{budget.kv_bytes / GIB:.2f}" if not story.at_least("0.12.0") else gib(budget.kv_bytes)
    for name in who[: 1 if story.at_least("0.11.1") and names is None else None]:
        if budget.graphs:
            story.maybe(
                "INFO",
                "v1/worker/gpu_model_runner.py",
                "Estimated CUDA graph memory",
                f"Estimated CUDA graph memory: {budget.graphs:.2f} GiB total",
                proc=name,
            )
        story.maybe(
            "INFO",
            "v1/worker/gpu_worker.py",
            "Available KV cache memory",
            f"Available KV cache memory: {shown} GiB",
            proc=name,
        )
        if budget.graphs and story.at_least("0.20.0"):
            same = budget.utilization - budget.graphs / budget.total
            story.maybe(
                "INFO", "v1/worker/gpu_worker.py", "CUDA graph memory profiling is enabled",
                f"CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization={budget.utilization:.4f} is equivalent to "
                f"--gpu-memory-utilization={max(same, 0):.4f} without CUDA graph memory profiling. To maintain the same effective KV cache size as before, increase "
                f"--gpu-memory-utilization to {min(budget.utilization + budget.graphs / budget.total, 1.0):.4f}. To disable, set VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0.",
                proc=name,
            )  # fmt: skip


def sized(story: Story, tokens: int, length: int, *, concurrency: float | None = None) -> None:
    """The size of the KV cache."""
    times = concurrency if concurrency is not None else tokens / length
    file = "v1/core/kv_cache_utils.py"
    if story.maybe(
        "INFO",
        file,
        '"%s KV cache size: %s tokens',
        f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {length:,} tokens per request: {times:.2f}x",
    ):
        return
    if story.maybe(
        "INFO",
        file,
        "GPU KV cache size: %s tokens, ",
        f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {length:,} tokens per request: {times:.2f}x",
    ):
        return
    story.maybe("INFO", file, "GPU KV cache size: %s tokens", f"GPU KV cache size: {tokens:,} tokens")
    story.maybe(
        "INFO",
        file,
        "Maximum concurrency for %s tokens",
        f"Maximum concurrency for {length:,} tokens per request: {times:.2f}x",
    )
