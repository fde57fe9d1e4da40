"""How a V1 failure reaches the terminal: the worker, the engine core, the raw traceback, the front end."""

from .boot import ranks
from .story import Line, Story

CORE = (
    "v1/engine/core.py:EngineCoreProc.run_engine_core:engine_core = EngineCoreProc(",
    "v1/engine/core.py:EngineCoreProc.__init__:super().__init__(",
)
PROCESS = (
    "!%/multiprocessing/process.py:314:_bootstrap:self.run()",
    "!%/multiprocessing/process.py:108:run:self._target(*self._args, **self._kwargs)",
)
SERVE = (
    "entrypoints/cli/main.py:main:args.dispatch_function(args)",
    "entrypoints/cli/serve.py:ServeSubcommand.cmd:uvloop.run(run_server(args))",
    "!~/uvloop/__init__.py:109:run:return __asyncio.run(",
    "!%/asyncio/runners.py:195:run:return runner.run(main)",
    "!%/asyncio/runners.py:118:run:return self._loop.run_until_complete(task)",
    "!uvloop/loop.pyx:1518:uvloop.loop.Loop.run_until_complete:",
    "!~/uvloop/__init__.py:61:wrapper:return await main",
)
CLIENT = (
    "openai/api_server.py:run_server:await run_server_worker(",
    "launchers/api_server/entry.py:run_server:await run_server_worker(",
    "openai/api_server.py:run_server_worker:async with build_async_engine_client(",
    "launchers/api_server/entry.py:run_server_worker:async with build_async_engine_client(",
    "openai/api_server.py:build_async_engine_client:async with build_async_engine_client_from_engine_args(",
    "openai/api_server.py:build_async_engine_client_from_engine_args:async_llm = AsyncLLM.from_vllm_config(",
    "v1/engine/async_llm.py:AsyncLLM.from_vllm_config:return cls(",
    "v1/engine/async_llm.py:AsyncLLM.__init__:self.engine_core = EngineCoreClient.make_async_mp_client(",
    "v1/engine/core_client.py:EngineCoreClient.make_async_mp_client:return AsyncMPClient(",
    "v1/engine/core_client.py:AsyncMPClient.__init__:super().__init__(",
    "v1/engine/core_client.py:MPClient.__init__:with launch_core_engines(",
    "!%/contextlib.py:144:__exit__:next(self.gen)",
    "v1/engine/utils.py:launch_core_engines:wait_for_engine_startup(",
    "v1/engine/utils.py:wait_for_engine_startup:raise RuntimeError(",
    "v1/utils.py:wait_for_engine_startup:raise RuntimeError(",
    "v1/engine/core_client.py:MPClient._wait_for_engine_startup:raise RuntimeError(",
)
MODEL_EXECUTOR = (
    "v1/engine/core.py:EngineCore.__init__:self.model_executor = executor_class(vllm_config)",
    "executor/executor_base.py:ExecutorBase.__init__:self._init_executor()",
    "v1/executor/abstract.py:Executor.__init__:self._init_executor()",
)
UNIPROC = (
    "uniproc_executor.py:UniProcExecutor.collective_rpc:run_method(",
    "vllm/utils.py:run_method:return func(*args, **kwargs)",
    "utils/__init__.py:run_method:return func(*args, **kwargs)",
    "v1/serial_utils.py:run_method:return func(*args, **kwargs)",
)
INIT_DEVICE = (
    "uniproc_executor.py:UniProcExecutor._init_executor:init_device",
    *UNIPROC,
    "worker_base.py:WorkerWrapperBase.init_device:self.worker.init_device()",
    "v1/worker/gpu_worker.py:Worker.init_device:request_memory(",
)
LOAD = (
    "uniproc_executor.py:UniProcExecutor._init_executor:load_model", *UNIPROC,
    "v1/worker/gpu_worker.py:Worker.load_model:self.model_runner.load_model(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner.load_model:self.model = model_loader.load_model(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner.load_model:self.model = get_model(",
    "model_loader/base_loader.py:BaseModelLoader.load_model:model = initialize_model(",
    "model_loader/utils.py:initialize_model:return model_class(",
)  # fmt: skip
KV_CACHES = ("v1/engine/core.py:EngineCore.__init__:self._initialize_kv_caches(",)
PROFILE = (
    *KV_CACHES, "v1/engine/core.py:EngineCore._initialize_kv_caches:self.model_executor.determine_available_memory(",
    "v1/executor/abstract.py:Executor.determine_available_memory:self.collective_rpc(", *UNIPROC,
    "v1/worker/gpu_worker.py:Worker.determine_available_memory:self.model_runner.profile_run()",
)  # fmt: skip
FORWARD = (
    "v1/worker/gpu_model_runner.py:GPUModelRunner.profile_run:self._dummy_run(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner._dummy_run:outputs = ",
)
ENCODER = (
    "v1/worker/gpu_model_runner.py:GPUModelRunner.profile_run:dummy_encoder_outputs = ",
    "qwen2_5_vl.py:Qwen2_5_VLForConditionalGeneration.get_multimodal_embeddings:self._process_image_input(",
    "qwen2_5_vl.py:Qwen2_5_VLForConditionalGeneration.embed_multimodal:self._process_image_input(",
    "qwen2_5_vl.py:Qwen2_5_VLForConditionalGeneration._process_image_input:self.visual(",
    "qwen2_5_vl.py:Qwen2_5_VisionTransformer.forward:blk(",
    "qwen2_5_vl.py:Qwen2_5_VisionBlock.forward:self.mlp(",
)
SAMPLER_PROFILE = (
    "v1/worker/gpu_model_runner.py:GPUModelRunner.profile_run:self._dummy_sampler_run(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner._dummy_sampler_run:self.sampler(",
)
KV_CHECK = (*KV_CACHES, "v1/engine/core.py:EngineCore._initialize_kv_caches:get_kv_cache_config", "v1/core/kv_cache_utils.py:get_kv_cache_configs:check_enough_kv_cache_memory(", "v1/core/kv_cache_utils.py:get_kv_cache_config:check_enough_kv_cache_memory(", "v1/core/kv_cache_utils.py:check_enough_kv_cache_memory:<raise ValueError", "v1/core/kv_cache_utils.py:_check_enough_kv_cache_memory:<raise ValueError", "v1/core/kv_cache_planning.py:check_enough_kv_cache_memory:<raise ValueError")  # fmt: skip
KV_NONE = (*KV_CACHES, "v1/engine/core.py:EngineCore._initialize_kv_caches:get_kv_cache_config", "v1/core/kv_cache_utils.py:get_kv_cache_configs:check_enough_kv_cache_memory(", "v1/core/kv_cache_utils.py:get_kv_cache_config:check_enough_kv_cache_memory(", "v1/core/kv_cache_utils.py:check_enough_kv_cache_memory:raise ValueError", "v1/core/kv_cache_utils.py:_check_enough_kv_cache_memory:raise ValueError", "v1/core/kv_cache_planning.py:check_enough_kv_cache_memory:raise ValueError")  # fmt: skip
KV_ALLOCATE = (
    *KV_CACHES, "v1/engine/core.py:EngineCore._initialize_kv_caches:self.model_executor.initialize_from_config(", "v1/executor/abstract.py:Executor.initialize_from_config:self.collective_rpc(", *UNIPROC,
    "v1/worker/gpu_worker.py:Worker.initialize_from_config:self.model_runner.initialize_kv_cache(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner.initialize_kv_cache:self.initialize_kv_cache_tensors(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner.initialize_kv_cache_tensors:self._allocate_kv_cache_tensors(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner._allocate_kv_cache_tensors:torch.zeros(",
)  # fmt: skip
WARM_UP = (
    *KV_CACHES,
    "v1/engine/core.py:EngineCore._initialize_kv_caches:self.model_executor.initialize_from_config(",
    "v1/executor/abstract.py:Executor.initialize_from_config:self.collective_rpc(",
    *UNIPROC,
)
CAPTURE = (
    *WARM_UP, "v1/worker/gpu_worker.py:Worker.compile_or_warm_up_model:self.model_runner.capture_model()",
    "v1/worker/gpu_model_runner.py:GPUModelRunner.capture_model:self._capture_cudagraphs(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner._capture_cudagraphs:self._dummy_run(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner._dummy_run:outputs = ",
    "!~/torch/cuda/graphs.py:88:capture_begin:super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)",
)  # fmt: skip
SAMPLER = (
    *WARM_UP,
    "v1/worker/gpu_worker.py:Worker.compile_or_warm_up_model:self.model_runner._dummy_sampler_run(",
    "v1/worker/gpu_model_runner.py:GPUModelRunner._dummy_sampler_run:raise RuntimeError(",
)


