"""From a request to its plan."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from fitserve.diagnose.finding import Advice
from fitserve.errors import InputError
from fitserve.memory.history import NEWEST, release
from fitserve.memory.kv import KvCache, Refusal, capacity, layer_specs, unsure_blocks
from fitserve.memory.resolve import Resolved
from fitserve.plan.asked import Asked
from fitserve.plan.command import command_with
from fitserve.plan.judge import Judged, stage_sizes
from fitserve.plan.request import Request, judge_request
from fitserve.plan.values import RISK, Choice, Confidence, FrontierPoint, KvPlan, Nearest, Plan, Setting
from fitserve.units import Basis, Quantity, Size, Unknown, gib

_MOST_WEIGHTS = 1 << 50
_HIDDEN = ("device", "vllm_version", "cpu_offload_bytes", "lora", "drafting", "encoder")


def make_plan(request: Request) -> Plan:
    """Judge the settings, and look for better ones where they do not start or miss the goal.

    Raises:
        InputError: the configuration lacks a number.
        UsageError: a setting is wrong.
    """
    judged = judge_request(request)
    _refuse_absurd(request, judged)
    help_ = _help(request, judged)
    options = judged.resolved.options
    return Plan(
        verdict=judged.verdict,
        cause=judged.problem.cause if judged.problem else None,
        confidence=_confidence(judged),
        risk=0.0 if _confidence(judged) == "certain" else RISK if judged.verdict != "cannot-tell" else 0.5,
        message=_message(judged),
        model=request.model,
        vllm_version=options.vllm_version,
        device=options.device.name,
        settings=_settings(judged.resolved),
        budget=judged.ranks,
        kv_cache=_kv_plan(request, judged),
        max_model_len_that_fits=_longest(judged),
        goal=request.goal,
        meets_goal=help_.meets_goal,
        advice=help_.advice,
        choices=help_.choices,
        nearest=help_.nearest,
        frontier=_frontier(request) if request.with_frontier else [],
        notes=_notes(request, judged),
        command=help_.choices[0].command if help_.choices else command_with(request, {}),
    )


class _Help(NamedTuple):
    """Whether the goal is met, and what would help."""

    meets_goal: bool | None
    advice: list[Advice]
    choices: list[Choice]
    nearest: Nearest | None


def _help(request: Request, judged: Judged) -> _Help:
    """What would help, if anything is needed. The search is imported here: a start that is as wanted goes without."""
    if judged.verdict == "starts" and not request.goal.asked:
        return _Help(None, [], [], None)
    from fitserve.plan.advice import advise
    from fitserve.plan.choices import find_choices, meets
    from fitserve.plan.nearest import find_nearest

    met = meets(judged, request, low=True) if request.goal.asked else None
    wanted = judged.verdict != "starts" or met is False
    choices = find_choices(request, judged) if wanted and judged.unknown is None else []
    is_searched = wanted and not choices and judged.unknown is None and not judged.problem_is_a_setting
    nearest = find_nearest(request, judged) if is_searched else None
    return _Help(met, advise(request, judged, choices, nearest), choices, nearest)


def _frontier(request: Request) -> list[FrontierPoint]:
    from fitserve.plan.frontier import find_frontier

    return find_frontier(request)


def _refuse_absurd(request: Request, judged: Judged) -> None:
    """Each number of a configuration may be possible and their product not.

    Raises:
        InputError: a rank's weights are beyond a pebibyte.
    """
    for rank in judged.ranks:
        weights = rank.weights_bytes
        if isinstance(weights, Quantity) and weights.high > _MOST_WEIGHTS:
            raise InputError(
                f"the configuration amounts to {gib(weights.high)} of weights on one rank",
                where=f"{request.checkpoint.config.source}: hidden_size, num_hidden_layers, vocab_size",
                hint="the file is damaged, or was written by hand: download it again",
            )


def _confidence(judged: Judged) -> Confidence:
    """Certain where no estimate decides: a setting that vLLM refuses, or a cache whose size is given."""
    if judged.verdict == "cannot-tell":
        return "possible"
    is_pinned = judged.problem is not None and judged.problem.cause == "kv-cache-pinned-too-small"
    return "certain" if is_pinned or judged.problem_is_a_setting else "likely"


def _message(judged: Judged) -> str:
    if judged.problem is not None:
        doubt = "" if judged.problem.expected else "with the least memory that is likely, "
        return doubt + judged.problem.message
    if judged.unknown is not None:
        return judged.unknown.unknown
    cache = judged.cache
    options = judged.resolved.options
    if not isinstance(cache, KvCache):
        return ""
    return f"{cache.tokens:,} tokens of KV cache, {cache.max_concurrency:.2f} requests of {options.max_model_len:,} tokens at once"


def _settings(resolved: Resolved) -> dict[str, Setting]:
    options = resolved.options
    names = [name for name in options.__struct_fields__ if name not in _HIDDEN]
    return {name: Setting(getattr(options, name), resolved.sources.get(name, "")) for name in names}


def _kv_plan(request: Request, judged: Judged) -> KvPlan | Size:
    """The cache as it is laid out; where one request does not fit, as it would be for the longest that does."""
    caches = [_laid_out(request, judged, end) for end in range(3)]
    shown = caches[1]
    if isinstance(shown, Unknown):
        return shown
    blocks = [0 if isinstance(cache, Unknown) else cache.num_blocks for cache in caches]
    tokens = [0 if isinstance(cache, Unknown) else cache.tokens for cache in caches]
    basis = judged.ranks[0].kv_cache_bytes
    kind: Basis = "computed" if isinstance(basis, Quantity) and basis.low == basis.high else "estimated"
    source = "KV cache memory"
    asked = request.asked
    if isinstance(asked, Asked) and asked.caches(judged.resolved.options):
        source += f", {asked.answer.source}"
        kind = "measured" if kind == "computed" else kind
    return KvPlan(
        block_size=shown.block_size,
        num_blocks=Quantity(low=blocks[0], expected=blocks[1], high=blocks[2], basis=kind, source=source),
        tokens=Quantity(low=tokens[0], expected=tokens[1], high=tokens[2], basis=kind, source=source),
        bytes_per_block=shown.bytes_per_block,
        bytes_per_token=shown.bytes_per_token,
        max_concurrency=judged.concurrency(),
        concurrency_low=judged.concurrency(low=True),
        groups=shown.groups,
    )


def _laid_out(request: Request, judged: Judged, end: int) -> KvCache | Unknown:
    cache = judged.caches[end]
    if isinstance(cache, KvCache | Unknown):
        return cache
    shorter = msgspec.structs.replace(
        judged.resolved.options, max_model_len=max(1, cache.estimated_max_model_len)
    )
    specs = layer_specs(request.checkpoint.config, shorter)
    sizes = stage_sizes(judged.ranks, end)
    if isinstance(specs, Unknown):
        return specs
    if isinstance(sizes, Unknown):
        return sizes
    found = capacity(specs, shorter, sizes)
    return Unknown(f"no block fits into {gib(min(sizes))}") if isinstance(found, Refusal) else found


def _longest(judged: Judged) -> Size:
    """The longest context: what the memory holds, at most what the model allows."""
    limit = judged.resolved.context.limit
    found = []
    for cache in judged.caches:
        if isinstance(cache, Unknown):
            return cache
        if isinstance(cache, Refusal):
            found.append(min(limit, cache.estimated_max_model_len))
        else:
            fits = cache.max_model_len_that_fits
            found.append(limit if fits is None else min(limit, fits))
    basis: Basis = "computed" if found[0] == found[2] else "estimated"
    source = f"KV cache memory and {judged.resolved.context.source}"
    return Quantity(low=found[0], expected=found[1], high=found[2], basis=basis, source=source)


def _notes(request: Request, judged: Judged) -> list[str]:
    options = judged.resolved.options
    notes = []
    if release(request.version) > release(NEWEST):
        notes.append(f"vLLM {request.version} is newer than what is known here: the rules of {NEWEST} count")
    if judged.verdict == "cannot-tell" and judged.unknown is not None and request.asked is None:
        notes.append("vLLM's own code can be asked about this model: --ask-engine")
    missing = request.checkpoint.missing
    if missing:
        others = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        notes.append(
            f"the index names {missing[0]}{others}, which is not in the folder: vLLM does not start without"
        )
    if "auto_map" in request.checkpoint.config.data:
        notes.append("the model's folder has Python code of its own (auto_map); nothing of it is run here")
    if isinstance(request.asked, Asked):
        from fitserve.plan.ask import compared

        notes.append(compared(request, request.asked))
    elif request.asked is not None:
        notes.append(f"the memory model counts, no engine: {request.asked.unknown}")
    if isinstance(judged.cache, KvCache):
        kernel = unsure_blocks(request.checkpoint.config, options, judged.cache.block_size)
        if kernel:
            notes.append(f"where {kernel} is installed, blocks are of 64 tokens: a few fewer fit")
    notes += _beside_cache(judged)
    if options.device.unified:
        notes.append("the device shares the host's memory: what other programs use counts")
    return notes


def _beside_cache(judged: Judged) -> Iterator[str]:
    """What needs memory that nothing is reserved for."""
    captured, reserved = judged.ranks[0].captured_bytes, judged.ranks[0].cuda_graph_bytes
    if (
        isinstance(captured, Quantity)
        and isinstance(reserved, Quantity)
        and captured.expected
        and not reserved.expected
    ):
        yield f"CUDA graphs take about {gib(captured.expected)} beside the KV cache; this release reserves nothing for them"
    if judged.serving is not None and judged.serving.expected and judged.problem is None:
        yield f"the first full batch may run out of memory: {judged.serving.message}"
