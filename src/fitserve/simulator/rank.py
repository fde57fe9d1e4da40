"""One rank: what it prints and holds, step by step, and where it fails (o: files).

Source: ``v1/worker/gpu_worker.py`` and ``v1/worker/gpu_model_runner.py`` of vLLM 0.8.5 to 0.32.0.
"""

from fitserve.simulator import words
from fitserve.simulator.machine import hold
from fitserve.simulator.play import Play, StartFailed
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import GIB
from fitserve.simulator.start import Start
from fitserve.simulator.voice import Voice, gib

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
        own, asked = start.free[self.index], self._chunk(cause, start)
        held = max(own - min(_CHUNK // 3, asked * 2 // 3), 0)
        memory = words.out_of_memory(start, asked, held=held, torch_held=max(own - needs.context, 0))
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
