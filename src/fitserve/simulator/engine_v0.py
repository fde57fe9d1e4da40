"""The engine of V0: one process that loads, profiles, allocates and captures, and workers that only hold their share (o: processes).

Source: ``engine/multiprocessing/engine.py``, ``engine/llm_engine.py``, ``worker/worker.py``, ``executor/gpu_executor.py`` of vLLM 0.6.6.
"""

import os
import signal
import sys

import msgspec

from fitserve.simulator import words
from fitserve.simulator.machine import hold
from fitserve.simulator.play import Play, StartFailed, judge
from fitserve.simulator.settings import GIB
from fitserve.simulator.start import Start
from fitserve.simulator.voice import Voice, traceback

_CHUNK = 64 << 20
_FRAMES = {
    "gpu-memory-taken": ("v0_init",),
    "weights-do-not-fit": ("v0_init", "v0_load"),
    "profile-run-oom": ("v0_kv", "v0_profile"),
    "multimodal-profile-oom": ("v0_kv", "v0_profile"),
    "no-kv-cache-blocks": ("v0_kv", "v0_check", "v0_none"),
    "kv-cache-smaller-than-context": ("v0_kv", "v0_check", "v0_small"),
    "kv-cache-pinned-too-small": ("v0_kv", "v0_check", "v0_small"),
    "kv-allocation-oom": ("v0_kv", "v0_allocate"),
    "graph-capture-oom": ("v0_kv", "v0_capture"),
}


def run_engine_v0(play: Play, ready: int, life: int) -> None:
    """The engine process' life: start, tell ``ready`` what it has, stay until ``life`` is closed; never returns."""
    voice = Voice(play.settings.version, "Engine")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        start = _bring_up(play, voice)
    except StartFailed as failed:
        lines = traceback(voice.frames(*failed.frames), failed.error)
        voice.exception("failed_v0", failed.error.partition(": ")[2], lines)
        voice.raw("\n".join(["Process SpawnProcess-1:", *lines]))
        sys.stdout.flush()
        os._exit(1)
    os.write(ready, msgspec.json.encode(start))
    os.close(ready)
    while os.read(life, 1):
        pass
    os._exit(0)


def _bring_up(play: Play, voice: Voice) -> Start:
    settings = play.settings
    voice.log(
        "engine_v0",
        f"Initializing an LLM engine (v{settings.version}) with config: model='{play.place}', speculative_config=None, "
        f"tokenizer='{play.place}', dtype=torch.{settings.dtype}, max_seq_len={settings.max_model_len}, "
        f"tensor_parallel_size={settings.tensor_parallel_size}, quantization={settings.quantization}, "
        f"enforce_eager={settings.enforce_eager}, kv_cache_dtype={settings.kv_cache_dtype}, device_config=cuda, seed=0",
    )
    play.wait(3)
    start = judge(play)
    base = start.needs.context
    _stop_at(start, "gpu-memory-taken")
    for step in ("device", "load", "profile"):
        fault = play.fault(step)
        if fault is not None or (step == "device" and play.refusal is not None):
            error = fault.error if fault else play.refusal.last_line if play.refusal else ""
            raise StartFailed(error, ("v0_init",), step)
    _hold(play, base)
    voice.log("load_v0", f"Starting to load model {play.place}...")
    play.wait(start.needs.weights / (2.5 * GIB))
    _stop_at(start, "weights-do-not-fit")
    _hold(play, base + start.needs.weights)
    voice.raw("\rLoading safetensors checkpoint shards: 100% Completed | 1/1 [00:06<00:00,  1.65s/it]")
    voice.log("model_took_v0", f"Loading model weights took {start.needs.weights / GIB:.4f} GB")
    _stop_at(start, "multimodal-profile-oom", "profile-run-oom")
    play.wait(6)
    _tell_memory(start, voice)
    base += start.needs.weights + start.needs.non_torch
    _stop_at(start, "no-kv-cache-blocks", "kv-cache-smaller-than-context", "kv-cache-pinned-too-small")
    _stop_at(start, "kv-allocation-oom")
    base += start.blocks * start.pool.block_bytes
    _hold(play, base)
    _capture(start, voice)
    play.wait(17)
    _stop_at(start, "graph-capture-oom")
    _hold(play, base + start.needs.graphs)
    if start.needs.graphs:
        voice.log(
            "captured_v0", f"Graph capturing finished in 17 secs, took {start.needs.graphs / GIB:.2f} GiB"
        )
    voice.log("init_took_v0", "init engine (profile, create kv cache, warmup model) took 26.30 seconds")
    return start


def _hold(play: Play, size: int) -> None:
    """The driver holds its own device's share, and that of the workers' devices, whose processes print nothing here."""
    hold(play.folder, dict.fromkeys(play.devices, size), name="python3")


def _tell_memory(start: Start, voice: Voice) -> None:
    settings, needs = start.settings, start.needs
    voice.log(
        "profiled_v0",
        "Memory profiling takes 6.23 seconds\nthe current vLLM instance can use total_gpu_memory "
        f"({start.total_bytes / GIB:.2f}GiB) x gpu_memory_utilization ({settings.gpu_memory_utilization:.2f}) = "
        f"{start.requested_bytes / GIB:.2f}GiB\nmodel weights take {needs.weights / GIB:.2f}GiB; non_torch_memory takes "
        f"{needs.non_torch / GIB:.2f}GiB; PyTorch activation peak memory takes {needs.activation / GIB:.2f}GiB; the rest of the "
        f"memory reserved for KV Cache is {start.available_bytes / GIB:.2f}GiB.",
    )
    swap = (4 << 30) // start.pool.block_bytes
    voice.log("blocks_v0", f"# GPU blocks: {start.blocks}, # CPU blocks: {swap}")
    length = start.max_model_len
    concurrency = start.pool.concurrency(start.blocks, length)
    voice.log("concurrency_v0", f"Maximum concurrency for {length} tokens per request: {concurrency:.2f}x")


def _capture(start: Start, voice: Voice) -> None:
    if start.settings.captures:
        voice.log(
            "capturing_v0",
            "Capturing cudagraphs for decoding. This may lead to unexpected consequences if the model is not static. To run the model "
            "in eager mode, set 'enforce_eager=True' or use '--enforce-eager' in the CLI. If out-of-memory error occurs during "
            "cudagraph capture, consider decreasing `gpu_memory_utilization` or switching to eager mode. You can also reduce the "
            "`max_num_seqs` as needed to decrease memory usage.",
        )


def _stop_at(start: Start, *causes: str) -> None:
    """Raise where the start ends of one of these."""
    cause = start.cause
    if cause not in causes or cause is None:
        return
    if cause == "no-kv-cache-blocks":
        error = words.no_blocks(start.settings.version)
    elif cause.startswith("kv-cache"):
        stored = start.blocks * start.pool.block_size
        error = (
            f"ValueError: The model's max seq len ({start.max_model_len}) is larger than the maximum number of tokens that can be stored "
            f"in KV cache ({stored}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        )
    else:
        own = start.free[start.rank]
        chunk = max(start.asked_bytes // 4, _CHUNK) if cause == "profile-run-oom" else _CHUNK
        error = words.out_of_memory(
            start,
            chunk,
            held=max(own - min(_CHUNK // 3, chunk * 2 // 3), 0),
            torch_held=own - start.needs.context,
        )
    raise StartFailed(error, _FRAMES[cause], cause)
