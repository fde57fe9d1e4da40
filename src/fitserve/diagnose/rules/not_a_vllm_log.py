"""The text is something else: no line is vLLM's."""

from fitserve.diagnose.situation import Finding, Situation

CAUSE = "not-a-vllm-log"
STAGE = "-"


def judge(situation: Situation) -> Finding:
    """Say what was looked for."""
    lines = situation.boot.lines
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"none of the {lines:,} lines is vLLM's" if lines else "the log is empty",
        event=None,
        severity="note",
        confidence="likely",
    )
