"""Read from vLLM's own sources where each line and each traceback of the simulated engine stands, by release.

``python bench/_read_sources.py FOLDER`` with unpacked wheels (``FOLDER/0.19.0/vllm/...``) writes the simulator's table of places.
"""

import ast
import json
import re
import sys
from pathlib import Path

RELEASES = ("0.6.6", "0.8.5", "0.10.2", "0.12.0", "0.19.0", "0.24.0", "0.32.0")
TABLE = Path(__file__).parents[1] / "src" / "fitserve" / "simulator" / "data" / "places.json"

LINES = {
    "banner": ("entrypoints/**/*.py", r"vLLM API server version|version %s%s|█▄█▀"),
    "args": ("entrypoints/**/*.py", r"non-default args"),
    "architecture": ("config/model.py transformers_utils/*.py config/*.py", r"Resolved architecture"),
    "max_len": ("config/model.py config/*.py", r"Using max model len"),
    "chunked": ("config/scheduler.py config/*.py config.py", r"Chunked prefill is enabled with"),
    "engine": ("v1/engine/core.py", r"Initializing a V1 LLM engine"),
    "engine_v0": ("engine/llm_engine.py", r"Initializing an LLM engine \(v"),
    "load_v0": ("worker/model_runner.py", r"Starting to load model"),
    "model_took_v0": ("worker/model_runner.py", r"Loading model weights took"),
    "profiled_v0": ("worker/worker.py", r"logger.info\(msg\)"),
    "blocks_v0": ("executor/gpu_executor.py", r"# GPU blocks"),
    "concurrency_v0": ("executor/gpu_executor.py", r"Maximum concurrency"),
    "capturing_v0": ("worker/model_runner.py", r"Capturing cudagraphs for decoding"),
    "captured_v0": ("worker/model_runner.py", r"Graph capturing finished"),
    "init_took_v0": ("engine/llm_engine.py", r"init engine \(profile"),
    "failed_v0": ("engine/multiprocessing/engine.py", r"logger.exception\(e\)"),
    "fatal_v0": ("engine/multiprocessing/engine.py", r"logger.exception\(repr"),
    "throughput_v0": ("engine/metrics.py", r"Avg prompt throughput"),
    "world": ("distributed/parallel_state.py", r"is assigned as DP rank|rank %s in world size"),
    "load": ("v1/worker/gpu/model_runner.py v1/worker/gpu_model_runner.py", r"Starting to load model"),
    "weights_took": (
        "model_executor/model_loader/default_loader.py model_executor/model_loader/loader.py",
        r"Loading weights took",
    ),
    "model_took": ("v1/worker/gpu/model_runner.py v1/worker/gpu_model_runner.py", r"Model loading took"),
    "dynamo": ("compilation/backends.py", r"Dynamo bytecode transform time"),
    "compile": (
        "compilation/monitor.py",
        r"torch.compile takes|logger.info_once\(message|logger.info_once\($|logger.info\($",
    ),
    "available": ("v1/worker/gpu_worker.py", r"Available KV cache memory"),
    "estimate": (
        "v1/worker/gpu/model_runner.py v1/worker/gpu_model_runner.py",
        r"Estimated CUDA graph memory",
    ),
    "estimate_on": ("v1/worker/gpu_worker.py", r"CUDA graph memory profiling is enabled"),
    "estimate_soon": ("v1/worker/gpu_worker.py", r"In v0.19, CUDA graph memory profiling"),
    "reserved": (
        "v1/worker/gpu_worker.py",
        r"nitial free memory .* reserved|Initial free memory|initial free memory",
    ),
    "kv_size": ("v1/core/kv_cache_utils.py", r"KV cache size: %s tokens"),
    "concurrency": ("v1/core/kv_cache_utils.py", r"Maximum concurrency for"),
    "override": ("v1/core/kv_cache_utils.py", r"Overriding num_gpu_blocks"),
    "auto_reduced": ("v1/core/kv_cache_utils.py", r"Auto-fit max_model_len: reduced"),
    "auto_full": ("v1/core/kv_cache_utils.py", r"Auto-fit max_model_len: full"),
    "encoder": ("v1/worker/gpu_model_runner.py", r"Encoder cache will be initialized"),
    "captured": ("v1/worker/gpu/model_runner.py v1/worker/gpu_model_runner.py", r"Graph capturing finished"),
    "graph_pool": ("v1/worker/gpu_worker.py", r"CUDA graph pool memory"),
    "init_took": ("v1/engine/core.py", r"init engine \(profile"),
    "starting": ("entrypoints/**/*.py", r"Starting vLLM (API )?server (%d )?on"),
    "routes": ("entrypoints/launcher.py entrypoints/**/*.py", r"Available routes are"),
    "route": ("entrypoints/launcher.py entrypoints/**/*.py", r"Route: %s, Methods"),
    "throughput": ("v1/metrics/loggers.py", r"Avg prompt throughput"),
    "failed": ("v1/engine/core.py", r"EngineCore failed to start"),
    "fatal": ("v1/engine/core.py", r"EngineCore encountered a fatal error"),
    "worker_failed": ("v1/executor/multiproc_executor.py", r"WorkerProc failed to start"),
    "worker_exception": ("v1/executor/multiproc_executor.py", r"WorkerProc hit an exception"),
    "worker_died": ("v1/executor/multiproc_executor.py", r"died unexpectedly"),
    "core_died": ("v1/engine/core_client.py v1/engine/utils.py", r"died unexpectedly"),
    "dead": ("v1/engine/async_llm.py", r"AsyncLLM output_handler failed"),
}

