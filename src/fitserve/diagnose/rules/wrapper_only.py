"""Only the echo of a failure is in the log: the cause stands above what was given.

Source: vLLM's front end, executors and Ray print these when something else died.
"""

from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act

CAUSE = "wrapper-only"
STAGE = "unknown"


def judge(situation: Situation) -> Finding:
    """Say where to look."""
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message="the log only says that something else died; what died first stands above it or in another log",
        event=None,
        confidence="likely",
        support=situation.boot.wrappers[:3],
        advice=[
            act(
                "show-lines-above",
                "the first traceback of EngineCore or of a worker names the cause; in Kubernetes it may be the previous container's",
                option="kubectl logs --previous",
            )
        ],
    )
