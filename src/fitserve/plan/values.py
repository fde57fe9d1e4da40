"""The value that a plan is. Its JSON is the contract of ``plan --json``."""

from typing import Any, Literal

import msgspec

from fitserve.diagnose.finding import Advice, Cost
from fitserve.memory.budget import RankBudget
from fitserve.memory.kv import KvGroup
from fitserve.units import Size

Verdict = Literal["starts", "does-not-start", "cannot-tell"]
Confidence = Literal["certain", "likely", "possible"]

RISK = 0.05
"""The share of starts that an interval's end is expected to miss on one side: the intervals hold 90 % of measured starts."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed.

    Attributes:
        context: tokens of one request, prompt and answer together; None where nothing is asked.
        concurrency: requests of that length at once; None where nothing is asked.
        first: ``latency`` or ``throughput`` where one of them comes first; None where neither does.
    """

    context: int | None = None
    concurrency: int | None = None
    first: Literal["latency", "throughput"] | None = None

    @property
    def asked(self) -> bool:
        """True where there is a goal at all."""
        return self.context is not None or self.concurrency is not None


class Setting(msgspec.Struct, frozen=True):
    """A setting's value and where it is from."""

    value: Any
    source: str


class KvPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the KV cache holds.

    Attributes:
        block_size: tokens of the smallest block.
        num_blocks: blocks of the pool.
        tokens: what vLLM prints as the cache's size.
        bytes_per_block: bytes of a block on the fullest rank.
        bytes_per_token: bytes of one more token of a long request.
        max_concurrency: requests of ``max_model_len`` tokens at once, as expected; 0 where none fits.
        concurrency_low: the same with the least memory that is likely.
        groups: the layers that share a block table.
    """

    block_size: int
    num_blocks: Size
    tokens: Size
    bytes_per_block: int
    bytes_per_token: int
    max_concurrency: float
    concurrency_low: float
    groups: tuple[KvGroup, ...]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that meet the goal.

    Attributes:
        changes: what differs from the settings asked about, by vLLM's name.
        cost: the dearest of the changes.
        verdict: whether it starts.
        max_model_len: the context.
        max_concurrency: requests of that length at once.
        tokens: the cache's size as expected.
        command: the command to paste.
        concurrency_low: requests at once with the least memory that is likely; 0 where that was not asked.
    """

    changes: dict[str, Any]
    cost: Cost
    verdict: Verdict
    max_model_len: int
    max_concurrency: float
    tokens: int
    command: str
    concurrency_low: float = 0.0


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """What comes nearest to a goal that no settings serve.

    Attributes:
        longest: settings with the longest context for the asked concurrency; None where nothing starts.
        most: settings with the most requests of the asked context at once; None where not one fits.
        devices: how many of the same kind serve the goal; None where no number does.
        weights_bytes: weights that would leave room for the goal on the devices that are there; None where none would.
    """

    longest: Choice | None
    most: Choice | None
    devices: int | None
    weights_bytes: int | None


class FrontierPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of each length fit with some settings.

    Attributes:
        kv_cache_dtype: the cache's type.
        tensor_parallel_size: devices.
        gpu_memory_utilization: the share of each.
        enforce_eager: without CUDA graphs.
        longest: the longest context; 0 where nothing fits.
        concurrency: requests at once by context length; empty where it does not start whatever the length.
        cause: what keeps it from starting whatever the length, or might; None where nothing does.
    """

    kv_cache_dtype: str
    tensor_parallel_size: int
    gpu_memory_utilization: float
    enforce_eager: bool
    longest: int
    concurrency: dict[str, float]
    cause: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer.

    Attributes:
        verdict: whether it starts.
        cause: the id of what keeps it from starting, or might.
        confidence: how sure the verdict is.
        risk: the share of such starts that the verdict is expected to miss.
        message: one sentence.
        model: the model as given.
        vllm_version: the release whose rules count.
        device: the accelerator's name.
        settings: vLLM's settings, defaults filled in, each with its source.
        budget: each rank's memory.
        kv_cache: what the cache holds, or why that is not known.
        max_model_len_that_fits: the longest context.
        goal: what is needed, as asked.
        meets_goal: whether the goal is met; None without one.
        advice: changes, cheapest first.
        choices: settings that start and meet the goal, cheapest first.
        nearest: what comes nearest where there are no such settings; None where there are, or none were looked for.
        frontier: context against concurrency; empty unless asked for.
        notes: what else to know.
        command: the command: of the first choice where there is one, else as asked.
    """

    schema: int = 1
    kind: Literal["plan"] = "plan"
    verdict: Verdict
    cause: str | None
    confidence: Confidence
    risk: float
    message: str
    model: str
    vllm_version: str
    device: str
    settings: dict[str, Setting]
    budget: tuple[RankBudget, ...]
    kv_cache: KvPlan | Size
    max_model_len_that_fits: Size
    goal: Goal = Goal()
    meets_goal: bool | None = None
    advice: list[Advice] = []
    choices: list[Choice] = []
    nearest: Nearest | None = None
    frontier: list[FrontierPoint] = []
    notes: list[str] = []
    command: str = ""
