"""Experiments that tell what a failure is, where its log does not: one start without graphs, one with a short context.

An experiment is no fix: where it serves, the settings are planned again without it, and only the culprit is made smaller.
"""

import msgspec

from fitserve.diagnose.finding import Advice, Diagnosis
from fitserve.facts.command import Launch
from fitserve.memory.history import has_flag

_UNCLEAR = ("unrecognised-error", "kernel-compile-failed")
_OUT_OF_MEMORY = (
    "profile-run-oom",
    "graph-capture-oom",
    "sampler-warmup-oom",
    "serving-oom",
    "kv-allocation-oom",
)
_GRAPH_STAGES = ("profiling", "graph_capture", "warmup")
_LENGTH_STAGES = ("profiling", "kv_cache", "warmup", "serving")
_SHORT_TOKENS = 2048
_LARGEST_GRAPH = 512
_SMALLER_GRAPHS = 16
_FEWER_GRAPHS = 8


def experiment(diagnosis: Diagnosis, launch: Launch, done: frozenset[str]) -> Advice | None:
    """The next experiment, as a change; None where none would tell anything.

    Args:
        diagnosis: why the last trial failed.
        launch: its command.
        done: the flags of the experiments that were made.
    """
    is_unclear = diagnosis.cause in _UNCLEAR
    is_guess = diagnosis.cause in _OUT_OF_MEMORY and diagnosis.confidence == "possible"
    if not (is_unclear or is_guess):
        return None
    version = diagnosis.vllm_version
    is_eager = bool(launch.value("enforce_eager"))
    if (
        "enforce_eager" not in done
        and not is_eager
        and diagnosis.stage in _GRAPH_STAGES
        and has_flag("enforce_eager", version)
    ):
        return Advice(
            flag="enforce_eager",
            to=True,
            direction="set",
            cost="speed",
            why="an experiment: does it start without CUDA graphs and compilation?",
        )
    length = launch.value("max_model_len")
    is_long = not isinstance(length, int) or length > _SHORT_TOKENS
    if "max_model_len" not in done and is_long and diagnosis.stage in _LENGTH_STAGES:
        return Advice(
            flag="max_model_len",
            value_from=length if isinstance(length, int) else None,
            to=_SHORT_TOKENS,
            direction="down",
            cost="capacity",
            why="an experiment: does it start with a short context?",
        )
    return None


def concluded(diagnosis: Diagnosis, launch: Launch, flag: str, *, served: bool) -> Diagnosis:
    """The diagnosis of the launch before the experiment, with what the experiment has told.

    Args:
        diagnosis: as it was before.
        launch: the command as it was before.
        flag: what the experiment set.
        served: the experiment's start answered.
    """
    if not served:
        told = (
            "it fails without CUDA graphs too"
            if flag == "enforce_eager"
            else "it fails with a short context too"
        )
        return msgspec.structs.replace(diagnosis, message=f"{diagnosis.message}; {told}")
    if flag == "enforce_eager":
        told, advice = (
            "it starts without CUDA graphs and compilation",
            _smaller_graphs(diagnosis.vllm_version),
        )
    else:
        told, advice = f"it starts with {_SHORT_TOKENS:,} tokens of context", _shorter(diagnosis, launch)
    return msgspec.structs.replace(
        diagnosis,
        message=f"{diagnosis.message}; {told}",
        confidence="likely",
        advice=[*advice, *diagnosis.advice],
    )


def _smaller_graphs(version: str | None) -> list[Advice]:
    """Smaller graphs, then few, then none."""
    name = (
        "max_cudagraph_capture_size"
        if has_flag("max_cudagraph_capture_size", version)
        else "cuda_graph_sizes"
    )
    sizes = [
        Advice(
            flag=name,
            to=size,
            direction="down",
            cost="speed",
            why=f"graphs up to {size} tokens instead of none",
        )
        for size in (_LARGEST_GRAPH // _SMALLER_GRAPHS, _FEWER_GRAPHS)
        if has_flag(name, version)
    ]
    none = Advice(
        flag="enforce_eager",
        to=True,
        direction="set",
        cost="speed",
        why="smaller graphs have not been enough",
    )
    return [*sizes, none]


def _shorter(diagnosis: Diagnosis, launch: Launch) -> list[Advice]:
    """Halves of the context, down to what has started."""
    given = launch.value("max_model_len")
    now = given if isinstance(given, int) and given > 0 else diagnosis.settings.get("max_model_len")
    if not isinstance(now, int):
        now = 2 * _SHORT_TOKENS
    found = []
    length = now // 2
    while length >= _SHORT_TOKENS:
        found.append(
            Advice(
                flag="max_model_len",
                value_from=now,
                to=length,
                direction="down",
                cost="capacity",
                why=f"{_SHORT_TOKENS:,} tokens have started, {now:,} have not",
            )
        )
        length //= 2
    return found
