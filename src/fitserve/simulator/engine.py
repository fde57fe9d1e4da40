"""The engine core and its workers: processes that load, profile, allocate and capture as vLLM does, or fail as it does (o: processes).

Source: ``v1/engine/core.py``, ``v1/executor/*.py``, ``v1/worker/gpu_worker.py`` of vLLM 0.8.5 to 0.32.0.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fitserve.simulator import words
from fitserve.simulator.faults import FAULTS, Fault
from fitserve.simulator.machine import Machine, free_bytes, hold
from fitserve.simulator.models import Model
from fitserve.simulator.refusals import Refusal
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import Settings
from fitserve.simulator.start import Start, would_start
from fitserve.simulator.voice import Frame, Voice, gib, traceback

GIB = 1 << 30
_CHUNK = 64 << 20
_STEP_OF = {
    "gpu-memory-taken": "device",
    "weights-do-not-fit": "load",
    "profile-run-oom": "profile",
    "multimodal-profile-oom": "profile",
    "gpu-memory-changed-while-profiling": "profile",
    "kv-allocation-oom": "allocate",
    "graph-capture-oom": "capture",
    "state-cache-too-small": "capture",
    "sampler-warmup-oom": "capture",
}
_STEP_FRAMES = {
    "device": ("engine_init", "uniproc_device"),
    "load": ("engine_init", "uniproc_load"),
    "profile": ("engine_kv", "determine"),
    "allocate": ("engine_kv", "initialize"),
    "capture": ("engine_kv", "warm"),
}
_CAUSE_FRAMES = {
    "gpu-memory-taken": ("device",),
    "weights-do-not-fit": ("load",),
    "profile-run-oom": ("profile",),
    "multimodal-profile-oom": ("images",),
    "gpu-memory-changed-while-profiling": ("changed",),
    "kv-allocation-oom": ("kv_alloc",),
    "graph-capture-oom": ("capture",),
    "state-cache-too-small": ("state",),
    "sampler-warmup-oom": ("sampler",),
}


class Play(msgspec.Struct, kw_only=True):
    """What a start is about.

    Attributes:
        folder: the machine's.
        place: the model as it was given.
        devices: of each rank.
        refusal: what vLLM refuses only in the engine.
    """

    folder: Path
    machine: Machine
    model: Model
    place: str
    settings: Settings
    devices: list[int]
    refusal: Refusal | None = None

    def fault(self, step: str) -> Fault | None:
        """The machine's fault in a step."""
        found = [FAULTS[name] for name in self.machine.faults if name in FAULTS]
        ranks = self.settings.world_size
        return next((one for one in found if one.step == step and (ranks > 1 or not one.needs_ranks)), None)

    def wait(self, seconds: float) -> None:
        """Let a real machine's time pass."""
        time.sleep(seconds / self.machine.speed)


class StartFailed(Exception):  # noqa: N818 -- it ends a start, and is no error of ours
    """The start is over: the error, where it was raised, and in which rank."""

    def __init__(self, error: str, frames: Sequence[str], step: str, *, chained: str = "") -> None:
        super().__init__(error)
        self.error, self.frames, self.step, self.chained = error, tuple(frames), step, chained


