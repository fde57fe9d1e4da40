"""A gated or private repository, or a bad token.

Source: huggingface_hub and transformers print these.
"""

from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid

CAUSE = "model-access-denied"
STAGE = "config"


def judge(situation: Situation) -> Finding:
    """Name the model and what is missing."""
    model = situation.case.value("model") or situation.number("model") or "the model"
    waiting = situation.event.id in (
        "access-awaiting",
        "access-not-in-list",
        "access-403",
        "access-403-forbidden",
    )
    token = act("set-hf-token", "a valid token of an account that may read it", option="HF_TOKEN")
    request = act("request-access", "its page on the hub grants access to an account")
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{model} may not be read with this token"
        if waiting
        else f"{model} may not be read without a token",
        event=situation.event,
        advice=[request, token] if waiting else [token, request],
        not_advised=[avoid("gpu_memory_utilization", None, "nothing is loaded yet")],
    )
