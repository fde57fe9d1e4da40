"""A prompt, or prompt plus output, is above ``max_model_len``.

Source: vLLM 0.2.0 to 0.33.0, ``entrypoints/openai``, ``engine`` and the V0 scheduler.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.rules import max_tokens_too_large
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "request-too-long"
STAGE = "request"


def judge(situation: Situation) -> Finding:
    """Name the request's tokens and the limit."""
    limit, prompt, output = (
        situation.number(name) for name in ("max_model_len", "prompt_tokens", "max_tokens")
    )
    if limit and output and output >= limit and (prompt is None or prompt < limit):
        return max_tokens_too_large.judge(situation)
    total = situation.number("requested_tokens") or ((prompt or 0) + (output or 0)) or None
    asked = f"{total:,} tokens" if total else "more tokens"
    bound = f"max_model_len {limit:,}" if limit else "max_model_len"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"a request of {asked} is above {bound}",
        event=situation.event,
        severity="warning",
        numbers={"requested_tokens": total} if total else {},
        advice=_advice(situation, limit, prompt, output, total),
        not_advised=[avoid("gpu_memory_utilization", "up", "the limit is the context, not the memory")],
    )


def _advice(
    situation: Situation, limit: int | None, prompt: int | None, output: int | None, total: int | None
) -> list[Advice]:
    found = [act("shorten-prompt", f"at most {limit:,} tokens, with the answer" if limit else "fewer tokens")]
    if limit and prompt and output and prompt < limit:
        found = (
            change(
                situation,
                "max_tokens",
                limit - prompt,
                "down",
                "free",
                f"{limit:,} - {prompt:,} tokens of prompt",
            )
            + found
        )
    if total and limit and total > limit:
        why = f"{total:,} tokens were asked for; the model's config and the KV cache must allow it"
        found += change(situation, "max_model_len", total, "up", "capacity", why)
    return found
