"""A traceback that no message of the catalogue is: its last line, and the phase it fell into."""

from fitserve.diagnose.boot import Unrecognised
from fitserve.diagnose.situation import Finding
from fitserve.diagnose.spelling import act
from fitserve.facts.messages.event import Event

CAUSE = "unrecognised-error"


def judge(error: Unrecognised) -> Finding:
    """Quote it; no number is known and no change is advised."""
    stage = "serving" if error.ready else error.phase
    text = error.line.text.strip()
    return Finding(
        cause=CAUSE,
        stage=stage,
        message=f"vLLM ended with an error that is not in the catalogue: {text[:160]}",
        event=Event(id=CAUSE, role="cause", stage=stage, line=error.line),
        confidence="possible",
        advice=[
            act("upgrade-vllm", "a defect of this release may be repaired in a later one"),
            act("show-lines-above", "the lines above the traceback may say more"),
        ],
    )
