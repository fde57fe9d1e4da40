"""The output asked for is above ``max_model_len``.

Source: vLLM 0.10.1 to 0.33.0, ``entrypoints/openai``.
"""

from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "max-tokens-too-large"
STAGE = "request"


def judge(situation: Situation) -> Finding:
    """Name what was asked for and what is left for an answer."""
    limit, prompt, output = (
        situation.number(name) for name in ("max_model_len", "prompt_tokens", "max_tokens")
    )
    limit = limit or situation.case.whole("max_model_len")
    room = limit - (prompt or 0) if limit else None
    if output and room is not None:
        message = f"max_tokens {output:,} is above the {room:,} that the context leaves for the answer"
    else:
        message = "max_tokens is above what the context leaves for the answer"
    advice = []
    if room and room > 0:
        why = f"{limit:,} - {prompt or 0:,} tokens of prompt"
        advice += change(situation, "max_tokens", room, "down", "free", why)
    advice.append(act("shorten-prompt", "a shorter prompt leaves more for the answer"))
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        severity="warning",
        advice=advice,
        not_advised=[avoid("gpu_memory_utilization", "up", "the limit is the context, not the memory")],
    )
