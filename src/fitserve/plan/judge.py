"""One set of settings judged: the memory, the cache at both ends of its interval, and whether it starts."""

from collections.abc import Sequence

import msgspec

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.budget import RankBudget, rank_budgets
from fitserve.memory.kv import KvCache, LayerSpec, Refusal, capacity, layer_specs, too_few_states
from fitserve.memory.options import EngineOptions
from fitserve.memory.resolve import Resolved
from fitserve.memory.weights.ranks import RankWeights
from fitserve.plan.checks import Problem, config_problems, memory_problems, serving_problem
from fitserve.plan.values import Verdict
from fitserve.units import GIB, Quantity, Unknown, gib

_ONLY_IF_EXPECTED = ("graph-capture-oom", "kv-allocation-oom")
"""Causes that leave a verdict open only where the expected values show them."""

SETTING_CAUSES = (
    "unknown-flag",
    "architecture-unsupported",
    "not-enough-gpus",
    "context-beyond-model-limit",
    "heads-not-divisible",
    "batched-tokens-below-context",
    "dtype-unsupported",
    "quantization-unsupported",
    "attention-backend-unsupported",
    "cuda-driver-mismatch",
)
"""Causes that no estimate decides."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A start that was thought through.

    Attributes:
        resolved: its settings, ``max_model_len`` fitted where that was asked for.
        ranks: each rank's memory.
        caches: the cache with the least, the expected and the most memory that is likely.
        verdict: whether it starts.
        problem: what keeps it from starting, or might.
        serving: what a server that has started has no memory for, or might have none.
    """

    resolved: Resolved
    ranks: tuple[RankBudget, ...]
    caches: tuple[KvCache | Refusal | Unknown, ...]
    verdict: Verdict
    problem: Problem | None
    serving: Problem | None

    @property
    def cache(self) -> KvCache | Refusal | Unknown:
        """The cache as expected."""
        return self.caches[1]

    @property
    def unknown(self) -> Unknown | None:
        """What is not known of the weights or the cache, if anything."""
        return _unknown(self.ranks, self.caches)

    @property
    def problem_is_a_setting(self) -> bool:
        """True where a setting is refused whatever the memory."""
        return self.problem is not None and self.problem.cause in SETTING_CAUSES

    def concurrency(self, *, low: bool = False) -> float:
        """Requests of ``max_model_len`` tokens at once; 0 where none fits."""
        cache = self.caches[0 if low else 1]
        return cache.max_concurrency if isinstance(cache, KvCache) else 0.0


def judge(
    config: ModelConfig,
    resolved: Resolved,
    weights: Sequence[RankWeights] | Unknown,
    *,
    gpus: int | None = None,
    measured: dict[str, Quantity] | None = None,
    caches: tuple[KvCache | Refusal, ...] | None = None,
) -> Judged:
    """Think a start through.

    Args:
        config: the model's configuration.
        resolved: vLLM's settings.
        weights: every rank's weights, or why they are not known.
        gpus: devices that are there; None where that is not known.
        measured: terms of the budget that a log of the same start shows.
        caches: the cache at the three ends, where an engine has told it.

    Raises:
        InputError: the configuration lacks a number.
    """
    ranks = rank_budgets(config, resolved, weights, measured or {})
    specs = layer_specs(config, resolved.options)
    if resolved.auto_fit:
        resolved = _fitted(resolved, specs, ranks)
    found = caches or _caches(specs, resolved.options, ranks)
    held = _with_blocks(ranks, found, resolved.options)
    problems = [*config_problems(config, resolved, gpus), *memory_problems(resolved, held)]
    cache_problem = _cache_problem(resolved, ranks, found)
    if cache_problem is not None:
        problems.insert(_place(problems), cache_problem)
    serving = serving_problem(resolved, held)
    if serving is not None and serving.expected and _has_failed_before(ranks):
        problems.append(msgspec.structs.replace(serving, sure=False))
    verdict, problem = _verdict(problems, _unknown(ranks, found))
    return Judged(
        resolved=resolved,
        ranks=ranks,
        caches=found,
        verdict=verdict,
        problem=problem,
        serving=serving,
    )


def stage_sizes(ranks: Sequence[RankBudget], end: int) -> list[int] | Unknown:
    """The KV memory of each pipeline stage: of its fullest rank; 0 the least, 1 the expected, 2 the most."""
    sizes: dict[int, int] = {}
    for rank in ranks:
        if isinstance(rank.kv_cache_bytes, Unknown):
            return rank.kv_cache_bytes
        cache = rank.kv_cache_bytes
        value = (cache.low, cache.expected, cache.high)[end]
        sizes[rank.stage] = min(sizes.get(rank.stage, value), value)
    return [sizes[stage] for stage in sorted(sizes)]


def _caches(
    specs: tuple[LayerSpec, ...] | Unknown, options: EngineOptions, ranks: Sequence[RankBudget]
) -> tuple[KvCache | Refusal | Unknown, ...]:
    if isinstance(specs, Unknown):
        return (specs, specs, specs)
    found: list[KvCache | Refusal | Unknown] = []
    before: list[int] | None = None
    for end in range(3):
        sizes = stage_sizes(ranks, end)
        if isinstance(sizes, Unknown):
            return (sizes, sizes, sizes)
        found.append(found[-1] if sizes == before else capacity(specs, options, sizes))
        before = sizes
    return tuple(found)


