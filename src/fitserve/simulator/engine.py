"""The engine core: a process that brings its ranks up as vLLM does, or fails as it does (o: processes).

Source: ``v1/engine/core.py`` and ``v1/core/kv_cache_utils.py`` of vLLM 0.8.5 to 0.32.0.
"""

import os
import signal
import sys

import msgspec

from fitserve.simulator import words
from fitserve.simulator.play import Play, StartFailed, foreign_bytes, judge, meet_silent_faults
from fitserve.simulator.releases import at_least
from fitserve.simulator.start import Start, would_start
from fitserve.simulator.team import Solo, Workers, traceback_of
from fitserve.simulator.voice import Voice, gib

_STEP_FRAMES = {
    "device": ("engine_init", "uniproc_device"),
    "load": ("engine_init", "uniproc_load"),
    "profile": ("engine_kv", "determine"),
    "allocate": ("engine_kv", "initialize"),
    "capture": ("engine_kv", "warm"),
}


def run_engine(play: Play, ready: int, life: int) -> None:
    """The engine core's life: start, tell ``ready`` what it has, stay until ``life`` is closed; never returns.

    Args:
        play: what it is about.
        ready: a pipe to write to; closed without a word where the start fails.
        life: a pipe whose end means that the API server is gone.
    """
    voice = Voice(play.settings.version, "EngineCore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        start = _bring_up(play, voice, ready)
    except StartFailed as failed:
        _tell_failure(voice, failed)
        os._exit(1)
    os.write(ready, msgspec.json.encode(start))
    os.close(ready)
    while os.read(life, 1):
        pass
    os._exit(0)


def _bring_up(play: Play, voice: Voice, ready: int) -> Start:
    settings = play.settings
    voice.log(
        "engine",
        f"Initializing a V1 LLM engine (v{settings.version}) with config: model='{play.place}', speculative_config=None, "
        f"tokenizer='{play.place}', skip_tokenizer_init=False, tokenizer_mode=auto, revision=None, dtype=torch.{settings.dtype}, "
        f"max_seq_len={settings.max_model_len}, load_format=auto, tensor_parallel_size={settings.tensor_parallel_size}, "
        f"pipeline_parallel_size={settings.pipeline_parallel_size}, quantization={settings.quantization}, "
        f"enforce_eager={settings.enforce_eager}, kv_cache_dtype={settings.kv_cache_dtype}, device_config=cuda, seed=0, "
        f"served_model_name={play.place}, enable_prefix_caching={settings.prefix_caching}, "
        f"enable_chunked_prefill={settings.chunked_prefill}",
    )
    play.wait(3)
    start = judge(play)
    team: Solo | Workers = Solo(play, voice) if settings.world_size == 1 else Workers(play, voice, ready)
    team.step("device", start)
    team.step("load", start)
    meet_silent_faults(play, voice)
    before = foreign_bytes(play)
    team.step("profile", start)
    change = before - foreign_bytes(play)
    if change > 0:
        start = would_start(
            play.model, settings, play.machine.device, start.free, play.machine.seed, change=change
        )
        if start.cause == "gpu-memory-changed-while-profiling":
            team.step("profile", start)
    team.step("measure", start)
    _check_cache(play, voice, start)
    team.step("allocate", start)
    team.step("capture", start)
    took = "s" if at_least(settings.version, "0.20.0") else "seconds"
    voice.log("init_took", f"init engine (profile, create kv cache, warmup model) took 38.27 {took}")
    return start


def _check_cache(play: Play, voice: Voice, start: Start) -> None:
    """The engine's own check, and the lines of the cache."""
    version, settings = start.settings.version, start.settings
    if settings.max_model_len == -1:
        if start.cause == "no-kv-cache-blocks":
            raise StartFailed(words.nothing_fits(), ("kv_check", "kv_auto"), "check")
        if start.max_model_len == play.model.longest:
            voice.log(
                "auto_full",
                f"Auto-fit max_model_len: full model context length {start.max_model_len} fits in available GPU memory",
            )
        else:
            voice.log(
                "auto_reduced",
                f"Auto-fit max_model_len: reduced from {play.model.longest} to {start.max_model_len} to fit in available "
                + (
                    f"KV cache memory ({gib(start.available_bytes)} GiB)"
                    if at_least(version, "0.32.0")
                    else f"GPU memory ({gib(start.available_bytes)} GiB available for KV cache)"
                ),
            )
    if start.cause in ("no-kv-cache-blocks", "graph-estimate-too-large"):
        raise StartFailed(words.no_blocks(version), ("kv_check", "kv_none"), "check")
    if start.cause in ("kv-cache-smaller-than-context", "kv-cache-pinned-too-small"):
        raise StartFailed(words.too_small(start), ("kv_check", "kv_small"), "check")
    if settings.num_gpu_blocks_override:
        found = (
            (start.available_bytes // start.pool.block_bytes)
            if not at_least(version, "0.20.1")
            else start.blocks
        )
        voice.log(
            "override", f"Overriding num_gpu_blocks={found} with num_gpu_blocks_override={start.blocks}"
        )
    concurrency = start.pool.concurrency(start.blocks, start.max_model_len)
    if at_least(version, "0.28.0"):
        voice.log(
            "kv_size",
            f"GPU KV cache size: {start.tokens:,} tokens, Maximum concurrency for {start.max_model_len:,} tokens per request: "
            f"{concurrency:.2f}x",
        )
    else:
        voice.log("kv_size", f"GPU KV cache size: {start.tokens:,} tokens")
        voice.log(
            "concurrency",
            f"Maximum concurrency for {start.max_model_len:,} tokens per request: {concurrency:.2f}x",
        )


def _tell_failure(voice: Voice, failed: StartFailed) -> None:
    """The engine core's last words."""
    step = failed.step.removeprefix("multi-")
    multi = failed.step.startswith("multi-")
    first = ("engine_init", "multi_init") if multi else _STEP_FRAMES.get(step, ("engine_kv",))
    lines = traceback_of(voice, first, failed)
    voice.exception("failed", "EngineCore failed to start.", lines)
    name = "EngineCore" if at_least(voice.version, "0.18.0") else "EngineCore_DP0"
    if not at_least(voice.version, "0.10.2"):
        name = "EngineCore_0"
    voice.raw("\n".join([f"Process {name}:", *lines]))
    sys.stdout.flush()
