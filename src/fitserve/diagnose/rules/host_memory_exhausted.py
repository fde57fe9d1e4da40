"""Host RAM is exhausted: the kernel's OOM killer, exit 137, a worker killed with no Python error.

Source: the kernel, the container runtime, Slurm, Ray and Python print these.
"""

import math

from fitserve.diagnose.arithmetic import bytes_of
from fitserve.diagnose.boot import Boot, Hit
from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.facts.messages.event import Event
from fitserve.units import GIB, MIB, Quantity, gib

CAUSE = "host-memory-exhausted"
STAGE = "environment"
_OF_FREE = 0.8
_DEATHS = (
    "worker-died",
    "worker-died-exit",
    "worker-died-v0",
    "engine-core-died",
    "ray-worker-died",
    "process-died",
)
_BEGINNINGS = ("api-server-version", "logo-version", "args-namespace", "non-default-args", "engine-config-v1")
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
        return _cpu_backend(situation)
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


def find_silent_death(boot: Boot) -> Event | None:
    """The line that reports a dead process where nothing before it says why: as after a SIGKILL.

    The boot's beginning must be in the log: in a log that was cut, the reason may stand above.
    """
    began = boot.first(*_BEGINNINGS)
    if began is None or not boot.died_silently:
        return None
    first = boot.deaths[0]
    code = str(first.numbers.get("exit_code", ""))
    return first if first.id in _DEATHS and code in ("", "None", "-9", "137") else None


def judge_silent_death(situation: Situation, event: Event) -> Finding:
    """A process that dies without a word was most likely killed for its memory."""
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message="a process died without a Python error, as one does that the kernel kills for its memory",
        event=event,
        confidence="possible",
        advice=[
            *_advice(situation),
            act("show-lines-above", "the kernel's log says whom it killed", option="dmesg -T | grep -i oom"),
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


def _cpu_backend(situation: Situation) -> Finding:
    """The CPU backend asks for more of the node's memory than is free, for its share or for a pinned cache."""
    free, total, asked = (
        bytes_of(situation, name) for name in ("host_free_gib", "host_total_gib", "requested_gib")
    )
    advice: list[Advice] = []
    message = "the host has less memory free than is asked for"
    if free and total and asked:
        message = f"{gib(free.expected)} of host memory is free, {gib(asked.expected)} is asked for"
        advice = _less_of_the_host(situation, free, total)
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=[
            *advice,
            act("free-other-process", "other processes hold the host's memory"),
            act("raise-memory-limit", "the container's limit counts as the host's memory"),
        ],
    )


def _less_of_the_host(situation: Situation, free: Quantity, total: Quantity) -> list[Advice]:
    if situation.event.id == "cpu-memory-below-request":
        share = math.floor(free.low / total.high * 100) / 100
        why = f"{gib(free.expected)} / {gib(total.expected)}, rounded down; here it is a share of the host's memory"
        return change(situation, "gpu_memory_utilization", share, "down", "capacity", why)
    to = round(free.low * _OF_FREE) // MIB * MIB
    why = f"{_OF_FREE:.0%} of the {gib(free.expected)} that is free"
    if situation.case.value("VLLM_CPU_KVCACHE_SPACE") is not None:
        return change(situation, "VLLM_CPU_KVCACHE_SPACE", max(to // GIB, 1), "down", "capacity", why)
    return change(situation, "kv_cache_memory_bytes", to, "down", "capacity", why)
