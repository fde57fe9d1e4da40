"""Host RAM is exhausted: the kernel's OOM killer, exit 137, a worker killed with no Python error.

Source: the kernel, the container runtime, Slurm, Ray and Python print these.
"""

from fitserve.diagnose.boot import Hit
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.units import gib

CAUSE = "host-memory-exhausted"
STAGE = "environment"
_PROVEN = ("host-oom", "host-cannot", "host-cpu", "host-numpy", "swap-too-large", "cpu-")


def judge(situation: Situation) -> Finding:
    """Name who was killed, and in which phase."""
    event = situation.event
    proven = event.id.startswith(_PROVEN)
    phase = {"weights": "the weights were loaded", "serving": "requests were served"}.get(
        situation.boot.phase
    )
    during = f" while {phase}" if phase else ""
    numbers = {"exit_code": 137} if any("137" in hit.event.line.text for hit in _own(situation)) else {}
    if event.id == "swap-too-large":
        asked, there = event.numbers["swap_gib"], event.numbers["host_total_gib"]
        return _swap(situation, asked, there)
    if event.id.startswith("cpu-"):
        return _cpu_share(situation)
    message = (
        f"the host ran out of memory{during}" if proven else f"a process was killed from outside{during}"
    )
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=event,
        confidence="certain" if proven else "likely",
        numbers=numbers,
        advice=_advice(situation),
        not_advised=[
            avoid("gpu_memory_utilization", None, "the host's memory is short, not the device's"),
            avoid("tensor_parallel_size", "up", "more ranks need more host memory, not less"),
        ],
    )


def _own(situation: Situation) -> list[Hit]:
    return [hit for hit in situation.boot.hits if hit.event.cause == CAUSE]


def _advice(situation: Situation) -> list[Advice]:
    why = "the weights pass through host memory, once for each process that reads them"
    found = [
        act("raise-memory-limit", f"{why}; the pod's or the container's limit counts the page cache too"),
        act("more-host-memory", f"{why}", "hardware"),
    ]
    if (situation.case.number("cpu_offload_gb") or 0) > 0:
        found += change(
            situation, "cpu_offload_gb", 0, "down", "free", "offloaded weights live in host memory"
        )
    if (situation.case.number("swap_space") or 0) > 0:
        found += change(situation, "swap_space", 0, "down", "free", "it reserves host memory for each device")
    return found


def _swap(situation: Situation, asked: float, there: float) -> Finding:
    why = f"{asked:g} GiB of {there:g} GiB is asked for"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"swap space of {asked:g} GiB is too much for a host of {there:g} GiB",
        event=situation.event,
        advice=change(situation, "swap_space", 1, "down", "capacity", why),
    )


def _cpu_share(situation: Situation) -> Finding:
    """The CPU backend asks for a share of the node's memory that is not free."""
    free, total = situation.number("gpu_free_gib"), situation.number("gpu_total_gib")
    asked = situation.number("requested_gib")
    advice: list[Advice] = []
    if free and total:
        share = int(free / total * 100 - 1e-9) / 100
        why = f"{free:g} / {total:g} GiB, rounded down; on the CPU backend it is a share of the host's memory"
        advice = change(situation, "gpu_memory_utilization", share, "down", "capacity", why)
    message = (
        f"{gib(free * 2**30)} of host memory is free, {gib(asked * 2**30)} is asked for"
        if free and asked
        else "host memory"
    )
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=[
            *advice,
            act("free-other-process", "other processes hold the host's memory"),
            act("raise-memory-limit", "more"),
        ],
    )
