"""Out of memory belongs to the phase that its traceback shows, in V0 and in V1."""

import pytest

from fitserve.diagnose.engine import diagnose_lines
from fitserve.facts.line import Line

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB "
    "of which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.65 GiB memory in use."
)
PACKAGE = "/usr/lib/python3/site-packages/vllm"
TREES = [
    (
        "0.2.7 weights",
        "llm_engine._init_workers worker.init_model model_loader.get_model llama.__init__",
        "weights-do-not-fit",
    ),
    (
        "0.2.7 profile",
        "llm_engine._init_cache worker.profile_num_available_blocks model_runner.profile_run model_runner.execute_model",
        "profile-run-oom",
    ),
    (
        "0.2.7 cache",
        "llm_engine._init_cache worker.init_cache_engine cache_engine.__init__ cache_engine.allocate_gpu_cache",
        "kv-allocation-oom",
    ),
    (
        "0.3.3 graphs",
        "worker.warm_up_model model_runner.capture_model model_runner.capture",
        "graph-capture-oom",
    ),
    (
        "0.5.4 profile",
        "gpu_executor.determine_num_available_blocks worker.determine_num_available_blocks model_runner.profile_run model_runner.execute_model sampler.forward",
        "profile-run-oom",
    ),
    (
        "0.6.3 vision",
        "worker.determine_num_available_blocks model_runner.profile_run model_runner.execute_model qwen2_vl.forward qwen2_vl._process_image_input",
        "multimodal-profile-oom",
    ),
    (
        "0.6.6 cache",
        "worker.initialize_cache worker._init_cache_engine cache_engine.__init__ cache_engine._allocate_kv_cache",
        "kv-allocation-oom",
    ),
    (
        "0.6.6 graphs",
        "worker.initialize_cache worker._warm_up_model model_runner.capture_model model_runner.capture",
        "graph-capture-oom",
    ),
    (
        "0.6.6 repack",
        "worker.load_model model_runner.load_model loader.load_model gptq_marlin.process_weights_after_loading",
        "weights-do-not-fit",
    ),
    (
        "0.7.3 serving",
        "engine.run_engine_loop engine.engine_step llm_engine.step worker_base.execute_model model_runner.execute_model sampler.forward",
        "serving-oom",
    ),
    (
        "0.8.5 weights",
        "gpu_worker.load_model gpu_model_runner.load_model __init__.get_model llama.__init__ linear.create_weights",
        "weights-do-not-fit",
    ),
    (
        "0.8.5 profile",
        "core._initialize_kv_caches gpu_worker.determine_available_memory gpu_model_runner.profile_run gpu_model_runner._dummy_run llama.forward",
        "profile-run-oom",
    ),
    (
        "0.9.2 sampler",
        "gpu_worker.determine_available_memory gpu_model_runner.profile_run gpu_model_runner._dummy_sampler_run sampler.forward",
        "sampler-warmup-oom",
    ),
    (
        "0.10.2 cache",
        "core._initialize_kv_caches gpu_worker.initialize_from_config gpu_model_runner.initialize_kv_cache gpu_model_runner._allocate_kv_cache_tensors",
        "kv-allocation-oom",
    ),
    (
        "0.11.0 graphs",
        "gpu_worker.compile_or_warm_up_model gpu_model_runner.capture_model gpu_model_runner._capture_cudagraphs gpu_model_runner._dummy_run",
        "graph-capture-oom",
    ),
    (
        "0.12.0 vision",
        "gpu_worker.determine_available_memory gpu_model_runner.profile_run qwen2_5_vl.embed_multimodal qwen2_5_vl._process_video_input",
        "multimodal-profile-oom",
    ),
    (
        "0.19.0 estimate",
        "gpu_worker.determine_available_memory gpu_model_runner.profile_cudagraph_memory gpu_model_runner._dummy_run",
        "profile-run-oom",
    ),
    (
        "0.24.0 kernels",
        "gpu_worker.compile_or_warm_up_model kernel_warmup.kernel_warmup gpu_model_runner._dummy_run",
        "graph-capture-oom",
    ),
    (
        "0.30.0 serving",
        "core.run_busy_loop core._process_engine_step core.step gpu_worker.execute_model gpu_model_runner.execute_model",
        "serving-oom",
    ),
    (
        "0.33.0 device",
        "gpu_worker.init_device gpu_worker.init_worker_distributed_environment parallel_state.init_distributed_environment",
        "gpu-memory-taken",
    ),
]


def traceback_of(calls: str) -> list[str]:
    """A traceback through these ``file.function`` calls, ending in an out-of-memory."""
    lines = ["Traceback (most recent call last):"]
    for call in calls.split():
        file, function = call.split(".")
        lines += [f'  File "{PACKAGE}/{file}.py", line 1, in {function}', "    self.go_on()"]
    return [*lines, OOM]


@pytest.mark.parametrize(("calls", "cause"), [tree[1:] for tree in TREES], ids=[tree[0] for tree in TREES])
def test_frames_decide(calls: str, cause: str) -> None:
    """The frames of a traceback name the phase, whatever else the log shows."""
    lines = [Line(number=number, text=text) for number, text in enumerate(traceback_of(calls), start=1)]

    assert cause == diagnose_lines(lines).cause


@pytest.mark.parametrize(
    ("last_seen", "cause"),
    [
        ("Starting to load model org/m...", "weights-do-not-fit"),
        ("Model loading took 14.99 GiB memory and 3.7 seconds", "profile-run-oom"),
        ("Available KV cache memory: 4.97 GiB", "kv-allocation-oom"),
        ("Capturing cudagraphs for decoding. This may lead to unexpected consequences", "graph-capture-oom"),
        ("Graph capturing finished in 12 secs, took 0.52 GiB", "sampler-warmup-oom"),
        ("Application startup complete.", "serving-oom"),
    ],
)
def test_progress_decides_without_frames(last_seen: str, cause: str) -> None:
    """Where no traceback shows a phase, the last line of progress does."""
    texts = ["vLLM API server version 0.19.0", last_seen, OOM]
    lines = [Line(number=number, text=text) for number, text in enumerate(texts, start=1)]

    assert cause == diagnose_lines(lines).cause


def test_frames_may_follow() -> None:
    """An out-of-memory that is logged before its traceback takes the frames that follow."""
    texts = [
        "vLLM API server version 0.6.6",
        OOM.removeprefix("torch.OutOfMemoryError: "),
        *traceback_of(TREES[7][1]),
    ]
    lines = [Line(number=number, text=text) for number, text in enumerate(texts, start=1)]

    found = diagnose_lines(lines)

    assert ("graph-capture-oom", 2) == (found.cause, found.line)


def test_quoted_code_is_no_message() -> None:
    """A message that stands in the code of a frame is quoted, not printed."""
    texts = [
        "vLLM API server version 0.8.5",
        "Traceback (most recent call last):",
        f'  File "{PACKAGE}/v1/core/kv_cache_utils.py", line 527, in check_enough_kv_cache_memory',
        '    raise ValueError("No available memory for the cache blocks. "',
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    lines = [Line(number=number, text=text) for number, text in enumerate(texts, start=1)]

    assert "wrapper-only" == diagnose_lines(lines).cause
