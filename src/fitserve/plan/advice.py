"""What to do about a plan that says no: changes of its choices, or of the setting that is refused."""

from collections.abc import Iterator

import msgspec

from fitserve.diagnose.finding import Advice, Direction, Scalar
from fitserve.errors import InputError
from fitserve.facts.command import is_variable
from fitserve.facts.serve_options import arity, full_name, known_options
from fitserve.memory.history import flag_releases, has_flag, release
from fitserve.plan.accepted import refused_values, removed_options
from fitserve.plan.judge import Judged
from fitserve.plan.refusals import context_ranks
from fitserve.plan.request import Request
from fitserve.plan.values import Choice, Nearest
from fitserve.units import Quantity, gib

_WORDS = {
    "gpu_memory_utilization": "more of the device for the KV cache",
    "cpu_offload_gb": "weights in the host's memory are read again in each step; decoding is much slower",
    "max_model_len": "a shorter context needs less KV cache",
    "max_num_seqs": "fewer sequences need less for logits and graphs",
    "max_num_batched_tokens": "smaller batches need less for activations; prefill is slower",
    "enforce_eager": "no CUDA graphs; decoding is slower",
    "tensor_parallel_size": "weights and cache are shared over more devices",
    "kv_cache_dtype": "a cache token takes half the bytes; answers may change",
}
_MOST_RANKS = 64


def advise(request: Request, judged: Judged, choices: list[Choice], nearest: Nearest | None) -> list[Advice]:
    """Changes, cheapest first.

    Args:
        request: the question.
        judged: the settings as asked, judged.
        choices: settings that serve the goal.
        nearest: what comes near where there are none.
    """
    refused = _of_a_setting(request, judged)
    if refused is not None:
        return refused
    found = list(_changes(judged, choices, request.version))
    if judged.problem is not None and judged.problem.cause == "gpu-memory-taken":
        freed = Advice(action="free-other-process", why="memory that others hold is not there for the start")
        return [freed, *found]
    return found or ([] if nearest is None else list(_larger(request, judged, nearest)))


def _of_a_setting(request: Request, judged: Judged) -> list[Advice] | None:
    """What to do about a setting that is refused whatever the memory; None where it is another problem, or none."""
    problem = judged.problem
    match problem.cause if problem is not None else None:
        case "unknown-flag":
            return [*_spelling(request), *_without_experts(judged)]
        case "heads-not-divisible":
            return list(_context_ranks(request, judged)) or list(_sizes(request, judged))
        case "architecture-unsupported":
            return list(_other_release(judged))
        case "quantization-unsupported":
            return list(_other_quantization(judged))
        case "attention-backend-unsupported":
            return list(_packed_cache(judged))
        case _:
            return None


def _other_release(judged: Judged) -> Iterator[Advice]:
    """A release that has the architecture."""
    if judged.problem is not None:
        retired = "any more" in judged.problem.message
        yield Advice(action="older-image" if retired else "upgrade-vllm", why=judged.problem.message)


def _other_quantization(judged: Judged) -> Iterator[Advice]:
    """Another method, or a device or release that takes this one."""
    if judged.problem is not None:
        yield Advice(action="other-quantization-or-gpu", why=judged.problem.message)


def _changes(judged: Judged, choices: list[Choice], version: str) -> Iterator[Advice]:
    """The changes of the choices, each flag once, cheapest choice first."""
    seen = set()
    for choice in choices:
        for name, value in choice.changes.items():
            if name in seen or not has_flag(name, version):
                continue
            seen.add(name)
            before = getattr(judged.resolved.options, name, None)
            yield Advice(
                flag=name,
                value_from=before,
                to=value,
                direction=_direction(before, value),
                cost=choice.cost,
                why=_why(name, before, value),
                option=_typed(name, value),
                predicted={"kv_cache_tokens": choice.tokens, "max_concurrency": choice.max_concurrency},
            )


def _typed(name: str, value: Scalar) -> str:
    if is_variable(name):
        return f"{name}={value}"
    return f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")


def _direction(before: Scalar, value: Scalar) -> Direction:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(before, int | float):
        return "set"
    return "up" if value > before else "down"


def _why(name: str, before: Scalar, value: Scalar) -> str:
    is_less = _direction(before, value) == "down"
    if name == "gpu_memory_utilization" and is_less:
        return "the share that is likely to be free at the start"
    if name == "tensor_parallel_size" and is_less:
        return "no more devices than there are"
    if name == "max_model_len" and not is_less:
        return "the context that is the goal"
    return _WORDS.get(name, "part of settings that fit")


def _without_experts(judged: Judged) -> Iterator[Advice]:
    """The option that a model without experts must go without."""
    problem = judged.problem
    if problem is not None and problem.message.startswith("enable_expert_parallel"):
        yield Advice(
            flag="enable_expert_parallel",
            value_from=True,
            to=False,
            direction="set",
            why="there are no experts to share out",
            option="--no-enable-expert-parallel",
        )


