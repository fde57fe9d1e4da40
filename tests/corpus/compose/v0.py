"""The start-up of the V0 engine (0.2 to 0.10), phase by phase, and how it fails."""

from .boot import shards
from .machine import GIB, Budget, Model
from .story import Story


def banner(story: Story, model: Model, args: dict[str, object]) -> None:
    """Version and arguments."""
    file = "openai/api_server.py"
    story.maybe(
        "INFO", file, "vLLM API server version", f"vLLM API server version {story.release}", proc="none"
    )
    shown = {"host": None, "port": 8000, "allow_credentials": False, "model": model.name, **args}
    story.maybe(
        "INFO",
        file,
        "args: ",
        "args: Namespace(" + ", ".join(f"{k}={v!r}" for k, v in shown.items()) + ")",
        proc="none",
    )


def engine(
    story: Story,
    model: Model,
    *,
    length: int,
    world: int = 1,
    dtype: str = "bfloat16",
    quantization: str = "None",
    eager: bool = False,
) -> None:
    """The engine begins."""
    story.wait(5)
    version = f" (v{story.release})" if story.at_least("0.4.0") else ""
    head = (
        "Initializing a V0 LLM engine"
        if story.place("engine/llm_engine.py", "Initializing a V0 LLM engine")
        else "Initializing an LLM engine"
    )
    story.say(
        "INFO", "engine/llm_engine.py", head,
        f"{head}{version} with config: model='{model.name}', tokenizer='{model.name}', tokenizer_mode=auto, revision=None, trust_remote_code=False, dtype=torch.{dtype}, "
        f"max_seq_len={length}, download_dir=None, load_format={'auto' if not story.at_least('0.4.0') else 'LoadFormat.AUTO'}, tensor_parallel_size={world}, disable_custom_all_reduce=False, quantization={quantization}, enforce_eager={eager}, kv_cache_dtype=auto, device_config=cuda, seed=0)",
        proc="none",
    )  # fmt: skip


def load(story: Story, model: Model, weights_gib: float, *, world: int = 1, upto: int | None = None) -> None:
    """Weights."""
    story.wait(3)
    names = ["none", *[f"v0worker{n}" for n in range(1, world)]]
    if world > 1:
        for name in names:
            story.maybe(
                "INFO",
                "device_communicators/pynccl.py",
                "vLLM is using nccl",
                "vLLM is using nccl==2.20.5",
                proc=name,
            )
    for name in names:
        story.maybe(
            "INFO",
            "worker/model_runner.py",
            "Starting to load model",
            f"Starting to load model {model.name}...",
            proc=name,
        )
    if story.at_least("0.5.0"):
        shards(story, model, upto=upto, proc="none")
    if upto is not None:
        return
    for name in names:
        if not story.maybe(
            "INFO",
            "worker/model_runner.py",
            "Loading model weights took",
            f"Loading model weights took {weights_gib:.4f} GB",
            proc=name,
        ):
            story.maybe(
                "INFO",
                "worker/model_runner.py",
                "Model loading took",
                f"Model loading took {weights_gib:.4f} GiB and {story.random.uniform(4, 30):.6f} seconds",
                proc=name,
            )


def profiled(story: Story, budget: Budget, *, names: tuple[str, ...] = ("none",)) -> None:
    """0.6.5+: the three-line account."""
    story.wait(4)
    seconds = f"{story.random.uniform(1, 6):.2f} seconds"
    for name in names:
        if story.place("worker/worker.py", "Memory profiling takes"):
            story.maybe(
                "INFO", "worker/worker.py", "Memory profiling takes",
                f"Memory profiling takes {seconds}\nthe current vLLM instance can use total_gpu_memory ({budget.total:.2f}GiB) x gpu_memory_utilization ({budget.utilization:.2f}) = {budget.requested:.2f}GiB\n"
                f"model weights take {budget.weights:.2f}GiB; non_torch_memory takes {budget.non_torch:.2f}GiB; PyTorch activation peak memory takes {budget.activation:.2f}GiB; "
                f"the rest of the memory reserved for KV Cache is {budget.kv_bytes / GIB:.2f}GiB.",
                proc=name,
            )  # fmt: skip


