"""Out of memory: which phase it was, from the traceback or from how far the start had come.

Source: the call trees of vLLM 0.2.0 to 0.33.0 (``worker/worker.py``, ``worker/model_runner.py``, ``worker/cache_engine.py``
of V0; ``v1/worker/gpu_worker.py``, ``v1/worker/gpu_model_runner.py`` of V1).
"""

from fitserve.diagnose.boot import Hit

_SAMPLER = {
    "_dummy_sampler_run",
    "_dummy_pooler_run",
    "_dummy_pooler_run_task",
    "profile_sampler",
    "warmup_sampler",
}
_ENCODER = {
    "embed_multimodal",
    "get_multimodal_embeddings",
    "_execute_mm_encoder",
    "_process_image_input",
    "_process_video_input",
    "_process_audio_input",
    "_image_pixels_to_features",
    "_process_image_pixels",
    "get_image_features",
    "get_video_features",
    "get_audio_features",
    "profile_encoder",
    "profile_multimodal",
}
_ENCODER_FILES = (
    "vit.py",
    "vision.py",
    "siglip.py",
    "clip.py",
    "_vision.py",
    "whisper.py",
    "_audio.py",
    "_vit.py",
)
_GRAPHS = {
    "capture_model",
    "_capture_cudagraphs",
    "_capture_model",
    "capture",
    "capture_graph",
    "capture_graphs",
    "capture_begin",
    "_capture_cudagraph",
    "capture_cudagraphs",
}
_GRAPH_FILES = ("/compilation/cuda_graph.py", "/torch/cuda/graphs.py")
_FORWARD = {"forward", "_dummy_run", "apply"}
_KV_TENSORS = {
    "_allocate_kv_cache_tensors",
    "initialize_kv_cache_tensors",
    "initialize_kv_cache",
    "_allocate_kv_cache",
    "allocate_kv_cache",
    "allocate_gpu_cache",
    "_init_cache_engine",
    "init_cache_engine",
    "init_kv_cache",
}
_PROFILE = {
    "profile_run",
    "determine_available_memory",
    "determine_num_available_blocks",
    "profile_num_available_blocks",
    "profile_cudagraph_memory",
    "_profile_run",
}
_WARM_UP = {"compile_or_warm_up_model", "kernel_warmup", "_warm_up_model", "warm_up_model", "warmup_kernels"}
_LOAD = {
    "load_model",
    "get_model",
    "initialize_model",
    "_initialize_model",
    "load_weights",
    "process_weights_after_loading",
    "create_weights",
    "_init_model",
    "init_model",
}
_DEVICE = {
    "init_device",
    "init_worker_distributed_environment",
    "_init_distributed_environment",
    "init_distributed_environment",
}
_SERVE = {
    "execute_model",
    "execute_model_async",
    "sample_tokens",
    "engine_step",
    "step",
    "step_async",
    "run_engine_loop",
    "run_busy_loop",
    "_process_engine_step",
    "step_with_batch_queue",
    "run_engine",
}
_BY_PHASE = {
    "config": "weights-do-not-fit",
    "weights": "weights-do-not-fit",
    "profiling": "profile-run-oom",
    "kv_cache": "kv-allocation-oom",
    "graph_capture": "graph-capture-oom",
    "warmup": "sampler-warmup-oom",
    "serving": "serving-oom",
}


def oom_cause(hit: Hit) -> str:
    """The cause that an out-of-memory line is."""
    functions = {frame.rpartition(":")[2] for frame in hit.frames}
    files = {frame.rpartition(":")[0] for frame in hit.frames}
    by_frames = _start_up_cause(functions, files, hit.phase)
    if hit.ready:
        return "serving-oom"
    if by_frames:
        return by_frames
    if functions & _SERVE:
        return "serving-oom"
    if hit.phase == "config" and functions & _FORWARD:
        return "profile-run-oom"
    return _BY_PHASE[hit.phase]


def _start_up_cause(functions: set[str], files: set[str], phase: str) -> str | None:
    if functions & _SAMPLER:
        return "sampler-warmup-oom"
    if functions & _PROFILE or (functions & _ENCODER and not functions & _SERVE):
        in_encoder = functions & _ENCODER or any(name.endswith(_ENCODER_FILES) for name in files)
        return "multimodal-profile-oom" if in_encoder else "profile-run-oom"
    late = "sampler-warmup-oom" if phase == "warmup" else "graph-capture-oom"
    calls = (
        (_GRAPHS, "graph-capture-oom"),
        (_KV_TENSORS, "kv-allocation-oom"),
        (_WARM_UP, late),
        (_LOAD, "weights-do-not-fit"),
        (_DEVICE, "gpu-memory-taken"),
    )
    if any(name.endswith(_GRAPH_FILES) for name in files):
        return "graph-capture-oom"
    return next((cause for names, cause in calls if functions & names), None)