CORE = "v1/engine/core.py"
ABSTRACT = "v1/executor/abstract.py executor/executor_base.py"
UNIPROC = "v1/executor/uniproc_executor.py executor/uniproc_executor.py"
WORKER = "v1/worker/gpu_worker.py"
RUNNER = "v1/worker/gpu_model_runner.py"
KV = "v1/core/kv_cache_utils.py"
API = "entrypoints/launchers/api_server/entry.py entrypoints/openai/api_server.py"
MULTI = "v1/executor/multiproc_executor.py"
_TOP = [
    (CORE, r"engine_core = EngineCoreProc\("),
    (CORE, r"super\(\).__init__\(vllm_config|super\(\).__init__\($"),
]
_INIT = [
    *_TOP,
    (CORE, r"self.model_executor = executor_class"),
    (ABSTRACT, r"self._init_executor\(\)"),
]
_KV_INIT = [*_TOP, (CORE, r"self._initialize_kv_caches\($|= self._initialize_kv_caches\(")]
_WORK = [(UNIPROC, r"run_method\(self.driver_worker")]
V0 = [
    ("engine/multiprocessing/engine.py", r"engine = MQLLMEngine.from_engine_args\("),
    ("engine/multiprocessing/engine.py", r"return cls\(ipc_path=ipc_path"),
    ("engine/multiprocessing/engine.py", r"self.engine = LLMEngine\("),
]
FRAMES = {
    "v0_init": [
        *V0,
        ("engine/llm_engine.py", r"self.model_executor = executor_class\("),
        ("executor/executor_base.py", r"self._init_executor\(\)"),
    ],
    "v0_kv": [*V0, ("engine/llm_engine.py", r"self._initialize_kv_caches\(\)$")],
    "v0_load": [
        ("executor/gpu_executor.py", r"self.driver_worker.load_model\(\)"),
        ("worker/worker.py", r"self.model_runner.load_model\(\)"),
        ("worker/model_runner.py", r"self.model = get_model\("),
    ],
    "v0_profile": [
        ("engine/llm_engine.py", r"self.model_executor.determine_num_available_blocks\(\)"),
        ("executor/gpu_executor.py", r"return self.driver_worker.determine_num_available_blocks\(\)"),
        ("worker/worker.py", r"self.model_runner.profile_run\(\)"),
        ("worker/model_runner.py", r"self.execute_model\(model_input, kv_caches"),
    ],
    "v0_check": [
        ("engine/llm_engine.py", r"self.model_executor.initialize_cache\(num_gpu_blocks"),
        ("executor/gpu_executor.py", r"self.driver_worker.initialize_cache\("),
        ("worker/worker.py", r"^        raise_if_cache_size_invalid\("),
    ],
    "v0_none": [("worker/worker.py", r"No available memory for the cache")],
    "v0_small": [("worker/worker.py", r"The model's max seq len")],
    "v0_allocate": [
        ("engine/llm_engine.py", r"self.model_executor.initialize_cache\(num_gpu_blocks"),
        ("executor/gpu_executor.py", r"self.driver_worker.initialize_cache\("),
        ("worker/worker.py", r"self._init_cache_engine\(\)$"),
        ("worker/cache_engine.py", r"torch.zeros\("),
    ],
    "v0_capture": [
        ("engine/llm_engine.py", r"self.model_executor.initialize_cache\(num_gpu_blocks"),
        ("executor/gpu_executor.py", r"self.driver_worker.initialize_cache\("),
        ("worker/worker.py", r"self._warm_up_model\(\)$"),
        ("worker/worker.py", r"self.model_runner.capture_model\(self.gpu_cache\)"),
        ("worker/model_runner.py", r"graph_runner.capture\("),
    ],
    "v0_api": [
        ("entrypoints/openai/api_server.py", r"async with build_async_engine_client\("),
        ("entrypoints/openai/api_server.py", r"async with build_async_engine_client_from_engine_args\("),
        ("entrypoints/openai/api_server.py", r"Engine process failed to start. See stack"),
    ],
    "engine_init": _INIT,
    "engine_kv": _KV_INIT,
    "uniproc_device": [(UNIPROC, r"self.driver_worker.init_device\(\)|collective_rpc\(.init_device")],
    "uniproc_load": [(UNIPROC, r"self.driver_worker.load_model\(\)|collective_rpc\(.load_model")],
    "multi_init": [
        (MULTI, r"self.workers = WorkerProc.wait_for_ready|WorkerProc.wait_for_ready\("),
        (MULTI, r"raise e from None"),
    ],
    "worker_init": [(MULTI, r"worker = WorkerProc\(")],
    "worker_device": [(MULTI, r"self.worker.init_device\(\)")],
    "worker_load": [(MULTI, r"self.worker.load_model\(")],
    "worker_busy": [(MULTI, r"output = func\(\*args, \*\*kwargs\)|output = func\(")],
    "device": [
        (WORKER, r"request_memory\(init_snapshot|self.requested_memory = request_memory|raise ValueError\($")
    ],
    "load": [
        (WORKER, r"self.model_runner.load_model\("),
        (
            "v1/worker/gpu/model_runner.py " + RUNNER,
            r"self.model = (model or )?(model_loader.load_model|get_model)\(",
        ),
        (
            "model_executor/model_loader/base_loader.py model_executor/model_loader/loader.py",
            r"model = (initialize_model|_initialize_model)\(",
        ),
        (
            "model_executor/model_loader/utils.py model_executor/model_loader/loader.py",
            r"return model_class\(|model = model_class\(",
        ),
        ("model_executor/models/llama.py", r"self.model = self._init_model\("),
        ("model_executor/layers/linear.py", r"self.quant_method.create_weights\($"),
        ("model_executor/layers/linear.py", r"torch.empty\($|torch.empty\(sum"),
    ],
    "determine": [
        (CORE, r"self.model_executor.determine_available_memory\(\)"),
        (ABSTRACT, r"collective_rpc\(.determine_available_memory"),
    ],
    "profile": [
        (WORKER, r"self.model_runner.profile_run\(\)"),
        (RUNNER, r"= self._dummy_run\($|self._dummy_run\(self.max_num_tokens"),
        (RUNNER, r"outputs = self.model\($|outputs = model\("),
    ],
    "images": [
        (WORKER, r"self.model_runner.profile_run\(\)"),
        (RUNNER, r"self.model.(get_multimodal_embeddings|embed_multimodal)\(", "profile_run"),
        ("model_executor/models/mistral3.py", r"self.vision_tower\("),
        ("model_executor/models/pixtral.py", r"out = self.transformer\($"),
    ],
    "sampler": [
        (WORKER, r"self.model_runner._dummy_sampler_run\("),
        (RUNNER, r"CUDA out of memory occurred when warming up sampler"),
    ],
    "sampling": [(RUNNER, r"sampler_output = self.sampler\(", "_dummy_sampler_run")],
    "changed": [
        (WORKER, r"assert self.init_snapshot.free_memory|assert self.init_gpu_memory|assert init_free_memory")
    ],
    "kv_check": [
        (CORE, r"get_kv_cache_configs?\($"),
        (KV, r"^\s+_?check_enough_kv_cache_memory\("),
    ],
    "kv_none": [(KV, r"raise ValueError\(.?No available memory|No available memory")],
    "kv_small": [(KV, r"To serve at least one request")],
    "kv_auto": [(KV, r"Cannot auto-fit")],
    "initialize": [
        (CORE, r"self.model_executor.initialize_from_config\("),
        (ABSTRACT, r"collective_rpc\(.initialize_from_config"),
    ],
    "warm": [
        (CORE, r"self.model_executor.initialize_from_config\("),
        (ABSTRACT, r"collective_rpc\(.compile_or_warm_up_model"),
    ],
    "kv_alloc": [
        (WORKER, r"self.model_runner.initialize_kv_cache\("),
        (RUNNER, r"kv_caches = self.initialize_kv_cache_tensors\($|self.initialize_kv_cache_tensors\("),
        (
            RUNNER,
            r"tensor = torch.zeros\($|torch.zeros\(kv_cache_tensor.size|torch.zeros\(tensor_config.size",
        ),
    ],
    "capture": [
        (WORKER, r"self.model_runner.capture_model\(\)"),
        (RUNNER, r"self._capture_cudagraphs\(|self._dummy_run\(num_tokens"),
        (
            "compilation/cuda_graph.py compilation/cuda_piecewise_backend.py",
            r"with torch.cuda.graph\($|output = self.runnable\(",
        ),
    ],
    "state": [
        (RUNNER, r"self.cudagraph_dispatcher.initialize|resolve_cudagraph_mode_and_sizes\("),
        ("config/compilation.py", r"exceeds available Mamba cache blocks"),
    ],
    "api": [
        ("entrypoints/cli/serve.py", r"uvloop.run\(run_server"),
        (API, r"await run_server_worker\("),
        (API, r"async with build_async_engine_client\("),
        (API, r"async with build_async_engine_client_from_engine_args\("),
    ],
    "api_engine": [
        (API, r"async_llm = AsyncLLM.from_vllm_config\("),
        ("v1/engine/async_llm.py", r"self.engine_core = EngineCoreClient"),
        ("v1/engine/core_client.py", r"return AsyncMPClient\("),
        (
            "v1/engine/utils.py v1/engine/core_client.py",
            r"wait_for_engine_startup\($|self._wait_for_engine_startup\(",
        ),
        ("v1/engine/utils.py v1/engine/core_client.py", r"Engine core initialization failed"),
    ],
    "api_config": [
        (API, r"vllm_config = engine_args.create_engine_config\("),
        ("engine/arg_utils.py", r"config = VllmConfig\("),
    ],
    "api_model_config": [
        (API, r"vllm_config = engine_args.create_engine_config\("),
        ("engine/arg_utils.py", r"model_config = self.create_model_config\(\)"),
        ("engine/arg_utils.py", r"return ModelConfig\("),
    ],
    "execute": [
        (CORE, r"engine_core.run_busy_loop\(\)"),
        (CORE, r"self._process_engine_step\(\)"),
        (CORE, r"outputs, model_executed = self.step_fn\(\)|self.step_fn\(\)"),
        (WORKER, r"self.model_runner.execute_model\("),
    ],
}