def blocks(story: Story, gpu: int, cpu: int, length: int) -> None:
    """The number of KV blocks."""
    for file in (
        "executor/executor_base.py",
        "executor/distributed_gpu_executor.py" if story.world > 1 else "executor/gpu_executor.py",
        "executor/ray_gpu_executor.py",
        "engine/llm_engine.py",
    ):
        if story.maybe(
            "INFO", file, "# GPU blocks: ", f"# GPU blocks: {gpu}, # CPU blocks: {cpu}", proc="none"
        ) or story.maybe(
            "INFO", file, "# %s blocks: ", f"# cuda blocks: {gpu}, # CPU blocks: {cpu}", proc="none"
        ):
            story.maybe(
                "INFO",
                file,
                "Maximum concurrency for %s tokens",
                f"Maximum concurrency for {length} tokens per request: {gpu * 16 / length:.2f}x",
                proc="none",
            )
            return


def captured(story: Story, seconds: int = 19) -> None:
    """CUDA graphs."""
    text = "Capturing the model for CUDA graphs. This may lead to unexpected consequences if the model is not static. To run the model in eager mode, set 'enforce_eager=True' or use '--enforce-eager' in the CLI."
    for part in ("Capturing the model for CUDA graphs", "Capturing cudagraphs for decoding"):
        story.maybe("INFO", "worker/model_runner.py", part, text, proc="none")
    story.maybe(
        "INFO",
        "worker/model_runner.py",
        "CUDA graphs can take additional",
        "CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider decreasing `gpu_memory_utilization` or enforcing eager mode. You can also reduce the `max_num_seqs` as needed to decrease memory usage.",
        proc="none",
    )
    story.wait(seconds)
    story.maybe(
        "INFO",
        "worker/model_runner.py",
        "Graph capturing finished",
        f"Graph capturing finished in {seconds} secs"
        + (", took 0.41 GiB" if story.at_least("0.6.5") else "."),
        proc="none",
    )


def ready(story: Story) -> None:
    """The server listens."""
    story.wait(2)
    story.maybe(
        "INFO", "entrypoints/launcher.py", "Available routes are", "Available routes are:", proc="none"
    )
    for route in ("/openapi.json", "/health", "/v1/models", "/v1/chat/completions", "/v1/completions"):
        story.maybe(
            "INFO",
            "entrypoints/launcher.py",
            "Route: %s, Methods: %s",
            f"Route: {route}, Methods: {'GET' if 'compl' not in route else 'POST'}",
            proc="none",
        )
    story.raw(f"INFO:     Started server process [{story.pid('api')}]")
    story.raw("INFO:     Waiting for application startup.")
    story.raw("INFO:     Application startup complete.")
    story.raw("INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)")


def load_line(
    story: Story, *, running: int, pending: int, usage: float, swapped: int = 0, mark: str = ""
) -> None:
    """The statistics."""
    story.wait(5)
    for file in ("engine/metrics.py", "engine/llm_engine.py"):
        if story.place(file, "Avg prompt throughput"):
            story.say(
                "INFO", file, "Avg prompt throughput",
                f"Avg prompt throughput: {story.random.uniform(60, 900):.1f} tokens/s, Avg generation throughput: {story.random.uniform(50, 600):.1f} tokens/s, Running: {running} reqs, Swapped: {swapped} reqs, "
                f"Pending: {pending} reqs, GPU KV cache usage: {usage:.1f}%, CPU KV cache usage: 0.0%.",
                proc="none", mark=mark,
            )  # fmt: skip
            return


