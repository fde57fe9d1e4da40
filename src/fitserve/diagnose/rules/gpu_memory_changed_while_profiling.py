"""The profiling assertion: free memory changed because a neighbour let go or took memory, or a vGPU layer lies.

Source: vLLM 0.4.0 to 0.33.0, ``worker/worker.py`` and ``v1/worker/gpu_worker.py``: the free memory after the profile
run must be below that before it; equal figures fail too up to 0.15.1.
"""

from fitserve.diagnose.arithmetic import bytes_of
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid
from fitserve.units import GIB, gib

CAUSE = "gpu-memory-changed-while-profiling"
STAGE = "profiling"


def judge(situation: Situation) -> Finding:
    """Tell a neighbour from a layer that reports a constant."""
    before, after = _figures(situation)
    numbers = {}
    if before is not None and after is not None:
        numbers = {"initial_free_gib": round(before / GIB, 4), "current_free_gib": round(after / GIB, 4)}
    if before is not None and before == after:
        message = (
            f"free memory is {gib(before)} before and after the profile run: what reports it does not follow"
        )
        advice = [
            act(
                "fix-vgpu-accounting",
                "a virtual GPU layer reports a constant; its accounting must follow allocations",
            )
        ]
    elif before is not None and after is not None:
        message = f"free memory rose from {gib(before)} to {gib(after)} while vLLM profiled"
        advice = _neighbour(f"another process let go of {gib(abs(after - before))} meanwhile")
    else:
        message = "free memory changed while vLLM profiled"
        advice = _neighbour("another process let go of memory meanwhile")
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        numbers=numbers,
        advice=advice,
        not_advised=[
            avoid(
                "gpu_memory_utilization",
                "down",
                "the check compares two readings of free memory, not the share",
            ),
            avoid(
                "gpu_memory_utilization",
                "up",
                "the check compares two readings of free memory, not the share",
            ),
            avoid("max_model_len", "down", "the context plays no part in the check"),
        ],
    )


def _neighbour(why: str) -> list[Advice]:
    return [
        act("retry", f"{why}; the next start measures anew"),
        act("isolate-gpu", "a device of its own, or one start at a time, keeps the readings true"),
        act("check-neighbours", "see who else uses the device while it starts", option="nvidia-smi"),
    ]


def _figures(situation: Situation) -> tuple[int | None, int | None]:
    """The two readings in bytes, whichever wording printed them."""
    before, after = bytes_of(situation, "initial_free_gib"), bytes_of(situation, "current_free_gib")
    if before and after:
        return before.expected, after.expected
    if situation.number("initial_free_bytes") is not None:
        return situation.number("initial_free_bytes"), situation.number("current_free_bytes")
    return None, None
