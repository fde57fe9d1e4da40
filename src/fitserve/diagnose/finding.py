"""The value that a diagnosis is. Its JSON is the contract of ``diagnose --json``."""

from typing import Any, Literal

import msgspec

Stage = Literal[
    "environment",
    "config",
    "weights",
    "profiling",
    "kv_cache",
    "graph_capture",
    "warmup",
    "serving",
    "request",
    "unknown",
    "-",
]
"""The phases in the order in which a start-up reaches them; ``-`` where nothing failed."""

Cost = Literal["free", "capacity", "speed", "hardware", "output"]
"""What a change costs, cheapest first. ``output``: answers may change."""

Direction = Literal["up", "down", "set"]
Scalar = int | float | str | bool | None


class Evidence(msgspec.Struct, frozen=True):
    """One line of the log that supports the finding: its 1-based number, its text without prefix.

    Number 0: it stands in no log, such as the answer of a server to a check.
    """

    line: int
    text: str


class Wrapper(msgspec.Struct, frozen=True):
    """A line that only reports that something else died."""

    id: str
    line: int


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of an earlier boot in the same log."""

    boot: int
    stage: Stage
    cause: str
    line: int | None


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One change to try: a flag (or environment variable), or an action.

    Attributes:
        flag: vLLM's own name with underscores (``max_model_len``), or the environment variable; None for an action.
        action: a stable action id; None for a flag.
        value_from: what it was, None where the log does not say.
        to: the value to set.
        direction: up, down, or set (a switch).
        cost: what it costs.
        why: one sentence with the arithmetic.
        option: the option as it is typed for that version and wrapper, such as ``--max-model-len 40960``.
        predicted: what should be seen after the change, such as ``{"kv_cache_tokens": 40960}``.
    """

    flag: str | None = None
    action: str | None = None
    value_from: Scalar = msgspec.field(name="from", default=None)
    to: Scalar = None
    direction: Direction | None = None
    cost: Cost = "free"
    why: str
    option: str | None = None
    predicted: dict[str, Any] = {}


class NotAdvised(msgspec.Struct, frozen=True, kw_only=True):
    """A change that people try here and that does not help, and why."""

    flag: str | None = None
    action: str | None = None
    direction: Direction | None = None
    why: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The first cause of a failed start-up or request, with everything that supports it."""

    schema: int = 1
    kind: Literal["diagnosis"] = "diagnosis"
    stage: Stage
    cause: str
    line: int | None
    severity: Literal["error", "warning", "note"]
    confidence: Literal["certain", "likely", "possible"]
    message: str
    evidence: list[Evidence] = []
    numbers: dict[str, Any] = {}
    wrappers: list[Wrapper] = []
    vllm_version: str | None = None
    boots: int = 1
    earlier: list[Earlier] = []
    process: str | None = None
    settings: dict[str, Any] = {}
    budget: list[dict[str, Any]] = []
    advice: list[Advice] = []
    not_advised: list[NotAdvised] = []

    @property
    def failed(self) -> bool:
        """True where something is wrong that a person must change."""
        return self.cause not in ("healthy", "not-a-vllm-log")