ENGINE = (
    "async_llm_engine.py:AsyncLLMEngine.from_engine_args:engine = cls(",
    "async_llm_engine.py:AsyncLLMEngine.__init__:self._init_engine(",
    "async_llm_engine.py:AsyncLLMEngine._init_engine:return engine_class(",
)
MQ = (
    "multiprocessing/engine.py:run_mp_engine:engine = MQLLMEngine.from_",
    "multiprocessing/engine.py:MQLLMEngine.from_engine_args:return cls(",
    "multiprocessing/engine.py:MQLLMEngine.from_vllm_config:return cls(",
    "multiprocessing/engine.py:MQLLMEngine.__init__:self.engine = LLMEngine(",
)
NO_BLOCKS = (
    "engine/llm_engine.py:LLMEngine.__init__:self._initialize_kv_caches()", "engine/llm_engine.py:LLMEngine.__init__:self._init_cache()", "engine/llm_engine.py:LLMEngine._init_cache:check_block_size_valid(",
    "engine/llm_engine.py:LLMEngine._init_cache:raise ValueError(", "engine/llm_engine.py:LLMEngine._initialize_kv_caches:self.model_executor.initialize_cache(",
    "executor/gpu_executor.py:GPUExecutor.initialize_cache:self.driver_worker.initialize_cache(", "executor/executor_base.py:ExecutorBase.initialize_cache:self.collective_rpc(", "worker/worker.py:Worker.initialize_cache:raise_if_cache_size_invalid(", 'worker/worker.py:raise_if_cache_size_invalid:raise ValueError("No available',
)  # fmt: skip
LOADING = (
    "engine/llm_engine.py:LLMEngine.__init__:executor_class(",
    "engine/llm_engine.py:LLMEngine.__init__:self._init_workers()",
    "engine/llm_engine.py:LLMEngine._init_workers:load_model",
    "executor/executor_base.py:ExecutorBase.__init__:self._init_executor()",
    "executor/gpu_executor.py:GPUExecutor._init_executor:self.driver_worker.load_model()",
    "worker/worker.py:Worker.load_model:self.model_runner.load_model()",
    "worker/model_runner.py:GPUModelRunnerBase.load_model:get_model(",
    "worker/model_runner.py:ModelRunner.load_model:get_model(",
)
TOO_FEW_BLOCKS = (
    "engine/llm_engine.py:LLMEngine.__init__:self._initialize_kv_caches()", "engine/llm_engine.py:LLMEngine.__init__:self._init_cache()", "engine/llm_engine.py:LLMEngine._init_cache:check_block_size_valid(",
    "engine/llm_engine.py:LLMEngine._init_cache:<raise ValueError(", "engine/llm_engine.py:LLMEngine._initialize_kv_caches:self.model_executor.initialize_cache(",
    "executor/gpu_executor.py:GPUExecutor.initialize_cache:self.driver_worker.initialize_cache(", "executor/executor_base.py:ExecutorBase.initialize_cache:self.collective_rpc(", "worker/worker.py:Worker.initialize_cache:raise_if_cache_size_invalid(", "worker/worker.py:raise_if_cache_size_invalid:<raise ValueError(",
)  # fmt: skip
LOADING = (
    "engine/llm_engine.py:LLMEngine.__init__:executor_class(",
    "engine/llm_engine.py:LLMEngine.__init__:self._init_workers()",
    "engine/llm_engine.py:LLMEngine._init_workers:load_model",
    "executor/executor_base.py:ExecutorBase.__init__:self._init_executor()",
    "executor/gpu_executor.py:GPUExecutor._init_executor:self.driver_worker.load_model()",
    "worker/worker.py:Worker.load_model:self.model_runner.load_model()",
    "worker/model_runner.py:GPUModelRunnerBase.load_model:get_model(",
    "worker/model_runner.py:ModelRunner.load_model:get_model(",
)
PROFILE = (
    "engine/llm_engine.py:LLMEngine.__init__:self._initialize_kv_caches()",
    "engine/llm_engine.py:LLMEngine.__init__:self._init_cache()",
    "engine/llm_engine.py:LLMEngine._initialize_kv_caches:self.model_executor.determine_num_available_blocks()",
    "engine/llm_engine.py:LLMEngine._init_cache:profile_num_available_blocks",
    "executor/gpu_executor.py:GPUExecutor.determine_num_available_blocks:self.driver_worker.determine_num_available_blocks()",
    "worker/worker.py:Worker.profile_num_available_blocks:self.model_runner.profile_run()",
    "worker/worker.py:Worker.determine_num_available_blocks:self.model_runner.profile_run()",
    "worker/model_runner.py:GPUModelRunnerBase.profile_run:self.execute_model(",
    "worker/model_runner.py:ModelRunner.profile_run:self.execute_model(",
    "worker/model_runner.py:ModelRunner.execute_model:model_executable(",
)
CAPTURE = (
    "engine/llm_engine.py:LLMEngine.__init__:self._initialize_kv_caches()",
    "engine/llm_engine.py:LLMEngine.__init__:self._init_cache()",
    "engine/llm_engine.py:LLMEngine._init_cache:warm_up_model",
    "engine/llm_engine.py:LLMEngine._initialize_kv_caches:self.model_executor.initialize_cache(",
    "executor/gpu_executor.py:GPUExecutor.initialize_cache:self.driver_worker.initialize_cache(",
    "worker/worker.py:Worker.initialize_cache:self._warm_up_model()",
    "worker/worker.py:Worker._warm_up_model:self.model_runner.capture_model(",
    "worker/worker.py:Worker.warm_up_model:self.model_runner.capture_model(",
    "worker/model_runner.py:GPUModelRunnerBase.capture_model:graph_runner.capture(",
    "worker/model_runner.py:ModelRunner.capture_model:graph_runner.capture(",
    "worker/model_runner.py:CUDAGraphRunner.capture:with torch.cuda.graph(",
)