def core_place(story: Story) -> str:
    """Where "EngineCore failed to start." is logged."""
    return (
        story.place("v1/engine/core.py", "EngineCore failed to start")
        or story.place("v1/engine/core.py", "EngineCore hit an exception")
        or "core.py:396"
    )


def fail_in_core(
    story: Story,
    frames: tuple[str, ...],
    error: str,
    *,
    proc: str = "core",
    mark: str = "cause",
    again: str = "echo",
    raw: bool = True,
    client: bool = True,
) -> None:
    """The engine core dies of `error`: as records, then raw, then the front end's wrapper."""
    story.wait(1)
    lines = story.frames(*CORE, *frames)
    story.trace(
        lines, error, proc=proc, place=core_place(story), mark=mark, head="EngineCore failed to start."
    )
    if raw:
        _raw_core(story, lines, error, proc, again)
    if client:
        fail_in_client(story)


def _raw_core(story: Story, lines: list[str], error: str, proc: str, mark: str) -> None:
    index = proc.removeprefix("core")
    name = (
        f"EngineCore_{index or 0}"
        if not story.at_least("0.10.2")
        else "EngineCore_DP" + (index or "0")
        if not story.at_least("0.18.0") or story.data_parallel > 1
        else "EngineCore"
    )
    story.raw(f"Process {name}:", proc=proc)
    story.trace(
        [*story.frames(*PROCESS, "v1/engine/core.py:EngineCoreProc.run_engine_core:raise e"), *lines],
        error,
        proc=proc,
        mark=mark,
    )


