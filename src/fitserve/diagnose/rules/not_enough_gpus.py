"""Tensor x pipeline x data parallel asks for more devices than are visible.

Source: vLLM 0.2.0 to 0.33.0, ``executor/*``, ``config/parallel.py``, ``v1/worker/gpu_worker.py``, ``init_device``.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "not-enough-gpus"
STAGE = "environment"


def judge(situation: Situation) -> Finding:
    """Name the devices asked for and those there are."""
    wanted = _wanted(situation)
    visible = situation.number("visible_gpus")
    there = f"{visible}" if visible is not None else "fewer"
    asked = f"{wanted} devices are asked for" if wanted else "more devices are asked for than there are"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{asked}, {there} visible" if wanted else asked,
        event=situation.event,
        numbers={"visible_gpus": visible} if visible is not None else {},
        advice=[*_fewer_ranks(situation, wanted, visible), *_more_devices()],
        not_advised=[
            avoid("gpu_memory_utilization", None, "the number of devices is short, not their memory")
        ],
    )


def _wanted(situation: Situation) -> int | None:
    for name in ("local_world_size", "world_size", "tensor_parallel_size"):
        if (value := situation.number(name)) is not None:
            return int(value)
    sizes = [situation.case.whole(f"{kind}_parallel_size") or 1 for kind in ("tensor", "pipeline", "data")]
    product = sizes[0] * sizes[1] * sizes[2]
    return product if product > 1 else None


def _fewer_ranks(situation: Situation, wanted: int | None, visible: int | None) -> list[Advice]:
    """Ranks that fit, as a power of two: the heads of most models can be split so."""
    others = 1
    for kind in ("pipeline", "data"):
        others *= situation.case.whole(f"{kind}_parallel_size") or 1
    ranks = situation.case.whole("tensor_parallel_size") or (wanted or 2)
    room = visible // others if visible else ranks - 1
    if room < 1:
        name = (
            "data_parallel_size"
            if (situation.case.whole("data_parallel_size") or 1) > 1
            else "pipeline_parallel_size"
        )
        why = f"{visible} visible devices for {wanted} ranks"
        return change(situation, name, 1, "down", "capacity", why)
    to = 1 << (room.bit_length() - 1)
    if to >= ranks and others > 1:
        name = (
            "data_parallel_size"
            if (situation.case.whole("data_parallel_size") or 1) > 1
            else "pipeline_parallel_size"
        )
        return change(
            situation, name, max((visible or 1) // ranks, 1), "down", "capacity", f"{visible} visible devices"
        )
    if to >= ranks:
        return []
    why = f"{visible} visible devices" if visible else "fewer ranks than now"
    return change(situation, "tensor_parallel_size", to, "down", "capacity", why)


def _more_devices() -> list[Advice]:
    return [
        act(
            "start-container-with-gpus",
            "a container sees only the devices that it was handed",
            option="--gpus all",
        ),
        act("add-nodes", "a Ray cluster or --nnodes brings the devices of other machines", "hardware"),
    ]