class Rank:
    """One rank: what it prints and holds, step by step."""

    def __init__(self, play: Play, index: int, voice: Voice) -> None:
        self.play, self.index, self.voice = play, index, voice
        self.device = play.devices[index]
        self.start: Start | None = None

    def step(self, name: str, start: Start) -> None:
        """Do one step, or raise StartFailed."""
        self.start = start
        getattr(self, f"_{name}")(start)
        self._fail_where_it_must(name, start)

    def _hold(self, size: int) -> None:
        hold(
            self.play.folder,
            {self.device: size},
            name="VLLM::Worker" if self.play.settings.world_size > 1 else "VLLM::EngineCore",
        )

    def _device(self, start: Start) -> None:
        self._hold(start.needs.context)
        self.play.wait(2)
        ranks = self.play.settings
        self.voice.log(
            "world",
            f"rank {self.index} in world size {ranks.world_size} is assigned as DP rank 0, "
            f"PP rank {self.index // ranks.tensor_parallel_size}, TP rank {self.index % ranks.tensor_parallel_size}, EP rank 0",
        )

    def _load(self, start: Start) -> None:
        play, version = self.play, self.play.settings.version
        if self.index == 0 or not at_least(version, "0.11.1"):
            self.voice.log("load", f"Starting to load model {play.place}...")
        if start.cause == "weights-do-not-fit" and start.rank == self.index:
            play.wait(1)
            return
        size, shards = start.needs.weights, max(1, round(start.needs.weights / 5e9))
        seconds = size / (2.5 * GIB)
        for done in range(1, shards + 1):
            play.wait(seconds / shards)
            if self.index == 0:
                self.voice.raw(
                    f"\rLoading safetensors checkpoint shards: {100 * done // shards:3d}% Completed | {done}/{shards} "
                    f"[00:{int(seconds * done / shards) % 60:02d}<00:00,  1.40it/s]"
                )
            self._hold(start.needs.context + size * done // shards)
        if play.fault("load") is not None:
            return
        if self.index == 0:
            self.voice.log("weights_took", f"Loading weights took {seconds:.2f} seconds")
        shown = f"{gib(size)} GiB memory" if at_least(version, "0.14.0") else f"{size / GIB:.4f} GiB"
        memory = " memory" if at_least(version, "0.11.1") and not at_least(version, "0.14.0") else ""
        self.voice.log("model_took", f"Model loading took {shown}{memory} and {seconds + 0.84:.6f} seconds")

    def _profile(self, start: Start) -> None:
        play, needs = self.play, start.needs
        self._profile_images(start)
        if start.cause == "multimodal-profile-oom":
            return
        if not start.settings.enforce_eager and start.settings.cudagraph_mode != "NONE" and self.index == 0:
            prefix = ""
            self.voice.log("dynamo", f"{prefix}Dynamo bytecode transform time: 5.61 s")
            play.wait(5.6)
            took = "takes" if not at_least(start.settings.version, "0.18.0") else "took"
            play.wait(14)
            self.voice.log("compile", f"torch.compile {took} 19.84 s in total")
        if start.cause == "profile-run-oom":
            play.wait(1)
            return
        self._hold(needs.context + needs.weights + needs.non_torch + needs.activation)
        play.wait(3)

    def _profile_images(self, start: Start) -> None:
        """The line before the encoder's dummy pass."""
        items, tokens = start.settings.image_items, start.settings.max_num_batched_tokens
        if items:
            budget = max(tokens, self.play.model.cache.image_tokens)
            self.voice.log(
                "encoder",
                f"Encoder cache will be initialized with a budget of {budget} tokens, and profiled with {items} image items of the "
                "maximum feature size.",
            )

    def _measure(self, start: Start) -> None:
        """The lines after the profile run."""
        needs, settings = start.needs, start.settings
        self._hold(needs.context + needs.weights + needs.non_torch)
        if settings.kv_cache_memory_bytes:
            self.voice.log("reserved", words.pinned(start))
            return
        version = settings.version
        if at_least(version, "0.18.0") and settings.captures and needs.estimate:
            self.voice.log("estimate", f"Estimated CUDA graph memory: {needs.estimate / GIB:.2f} GiB total")
        if at_least(version, "0.9.1") and (self.index == 0 or not at_least(version, "0.11.1")):
            digits = (
                gib(start.available_bytes)
                if at_least(version, "0.14.0")
                else f"{start.available_bytes / GIB:.2f}"
            )
            self.voice.log("available", f"Available KV cache memory: {digits} GiB")
        if at_least(version, "0.18.0") and settings.captures and needs.estimate:
            if settings.reserve_graphs and at_least(version, "0.20.0"):
                self.voice.log("estimate_on", words.graphs_on(start))
            elif not at_least(version, "0.20.0"):
                self.voice.log("estimate_soon", words.graphs_soon(start))

    def _allocate(self, start: Start) -> None:
        needs = start.needs
        if start.cause == "kv-allocation-oom" and start.rank == self.index:
            return
        self._hold(needs.context + needs.weights + needs.non_torch + start.blocks * start.pool.block_bytes)
        self.play.wait(1)

    def _capture(self, start: Start) -> None:
        needs, settings = start.needs, start.settings
        base = needs.context + needs.weights + needs.non_torch + start.blocks * start.pool.block_bytes
        if settings.captures and start.cause != "state-cache-too-small":
            self._capture_graphs(start, base)
        if start.cause is None:
            self._hold(base + needs.graphs + min(needs.sampler, start.left_bytes) // 4)
            self.play.wait(1)

    def _capture_graphs(self, start: Start, base: int) -> None:
        settings, graphs = start.settings, start.needs.graphs
        total = len(settings.capture_sizes)
        short = start.cause == "graph-capture-oom" and start.rank == self.index
        last = max(1, total * start.free_then_bytes // max(graphs, 1)) if short else total
        modes = (
            ["PIECEWISE"]
            if settings.cudagraph_mode == "PIECEWISE"
            else ["mixed prefill-decode, PIECEWISE", "decode, FULL"]
        )
        for mode in modes:
            name = (
                f"Capturing CUDA graphs ({mode})"
                if at_least(settings.version, "0.10.1")
                else "Capturing CUDA graph shapes"
            )
            for done in sorted({1, total // 2, last}):
                if self.index == 0 and 0 < done <= last:
                    bar = f"\r{name}: {100 * done // total:3d}%|{'█' * (10 * done // total):<10}| {done}/{total} "
                    self.voice.raw(f"{bar}[00:{done * 0.06:02.0f}<00:00, 16.84it/s]")
                self.play.wait(3)
            if short:
                return
        self._hold(base + graphs)
        self.voice.log(
            "captured", f"Graph capturing finished in {total * 0.12:.0f} secs, took {graphs / GIB:.2f} GiB"
        )
        if at_least(settings.version, "0.18.0") and start.needs.estimate:
            gap = start.needs.graphs - start.needs.estimate
            self.voice.log(
                "graph_pool",
                f"CUDA graph pool memory: {gib(graphs)} GiB (actual), {gib(start.needs.estimate)} GiB (estimated), "
                f"difference: {gib(abs(gap))} GiB ({100 * abs(gap) / max(graphs, 1):.1f}%).",
            )

    def _fail_where_it_must(self, name: str, start: Start) -> None:
        fault = self.play.fault(name)
        if fault is not None:
            raise StartFailed(fault.error, fault.frames, name)
        if name == "device" and self.play.refusal is not None:
            raise StartFailed(self.play.refusal.last_line, (), name)
        cause = start.cause
        same = start.rank == self.index or (
            cause != "gpu-memory-taken" and start.free[self.index] == start.free[start.rank]
        )
        if cause is None or _STEP_OF.get(cause) != name or not same:
            return
        error, chained = self._error(cause, start)
        raise StartFailed(error, _CAUSE_FRAMES[cause], name, chained=chained)

    def _error(self, cause: str, start: Start) -> tuple[str, str]:
        """The error, and the one that it came from."""
        needs = start.needs
        if cause == "gpu-memory-taken":
            if at_least(start.settings.version, "0.9.1") and start.free_then_bytes:
                return words.free_memory(start), ""
            return words.out_of_memory(start, 2 << 20, held=needs.context, torch_held=0), ""
        if cause == "gpu-memory-changed-while-profiling":
            change = start.free_then_bytes - (start.free[0] - needs.context - needs.weights - needs.non_torch)
            return words.changed(start, change), ""
        if cause == "state-cache-too-small":
            return words.states(start), ""
        own = start.free[self.index]
        memory = words.out_of_memory(
            start, self._chunk(cause, start), held=max(own - _CHUNK // 3, 0), torch_held=own - needs.context
        )
        if cause == "sampler-warmup-oom":
            return words.sampler(start.settings.max_num_seqs), memory
        return memory, ""

    def _chunk(self, cause: str, start: Start) -> int:
        """The allocation that fails."""
        settings = start.settings
        text: dict[str, int] = self.play.model.text
        if cause == "weights-do-not-fit":
            inner = text.get("intermediate_size") or text["hidden_size"] * 4
            return max(2 * inner * text["hidden_size"] * 2 // settings.tensor_parallel_size, _CHUNK)
        if cause in ("profile-run-oom", "multimodal-profile-oom"):
            return max(start.asked_bytes // 4, _CHUNK)
        if cause == "sampler-warmup-oom":
            return settings.max_num_seqs * text["vocab_size"] * 4
        if cause == "kv-allocation-oom":
            return (
                start.blocks
                * start.pool.block_bytes
                // max(text["num_hidden_layers"] // settings.pipeline_parallel_size, 1)
            )
        return _CHUNK


class Solo:
    """The only rank, in the engine's own process."""

    def __init__(self, play: Play, voice: Voice) -> None:
        self.rank = Rank(play, 0, voice)

    def step(self, name: str, start: Start) -> None:
        """Do it here."""
        self.rank.step(name, start)


class Workers:
    """A process for each rank, led over pipes; each ends when its leader is gone."""

    def __init__(self, play: Play, voice: Voice, ready: int) -> None:
        self.voice = voice
        self.pids: list[int] = []
        self.pipes: list[tuple[int, int]] = []
        for index in range(play.settings.world_size):
            orders, order = os.pipe()
            answers, answer = os.pipe()
            pid = os.fork()
            if pid == 0:
                others = [end for pipes in self.pipes for end in pipes]
                for end in (*others, order, answers, ready):
                    os.close(end)
                _obey(play, index, orders, answer)
            os.close(orders)
            os.close(answer)
            self.pids.append(pid)
            self.pipes.append((order, answers))

    def step(self, name: str, start: Start) -> None:
        """Let every rank do it; raise StartFailed for the first that fails."""
        order = msgspec.json.encode({"step": name, "start": start}) + b"\n"
        for pipe, _ in self.pipes:
            os.write(pipe, len(order).to_bytes(8, "big") + order)
        answers = [_read_message(pipe) for _, pipe in self.pipes]
        failed = [answer for answer in answers if answer != b"ok"]
        if failed:
            error = failed[0].decode() or "RuntimeError: a worker is gone"
            if name in ("device", "load"):
                words_of_leader = (
                    "Exception: WorkerProc initialization failed due to an exception in a background process. "
                    "See stack trace for root cause."
                )
                raise StartFailed(words_of_leader, (), f"multi-{name}")
            message = error.partition(": ")[2]
            raise StartFailed(
                f"RuntimeError: Worker failed with error '{message}', please check the stack trace above for the root cause",
                (),
                name,
            )


def _read_message(pipe: int) -> bytes:
    head = os.read(pipe, 8)
    if len(head) < 8:
        return b""
    left, parts = int.from_bytes(head, "big"), []
    while left:
        part = os.read(pipe, left)
        if not part:
            return b""
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _obey(play: Play, index: int, orders: int, answer: int) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    voice = Voice(play.settings.version, _rank_name(play.settings, index))
    rank = Rank(play, index, voice)
    while message := _read_message(orders):
        order = json.loads(message)
        reply = b"ok"
        try:
            rank.step(order["step"], msgspec.convert(order["start"], Start))
        except StartFailed as failed:
            early = order["step"] in ("device", "load")
            place, head = (
                ("worker_failed", "WorkerProc failed to start.")
                if early
                else ("worker_exception", "WorkerProc hit an exception.")
            )
            first = ("worker_init", f"worker_{order['step']}") if early else ("worker_busy",)
            voice.exception(place, head, _lines(voice, first, failed))
            reply = failed.error.encode()
        os.write(answer, len(reply).to_bytes(8, "big") + reply)
    os._exit(0)


def _rank_name(settings: Settings, index: int) -> str:
    stage, rank = divmod(index, settings.tensor_parallel_size)
    parts = [f"PP{stage}"] if settings.pipeline_parallel_size > 1 else []
    parts += [f"TP{rank}"] if settings.tensor_parallel_size > 1 else []
    return "_".join(["Worker", *parts])


def _lines(voice: Voice, first: Sequence[str], failed: StartFailed) -> list[str]:
    frames: list[Frame] = voice.frames(*first, *failed.frames)
    chained = traceback(voice.frames("sampling"), failed.chained) if failed.chained else ()
    return traceback(frames, failed.error, chained=chained)


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
    _silent_faults(play, voice)
    before = _foreign(play)
    team.step("profile", start)
    change = before - _foreign(play)
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


def judge(play: Play) -> Start:
    """How this start will end, with what is free now."""
    free = [free_bytes(play.folder, play.machine, device) for device in play.devices]
    return would_start(play.model, play.settings, play.machine.device, free, play.machine.seed)


def _foreign(play: Play) -> int:
    """What others hold of the first rank's device."""
    from fitserve.simulator.smi import read_holders

    mine = {"VLLM::EngineCore", "VLLM::Worker"}
    group = os.getpgid(0)
    total = 0
    for holder in read_holders(str(play.folder)):
        try:
            own = holder["name"] in mine and os.getpgid(holder["pid"]) == group
        except ProcessLookupError:
            continue
        if not own:
            total += int(holder["devices"].get(str(play.devices[0]), 0))
    return total


def _silent_faults(play: Play, voice: Voice) -> None:
    faults = play.machine.faults
    if "hangs" in faults:
        while True:
            time.sleep(60)
    if "host-memory" in faults:
        os.kill(os.getpid(), signal.SIGKILL)
    if "log-flood" in faults:
        for count in range(200_000):
            voice.log(
                "load",
                f"fused_moe_kernel: no tuned configuration for shape {count}, using the default one",
                "WARNING",
            )


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
    lines = _lines(voice, first, failed)
    voice.exception("failed", "EngineCore failed to start.", lines)
    name = "EngineCore" if at_least(voice.version, "0.18.0") else "EngineCore_DP0"
    if not at_least(voice.version, "0.10.2"):
        name = "EngineCore_0"
    voice.raw("\n".join([f"Process {name}:", *lines]))
    sys.stdout.flush()
