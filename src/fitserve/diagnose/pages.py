"""The pages: what each cause means and what to do about it, one Markdown file a cause beside its rule."""

from difflib import get_close_matches
from importlib.resources import files
from typing import Literal

import msgspec

from fitserve.diagnose.finding import Stage
from fitserve.errors import UsageError

CAUSES: dict[str, Stage] = {
    "gpu-memory-taken": "environment",
    "gpu-memory-changed-while-profiling": "environment",
    "no-gpu-visible": "environment",
    "not-enough-gpus": "environment",
    "cuda-driver-mismatch": "environment",
    "nccl-failed": "environment",
    "shm-too-small": "environment",
    "host-memory-exhausted": "environment",
    "kernel-compile-failed": "environment",
    "port-in-use": "environment",
    "disk-full": "environment",
    "interrupted": "environment",
    "context-beyond-model-limit": "config",
    "batched-tokens-below-context": "config",
    "heads-not-divisible": "config",
    "dtype-unsupported": "config",
    "quantization-unsupported": "config",
    "attention-backend-unsupported": "config",
    "architecture-unsupported": "config",
    "unknown-flag": "config",
    "model-not-found": "config",
    "model-access-denied": "config",
    "tokenizer-failed": "config",
    "checkpoint-broken": "weights",
    "weights-do-not-fit": "weights",
    "profile-run-oom": "profiling",
    "multimodal-profile-oom": "profiling",
    "no-kv-cache-blocks": "kv_cache",
    "graph-estimate-too-large": "kv_cache",
    "kv-cache-smaller-than-context": "kv_cache",
    "kv-cache-pinned-too-small": "kv_cache",
    "state-cache-too-small": "kv_cache",
    "kv-pages-not-unifiable": "kv_cache",
    "kv-allocation-oom": "kv_cache",
    "graph-capture-oom": "graph_capture",
    "sampler-warmup-oom": "warmup",
    "serving-oom": "serving",
    "preemption-thrash": "serving",
    "request-never-scheduled": "serving",
    "request-too-long": "request",
    "max-tokens-too-large": "request",
    "model-name-unknown": "request",
    "unrecognised-error": "unknown",
    "wrapper-only": "unknown",
    "healthy": "-",
    "not-a-vllm-log": "-",
}
"""Every cause and its stage, in the order in which a start-up reaches them. Ids are a contract: none is renamed."""

SECTIONS = ("What you see", "What it means", "What to do", "When this is wrong", "Versions", "Source")
"""The headings of every page, in order."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The page of one cause. Its JSON is the contract of ``explain --json``.

    Attributes:
        cause: the id.
        stage: when it happens.
        text: Markdown.
    """

    schema: int = 1
    kind: Literal["page"] = "page"
    cause: str
    stage: Stage
    text: str

    @property
    def summary(self) -> str:
        """The sentence below the title."""
        return self.text.split("\n\n", 2)[1].replace("\n", " ")


def page_name(cause: str) -> str:
    """The file of a cause's page: ``shm_too_small.md``."""
    return cause.replace("-", "_") + ".md"


def page(cause: str) -> Page:
    """The page of a cause.

    Raises:
        UsageError: no cause has that id; the hint names the closest.
    """
    name = cause.strip().lower().replace("_", "-")
    if name not in CAUSES:
        close = _closest(name)
        hint = f"did you mean {' or '.join(close)}?" if close else "fitserve explain lists the causes"
        raise UsageError(f"no cause is called {cause!r}", hint=hint)
    text = files("fitserve.diagnose.rules").joinpath(page_name(name)).read_text(encoding="utf-8")
    return Page(cause=name, stage=CAUSES[name], text=text)


def _closest(name: str) -> list[str]:
    """The ids that contain the name, then those that are spelled like it; three at most."""
    containing = [cause for cause in CAUSES if name and name in cause]
    return list(dict.fromkeys([*containing, *get_close_matches(name, CAUSES, n=3, cutoff=0.5)]))[:3]