def fail(story: Story, frames: tuple[str, ...], error: str, *, mark: str = "cause") -> None:
    """In-process: a bare traceback from the API server's module."""
    story.wait(1)
    head = (
        "!%/runpy.py:196:_run_module_as_main:return _run_code(code, main_globals, None,",
        "!%/runpy.py:86:_run_code:exec(code, run_globals)",
        "openai/api_server.py:<module>:engine =",
    )
    story.trace(story.frames(*head, *ENGINE, *frames), error, proc="none", mark=mark)


def fail_in_process(story: Story, frames: tuple[str, ...], error: str) -> None:
    """0.6.2+ with the multiprocessing front end: records (0.6.4+), the raw traceback, the wrapper."""
    story.wait(1)
    place = story.place("multiprocessing/engine.py", "logger.exception(e)") or story.place(
        "multiprocessing/engine.py", "logger.exception("
    )
    lines = story.frames(*MQ, *frames)
    first = "cause"
    if place:
        story.trace(lines, error, proc="none", place=place, mark="echo", head=error.split(": ", 1)[1])
        index = (
            next(
                n
                for n in range(len(story.lines) - 1, -1, -1)
                if story.lines[n].text.endswith("Traceback (most recent call last):")
            )
            - 1
        )
        story.lines[index] = type(story.lines[index])(story.lines[index].text, first)
        first = "echo"
    story.raw("Process SpawnProcess-1:")
    story.trace(
        [
            *story.frames(
                "!%/multiprocessing/process.py:314:_bootstrap:self.run()",
                "!%/multiprocessing/process.py:108:run:self._target(*self._args, **self._kwargs)",
                "multiprocessing/engine.py:run_mp_engine:raise e",
            ),
            *lines,
        ],
        error,
        proc="none",
        mark=first,
    )
    last = "openai/api_server.py:build_async_engine_client_from_engine_args:raise RuntimeError("
    text = "Engine process failed to start" + (
        ". See stack trace for the root cause." if story.at_least("0.6.5") else ""
    )
    story.trace(
        story.frames(
            "!~/uvloop/__init__.py:109:run:return __asyncio.run(",
            "openai/api_server.py:run_server:async with build_async_engine_client(",
            "openai/api_server.py:build_async_engine_client:async with build_async_engine_client_from_engine_args(",
            last,
        ),
        f"RuntimeError: {text}",
        proc="none",
    )
