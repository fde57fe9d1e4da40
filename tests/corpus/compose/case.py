"""One composed log with its right answer, and the advice that every case of a cause shares."""

from typing import Any

import msgspec

from .story import Line

Advice = dict[str, Any]

STAGES = {
    "environment": (
        "gpu-memory-taken gpu-memory-changed-while-profiling no-gpu-visible not-enough-gpus cuda-driver-mismatch nccl-failed shm-too-small "
        "host-memory-exhausted kernel-compile-failed port-in-use disk-full interrupted"
    ),
    "config": (
        "context-beyond-model-limit batched-tokens-below-context heads-not-divisible dtype-unsupported quantization-unsupported "
        "attention-backend-unsupported architecture-unsupported unknown-flag model-not-found model-access-denied tokenizer-failed"
    ),
    "weights": "checkpoint-broken weights-do-not-fit",
    "profiling": "profile-run-oom multimodal-profile-oom",
    "kv_cache": (
        "no-kv-cache-blocks graph-estimate-too-large kv-cache-smaller-than-context kv-cache-pinned-too-small state-cache-too-small "
        "kv-pages-not-unifiable kv-allocation-oom"
    ),
    "graph_capture": "graph-capture-oom",
    "warmup": "sampler-warmup-oom",
    "serving": "serving-oom preemption-thrash request-never-scheduled",
    "request": "request-too-long max-tokens-too-large model-name-unknown",
    "unknown": "wrapper-only",
    "-": "healthy not-a-vllm-log",
}
STAGE = {cause: stage for stage, causes in STAGES.items() for cause in causes.split()}
STAGE["gpu-memory-changed-while-profiling"] = "profiling"  # the assertion is raised by the profiling step

UP: Advice = {"flag": "gpu_memory_utilization", "direction": "up"}
DOWN: Advice = {"flag": "gpu_memory_utilization", "direction": "down"}
SHORTER: Advice = {"flag": "max_model_len", "direction": "down"}
EAGER: Advice = {"flag": "enforce_eager"}
FEWER: Advice = {"flag": "max_num_seqs", "direction": "down"}
SMALLER_BATCH: Advice = {"flag": "max_num_batched_tokens", "direction": "down"}
MORE_RANKS: Advice = {"flag": "tensor_parallel_size", "direction": "up"}


def act(*names: str) -> list[Advice]:
    """Actions as advice."""
    return [{"action": name} for name in names]