def _fitted(
    resolved: Resolved, specs: tuple[LayerSpec, ...] | Unknown, ranks: Sequence[RankBudget]
) -> Resolved:
    """``max_model_len`` as vLLM fits it: the model's length, or the longest that the expected memory holds.

    Source: ``estimate_max_model_len`` in ``v1/core/kv_cache_utils.py``, vLLM 0.14 to 0.33.
    """
    sizes = stage_sizes(ranks, 1)
    if isinstance(specs, Unknown) or isinstance(sizes, Unknown):
        return resolved
    found = capacity(specs, resolved.options, sizes)
    if not isinstance(found, Refusal) or not found.estimated_max_model_len:
        return resolved
    options = msgspec.structs.replace(resolved.options, max_model_len=found.estimated_max_model_len)
    sources = {**resolved.sources, "max_model_len": "the longest that fits"}
    return msgspec.structs.replace(resolved, options=options, sources=sources)


def _with_blocks(
    ranks: tuple[RankBudget, ...], caches: Sequence[KvCache | Refusal | Unknown], options: EngineOptions
) -> tuple[RankBudget, ...]:
    """The ranks with the cache that is allocated where its blocks are given: no memory is looked at then.

    Source: ``num_gpu_blocks_override`` in ``v1/core/kv_cache_utils.py``, vLLM 0.8.5 to 0.33.0.
    """
    cache = caches[1]
    if options.num_gpu_blocks_override is None or not isinstance(cache, KvCache):
        return ranks
    size = Quantity.exact(cache.num_blocks * cache.bytes_per_block, "given", "num_gpu_blocks_override")
    return tuple(msgspec.structs.replace(rank, kv_cache_bytes=size) for rank in ranks)


def _has_failed_before(ranks: Sequence[RankBudget]) -> bool:
    """True where an earlier start has run out of memory beside its cache and graphs: what a step takes is its figure."""
    return any(rank.step_bytes != rank.activation_bytes for rank in ranks)


def _place(problems: Sequence[Problem]) -> int:
    """Before the problems of allocation and capture, behind all others."""
    late = ("kv-allocation-oom", "host-memory-exhausted", "graph-capture-oom")
    return next((at for at, problem in enumerate(problems) if problem.cause in late), len(problems))


def _cache_problem(
    resolved: Resolved, ranks: Sequence[RankBudget], caches: Sequence[KvCache | Refusal | Unknown]
) -> Problem | None:
    least, expected, most = (_refusal(cache, resolved) for cache in caches)
    if least is None:
        return None
    shown = expected or least
    cause = shown.cause
    if cause == "no-kv-cache-blocks" and _graphs_took_it(ranks):
        cause = "graph-estimate-too-large"
    return Problem(
        cause=cause,
        message=_message(shown, resolved.options),
        sure=most is not None,
        expected=expected is not None,
    )


def _refusal(cache: KvCache | Refusal | Unknown, resolved: Resolved) -> Refusal | None:
    if isinstance(cache, Refusal):
        # Where vLLM fits the length by itself, it takes a shorter one instead of refusing.
        fits_shorter = resolved.auto_fit and cache.estimated_max_model_len > 0
        return None if fits_shorter and cache.cause == "kv-cache-smaller-than-context" else cache
    if not isinstance(cache, KvCache):
        return None
    return too_few_states(cache, resolved.options, captures_full=resolved.captures_full)


def _graphs_took_it(ranks: Sequence[RankBudget]) -> bool:
    """True where there would be a cache but for the graphs' estimate."""
    for rank in ranks:
        cache, graphs = rank.kv_cache_bytes, rank.cuda_graph_bytes
        if isinstance(cache, Quantity) and isinstance(graphs, Quantity) and cache.expected <= 0:
            return graphs.expected > 0 and cache.expected + graphs.expected > 0
    return False


def _message(refusal: Refusal, options: EngineOptions) -> str:
    if refusal.cause == "no-kv-cache-blocks":
        lack = -refusal.available_bytes
        return "nothing is left for the KV cache" + (
            f": {gib(lack)} are lacking" if lack >= GIB // 100 else ""
        )
    if refusal.cause == "kv-pages-not-unifiable":
        return "the cache pages of this model's layers cannot share one pool in this release"
    if refusal.cause == "state-cache-too-small":
        blocks = refusal.available_bytes * options.max_num_seqs // max(1, refusal.needed_bytes)
        return f"max_num_seqs {options.max_num_seqs:,} is more than the {blocks:,} state blocks that fit"
    return (
        f"max_model_len {refusal.max_model_len:,} needs {gib(refusal.needed_bytes)} of KV cache, "
        f"{gib(refusal.available_bytes)} is available"
    )


def _unknown(ranks: Sequence[RankBudget], caches: Sequence[KvCache | Refusal | Unknown]) -> Unknown | None:
    parts = (*(rank.weights_bytes for rank in ranks), *caches)
    return next((part for part in parts if isinstance(part, Unknown)), None)


def _verdict(problems: Sequence[Problem], unknown: Unknown | None) -> tuple[Verdict, Problem | None]:
    """The first sure problem decides; else an expected one, or one of the cache at its least, leaves it open."""
    for problem in problems:
        if problem.sure:
            return "does-not-start", problem
    if unknown is not None:
        return "cannot-tell", next((problem for problem in problems if problem.expected), None)
    weighty = [problem for problem in problems if problem.expected or problem.cause not in _ONLY_IF_EXPECTED]
    if weighty:
        return "cannot-tell", next((problem for problem in weighty if problem.expected), weighty[0])
    return "starts", None