def candidates(root: Path, patterns: str) -> list[Path]:
    """The files of one release, the first named first."""
    return [path for pattern in patterns.split() for path in sorted(root.glob(pattern))]


def find_line(root: Path, patterns: str, regex: str) -> str | None:
    """``file.py:LINE`` of the logging call whose text matches."""
    for path in candidates(root, patterns):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if re.search(regex, line):
                start = next(
                    (back for back in range(number, max(number - 14, -1), -1) if "logger." in lines[back]),
                    None,
                )
                if start is not None:
                    return f"{path.name}:{start + 1}"
    return None


def find_frame(root: Path, patterns: str, regex: str, function: str = "") -> list[object] | None:
    """Path, line, function and text of the first line that matches, in a function of that name where one is given."""
    for path in candidates(root, patterns):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for number, line in enumerate(lines, start=1):
            if re.search(regex, line) and not line.strip().startswith(("#", "def ")):
                if function and function_of(text, number) != function:
                    continue
                start = number
                if not re.search(r"[=(]", line) or 'f"' in line or line.strip().startswith('"'):
                    start = next(
                        (back for back in range(number, number - 14, -1) if "raise " in lines[back - 1]),
                        number,
                    )
                return [
                    f"vllm/{path.relative_to(root)}",
                    start,
                    function_of(text, start),
                    lines[start - 1].strip(),
                ]
    return None


def function_of(text: str, line: int) -> str:
    """The innermost function around a line."""
    name, size = "<module>", 1 << 30
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (
            node.end_lineno or 0
        ):
            length = (node.end_lineno or 0) - node.lineno
            if length < size:
                name, size = node.name, length
    return name


def main() -> int:
    """Write the table."""
    table: dict[str, dict[str, object]] = {}
    for release in RELEASES:
        root = Path(sys.argv[1]) / release / "vllm"
        found = {key: find_line(root, *spec) for key, spec in LINES.items()}
        frames = {
            key: [frame for spec in specs if (frame := find_frame(root, *spec))]
            for key, specs in FRAMES.items()
        }
        table[release] = {"lines": {k: v for k, v in found.items() if v}, "frames": frames}
        print(
            release,
            "missing:",
            [k for k, v in found.items() if not v],
            {k: len(v) - len(FRAMES[k]) for k, v in frames.items() if len(v) < len(FRAMES[k])},
        )
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
