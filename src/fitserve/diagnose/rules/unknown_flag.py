"""An argument that this vLLM does not have, or a value that it refuses.

Source: argparse, vLLM's own checks, Python's "unexpected keyword argument".
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change, drop
from fitserve.facts.serve_options import full_name
from fitserve.memory.history import NEWEST, has_flag

CAUSE = "unknown-flag"
STAGE = "config"


def judge(situation: Situation) -> Finding:
    """Name the argument."""
    arguments = str(situation.number("arguments") or situation.number("argument") or "").strip()
    value = situation.number("value")
    if situation.event.id == "flag-unrecognized":
        message = f"this vLLM does not have {arguments}"
    elif situation.event.id == "util-out-of-range":
        message = f"gpu_memory_utilization {situation.number('gpu_memory_utilization')} is above 1"
    elif arguments and value:
        message = f"{arguments} does not take {str(value)[:80]}"
    elif arguments:
        message = f"{arguments[:120]} is refused"
    else:
        message = "an argument or a combination of arguments is refused"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=_advice(situation, arguments),
        not_advised=[
            avoid("gpu_memory_utilization", None, "the command is refused before anything is measured")
        ],
    )


def _advice(situation: Situation, arguments: str) -> list[Advice]:
    if situation.event.id == "util-out-of-range":
        return change(situation, "gpu_memory_utilization", 0.9, "down", "free", "it is a share: at most 1")
    flags = [word for word in arguments.split() if word.startswith("--")]
    removed = [flag for flag in flags if not has_flag(full_name(flag.partition("=")[0]), NEWEST)]
    why = (
        f"{removed[0]} was removed from vLLM"
        if removed
        else "this release does not have it or does not take the value"
    )
    option = f"without {arguments[:200]}" if arguments else None
    names = list(dict.fromkeys(full_name(flag.partition("=")[0]) for flag in flags))
    found = [drop("remove-flag", name, why, option) for name in names] or [
        act("remove-flag", why, option=option)
    ]
    if situation.event.id in (
        "flag-unrecognized",
        "flag-invalid-choice",
        "kv-dtype-unknown",
        "kv-dtype-invalid",
    ):
        found.append(act("upgrade-vllm", "a flag or value of a later release"))
    return found
