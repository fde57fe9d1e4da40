"""SIGTERM or SIGINT, a probe or a scheduler stopped it; it did not crash.

Source: Kubernetes, Slurm, systemd, shells and Python print these.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "interrupted"
STAGE = "environment"
_LIMITS = (
    "interrupted-slurm",
    "interrupted-pbs",
    "interrupted-deadline",
    "interrupted-systemd",
    "interrupted-timeout",
    "interrupted-gh",
)
_DOING = {
    "config": "it read its configuration",
    "weights": "the weights were loaded",
    "profiling": "it compiled or profiled",
    "kv_cache": "the KV cache was set up",
    "graph_capture": "CUDA graphs were captured",
    "warmup": "it warmed up",
    "serving": "requests were served",
}


def judge(situation: Situation) -> Finding:
    """Name who stopped it, and in which phase."""
    name = situation.event.id
    doing = _DOING[situation.boot.phase]
    who = _who(name)
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{who} stopped it while {doing}",
        event=situation.event,
        confidence="certain" if situation.event.weight > 1 else "likely",
        numbers=_exit_code(situation),
        advice=_advice(situation, name),
        not_advised=[
            avoid("gpu_memory_utilization", None, "it was stopped from outside, memory plays no part")
        ],
    )


def _who(name: str) -> str:
    if "probe" in name:
        return "a probe"
    if "start-timeout" in name:
        return "vLLM's own start-up limit"
    if name.startswith(_LIMITS):
        return "a time limit or a scheduler"
    return "the keyboard" if name == "interrupted-keyboard" else "a signal"


def _exit_code(situation: Situation) -> dict[str, object]:
    """The exit code of the stopped process, where a line shows it."""
    for hit in situation.boot.hits:
        if hit.event.id == "interrupted-core-minus-15" or "exit-minus-15" in hit.event.id:
            return {"exit_code": -15}
        if "143" in hit.event.line.text and hit.event.cause == CAUSE:
            return {"exit_code": 143}
    return {}


def _advice(situation: Situation, name: str) -> list[Advice]:
    probe = act(
        "longer-startup-probe",
        "loading, compiling and capturing take minutes; a startup probe must wait for them",
        option="startupProbe: {failureThreshold: 60, periodSeconds: 30}",
    )
    limit = act("longer-time-limit", "the start must fit into the limit")
    if "start-timeout" in name:
        return [
            *change(
                situation,
                "VLLM_ENGINE_READY_TIMEOUT_S",
                3600,
                "up",
                "free",
                "the start takes longer than it allows",
            ),
            limit,
        ]
    if name.startswith(_LIMITS):
        return [limit, probe]
    return [probe, limit, act("retry", "nothing failed; start it again")]