def _context_ranks(request: Request, judged: Judged) -> Iterator[Advice]:
    """The largest number of context parallel ranks below the one asked for that is taken."""
    config, resolved = request.checkpoint.config, judged.resolved
    options = resolved.options
    dcp = options.decode_context_parallel_size
    if context_ranks(config, resolved) is None:
        return

    def takes(size: int) -> bool:
        fewer = msgspec.structs.replace(options, decode_context_parallel_size=size)
        return context_ranks(config, msgspec.structs.replace(resolved, options=fewer)) is None

    value = next(size for size in range(min(dcp - 1, options.tensor_parallel_size), 0, -1) if takes(size))
    yield Advice(
        flag="decode_context_parallel_size",
        value_from=dcp,
        to=value,
        direction="down",
        why="tensor_parallel_size and the KV heads allow as many",
        option=_typed("decode_context_parallel_size", value),
    )


def _packed_cache(judged: Judged) -> Iterator[Advice]:
    """The name under which the release keeps the same cache."""
    if judged.resolved.options.kv_cache_dtype == "fp8_e4m3":
        yield Advice(
            flag="kv_cache_dtype",
            value_from="fp8_e4m3",
            to="fp8",
            direction="set",
            why="the same cache in the layout that the backend has",
            option=_typed("kv_cache_dtype", "fp8"),
        )


def _spelling(request: Request) -> Iterator[Advice]:
    """For each option that the release does not have: when it had it, or what is spelled like it."""
    from difflib import get_close_matches

    values = refused_values(request.given, request.version)
    removed = removed_options(request.given, request.version)
    for name in request.refused:
        value = request.given.get(name)
        yield Advice(
            flag=name,
            to=value,
            direction="set",
            why="the number without a suffix",
            option=_typed(name, value),
        )
    for name in values:
        yield Advice(
            flag=name,
            direction="set",
            why="one of the values that it takes",
            option=f"without --{name.replace('_', '-')}",
        )
    for name, value in request.given.items():
        is_known = arity(name) is not None and has_flag(name, request.version)
        if value is None or (is_known and name not in removed):
            continue
        typed = f"--{name.replace('_', '-')}"
        since, until = flag_releases(name) or (None, None)
        if since is not None and release(request.version) < release(since):
            yield Advice(
                action="upgrade-vllm", why=f"{typed} is there from vLLM {since} on", option=f"without {typed}"
            )
            continue
        known = [one for one in known_options() if has_flag(one, request.version)]
        close = get_close_matches(name, known, n=1, cutoff=0.75)
        if until is not None:
            why = f"vLLM {until} is the last release with {typed}"
        elif full_name(f"-{name}") != name and arity(full_name(f"-{name}")) is not None:
            why = f"did you mean -{name}, which is --{full_name(f'-{name}').replace('_', '-')}?"
        elif close:
            why = f"did you mean --{close[0].replace('_', '-')}?"
        else:
            why = f"no release has {typed}" if arity(name) is None else f"earlier releases had {typed}"
        yield Advice(action="remove-flag", why=why, option=f"without {typed}")


def _sizes(request: Request, judged: Judged) -> Iterator[Advice]:
    """The numbers of ranks next to the one asked for that divide the heads."""
    asked = judged.resolved.options.tensor_parallel_size
    try:
        heads = request.checkpoint.config.integer("num_attention_heads", "n_head", "n_heads")
    except InputError:
        return
    sizes = [size for size in range(1, min(heads, _MOST_RANKS) + 1) if heads % size == 0]
    below, above = [size for size in sizes if size < asked][-1:], [size for size in sizes if size > asked][:1]
    there = request.gpus
    for size in (*below, *(size for size in above if there is None or size <= there)):
        yield Advice(
            flag="tensor_parallel_size",
            value_from=asked,
            to=size,
            direction=_direction(asked, size),
            cost="hardware",
            why=f"{heads} heads divide by {', '.join(map(str, sizes))}",
            option=f"--tensor-parallel-size {size}",
        )


def _larger(request: Request, judged: Judged, nearest: Nearest) -> Iterator[Advice]:
    """More devices than there are, and other weights."""
    options, context = judged.resolved.options, judged.resolved.context
    if request.goal.context is not None and request.goal.context > context.limit:
        yield Advice(
            flag="max_model_len",
            value_from=request.goal.context,
            to=context.limit,
            direction="down",
            cost="capacity",
            why=f"the model's own limit ({context.source}): more takes another model",
            option=f"--max-model-len {context.limit}",
        )
        return
    what = "meet the goal" if request.goal.asked else "start it"
    if nearest.devices is not None:
        size = nearest.devices // options.pipeline_parallel_size
        yield Advice(
            flag="tensor_parallel_size",
            value_from=options.tensor_parallel_size,
            to=size,
            direction="up",
            cost="hardware",
            why=f"{nearest.devices} devices of {options.device.name} {what}",
            option=f"--tensor-parallel-size {size}",
        )
    held = sum(
        rank.weights_bytes.expected for rank in judged.ranks if isinstance(rank.weights_bytes, Quantity)
    )
    where = "meet the goal here" if request.goal.asked else "start here"
    why = f"no settings were found that {where}"
    if nearest.weights_bytes is not None and nearest.weights_bytes < held:
        why += f"; weights of at most {gib(nearest.weights_bytes)} would, these take {gib(held)}"
    yield Advice(action="smaller-or-quantized-model", cost="output", why=why)