def fail_in_client(story: Story, *, cores: str = "{}") -> None:
    """The front end's traceback: a wrapper."""
    story.wait(1)
    name = f'  File "{story.site.split("/lib/python", 1)[0]}/bin/vllm", line 10, in <module>'
    head = [name, "    sys.exit(main())", *(["             ^^^^^^"] if "3.12" in story.site else [])]
    text = "Engine core initialization failed. See root cause above."
    if story.at_least("0.9.0"):
        text += f" Failed core proc(s): {cores}"
    story.trace([*head, *story.frames(*SERVE, *CLIENT)], f"RuntimeError: {text}", proc="api")


def leaked(story: Story) -> None:
    """The resource tracker's last words: a wrapper."""
    story.raw(
        f"{story.stdlib}/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be %d '"
    )


WORKER_START = (
    "v1/executor/multiproc_executor.py:WorkerProc.worker_main:worker = WorkerProc(",
    "v1/executor/multiproc_executor.py:WorkerProc.__init__:self.worker.",
)
WORKER_BUSY = (
    "v1/executor/multiproc_executor.py:WorkerProc.worker_busy_loop:output = func(*args, **kwargs)",
)
WAIT_READY = (
    *MODEL_EXECUTOR,
    "v1/executor/multiproc_executor.py:MultiprocExecutor._init_executor:WorkerProc.wait_for_ready(",
    "v1/executor/multiproc_executor.py:WorkerProc.wait_for_ready:raise e from None",
)


def without_core(frames: tuple[str, ...]) -> tuple[str, ...]:
    """The part of a chain that runs inside a worker process."""
    return tuple(
        f for f in frames if not f.startswith(("v1/engine/", "v1/executor/", "executor/", "uniproc"))
    )


def fail_at_worker_start(
    story: Story, rank: int, method: str, frames: tuple[str, ...], error: str, *, mark: str = "cause"
) -> None:
    """A worker dies in its constructor (device, weights)."""
    place = (
        story.place("v1/executor/multiproc_executor.py", "WorkerProc failed to start")
        or "multiproc_executor.py:435"
    )
    start = (WORKER_START[0], f"v1/executor/multiproc_executor.py:WorkerProc.__init__:self.worker.{method}(")
    story.trace(
        story.frames(*start, *without_core(frames)),
        error,
        proc=f"rank{rank}",
        place=place,
        mark=mark,
        head="WorkerProc failed to start.",
    )


def fail_after_worker_start(story: Story) -> None:
    """What the engine core says when a worker did not get ready: a wrapper."""
    text = "WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
    fail_in_core(story, WAIT_READY, f"Exception: {text}", mark="", again="")


def fail_in_worker(
    story: Story, rank: int, frames: tuple[str, ...], error: str, *, mark: str = "cause"
) -> None:
    """A running worker reports an exception of a call; it is printed twice by a defect of vLLM's own."""
    place = (
        story.place("v1/executor/multiproc_executor.py", "WorkerProc hit an exception")
        or "multiproc_executor.py:470"
    )
    story.trace(
        story.frames(*WORKER_BUSY, *without_core(frames)),
        error,
        proc=f"rank{rank}",
        place=place,
        mark=mark,
        head="WorkerProc hit an exception.",
    )


def fail_call(story: Story, method: str, error: str) -> None:
    """The engine core's echo of a worker's exception."""
    shown = error.split(": ", 1)[1]
    frames = (
        *KV_CACHES,
        f"v1/engine/core.py:EngineCore._initialize_kv_caches:self.model_executor.{method}(",
        f"v1/executor/abstract.py:Executor.{method}:self.collective_rpc(",
        "v1/executor/multiproc_executor.py:MultiprocExecutor.collective_rpc:result = get_response(",
        "v1/executor/multiproc_executor.py:MultiprocExecutor.collective_rpc:raise RuntimeError(",
    )
    fail_in_core(
        story,
        frames,
        f"RuntimeError: Worker failed with error '{shown}', please check the stack trace above for the root cause",
        mark="echo",
        again="echo",
    )


def gone(story: Story, number: int = 1) -> list[Line]:
    """The last `number` lines, taken away again."""
    taken = story.lines[-number:]
    del story.lines[-number:]
    return taken


__all__ = [
    "CAPTURE",
    "ENCODER",
    "FORWARD",
    "INIT_DEVICE",
    "KV_ALLOCATE",
    "KV_CHECK",
    "LOAD",
    "MODEL_EXECUTOR",
    "PROFILE",
    "SAMPLER",
    "SAMPLER_PROFILE",
    "fail_in_core",
    "ranks",
]