RIGHT: dict[str, list[Advice]] = {
    "gpu-memory-taken": [*act("free-other-process"), DOWN],
    "gpu-memory-changed-while-profiling": act("isolate-gpu", "retry", "check-neighbours", "stop-neighbour"),
    "no-gpu-visible": [*act("start-container-with-gpus", "update-driver"), {"flag": "CUDA_VISIBLE_DEVICES"}],
    "cuda-driver-mismatch": act("update-driver", "newer-vllm-build", "older-image", "remove-compat-libs"),
    "nccl-failed": act("fix-nccl"),
    "shm-too-small": act("raise-shm-size"),
    "host-memory-exhausted": act("raise-memory-limit", "more-host-memory"),
    "kernel-compile-failed": act("newer-cuda-toolkit", "install-compiler"),
    "port-in-use": act("other-port", "stop-other-server"),
    "disk-full": [*act("free-disk"), {"flag": "VLLM_CACHE_ROOT"}],
    "heads-not-divisible": [{"flag": "tensor_parallel_size"}],
    "quantization-unsupported": act("other-quantization-or-gpu", "upgrade-vllm", "drop-quantization-flag"),
    "attention-backend-unsupported": [{"flag": "VLLM_ATTENTION_BACKEND"}, {"flag": "attention_backend"}],
    "architecture-unsupported": act("upgrade-vllm", "upgrade-transformers"),
    "unknown-flag": act("remove-flag", "upgrade-vllm"),
    "model-not-found": act("check-model-path", "check-network"),
    "model-access-denied": act("set-hf-token", "request-access"),
    "tokenizer-failed": act("fix-tokenizer-files", "install-sentencepiece", "upgrade-transformers"),
    "checkpoint-broken": act("re-download-weights"),
    "weights-do-not-fit": [MORE_RANKS, *act("smaller-or-quantized-model"), {"flag": "pipeline_parallel_size", "direction": "up"}],
    "profile-run-oom": [SMALLER_BATCH],
    "multimodal-profile-oom": [{"flag": "limit_mm_per_prompt"}, {"flag": "mm_pixels", "direction": "down"}, {"flag": "skip_mm_profiling"}],
    "no-kv-cache-blocks": [UP],
    "graph-estimate-too-large": [{"flag": "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "value": "0"}, *act("disable-graph-estimate")],
    "kv-pages-not-unifiable": act("change-block-size-or-draft", "upgrade-vllm"),
    "kv-allocation-oom": [DOWN, {"flag": "kv_cache_memory_bytes", "direction": "down"}],
    "graph-capture-oom": [DOWN, EAGER, FEWER, {"flag": "max_cudagraph_capture_size", "direction": "down"}],
    "sampler-warmup-oom": [FEWER, DOWN],
    "serving-oom": [DOWN, SMALLER_BATCH, FEWER],
    "preemption-thrash": [FEWER, UP, SHORTER],
    "request-never-scheduled": [SHORTER, *act("restart", "upgrade-vllm")],
    "request-too-long": [*act("shorten-prompt"), {"flag": "max_model_len", "direction": "up"}],
    "model-name-unknown": [*act("use-served-name"), {"flag": "served_model_name"}],
    "wrapper-only": act("show-lines-above"),
}  # fmt: skip
MEMORY_BLIND = [
    "no-gpu-visible",
    "not-enough-gpus",
    "cuda-driver-mismatch",
    "nccl-failed",
    "shm-too-small",
    "host-memory-exhausted",
    "kernel-compile-failed",
    "port-in-use",
    "disk-full",
    "interrupted",
    "context-beyond-model-limit",
    "batched-tokens-below-context",
    "heads-not-divisible",
    "dtype-unsupported",
    "quantization-unsupported",
    "attention-backend-unsupported",
    "architecture-unsupported",
    "unknown-flag",
    "model-not-found",
    "model-access-denied",
    "tokenizer-failed",
    "checkpoint-broken",
    "wrapper-only",
    "healthy",
    "not-a-vllm-log",
    "model-name-unknown",
    "request-too-long",
    "max-tokens-too-large",
    "gpu-memory-changed-while-profiling",
]
HARMFUL: dict[str, list[Advice]] = {
    **{cause: [UP, DOWN] for cause in MEMORY_BLIND},
    "gpu-memory-taken": [UP, SHORTER, EAGER],
    "weights-do-not-fit": [DOWN, SHORTER, EAGER],
    "profile-run-oom": [UP],
    "multimodal-profile-oom": [SHORTER, EAGER],
    "no-kv-cache-blocks": [EAGER],
    "kv-allocation-oom": [UP],
    "graph-capture-oom": [UP],
    "sampler-warmup-oom": [UP, SHORTER],
    "serving-oom": [UP],
    "kv-cache-pinned-too-small": [UP],
    "state-cache-too-small": [SHORTER],
    "kv-pages-not-unifiable": [UP, SHORTER],
    "request-never-scheduled": [FEWER],
}
HARMFUL["wrapper-only"] = [UP, DOWN, SHORTER, MORE_RANKS, EAGER]
HARMFUL["not-a-vllm-log"] = [UP, DOWN, SHORTER, EAGER]
HARMFUL["healthy"] = [UP, DOWN, SHORTER]
HARMFUL["host-memory-exhausted"] = [UP, DOWN, MORE_RANKS]
HARMFUL["shm-too-small"] = [UP, DOWN, *act("free-disk")]
HARMFUL["model-name-unknown"] = [UP, *act("check-model-path")]


class Case(msgspec.Struct):
    """A log and its answer. `acceptable`: causes that an expert would also accept; `lined`: its line is certain."""

    id: str
    title: str
    version: str | None
    cause: str
    lines: list[Line]
    tags: list[str]
    numbers: dict[str, Any] = {}
    suggest: list[Advice] | None = None
    harmful: list[Advice] | None = None
    acceptable: list[str] = []
    secrets: list[str] = []
    ending: str = "\n"
    packed: bool = False
    encoding: str = "utf-8"
    lined: bool = True

    def _prints_version(self) -> bool:
        """No release before 0.4.0 prints its version."""
        return self.version is not None and not self.version.startswith(("0.2.", "0.3."))

    def expected(self) -> dict[str, Any]:
        """The answer in the form of the files."""
        causes = [n for n, line in enumerate(self.lines, 1) if line.mark == "cause"]
        echoes = [n for n, line in enumerate(self.lines, 1) if line.mark == "echo"]
        quiet = self.cause in ("healthy", "not-a-vllm-log", "wrapper-only")
        if quiet == bool(causes):
            raise ValueError(f"{self.id}: {self.cause} with cause lines {causes}")
        return {
            "id": self.id,
            "title": self.title,
            "vllm_version": self.version if self._prints_version() else None,
            "stage": STAGE[self.cause],
            "cause": self.cause,
            "first_cause_line": causes[0] if causes and self.lined else None,
            "other_cause_lines": sorted(causes[1:] + echoes),
            "acceptable_causes": self.acceptable,
            "numbers": self.numbers,
            "must_suggest": RIGHT.get(self.cause, []) if self.suggest is None else self.suggest,
            "must_not_suggest": HARMFUL.get(self.cause, []) if self.harmful is None else self.harmful,
            "tags": sorted(self.tags),
            "secrets_planted": self.secrets,
        }
