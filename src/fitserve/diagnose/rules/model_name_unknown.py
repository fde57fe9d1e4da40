"""404: the name in the request is not a served name.

Source: vLLM 0.2.0 to 0.33.0, ``entrypoints/openai``; 0.32.0 and later lists the served names.
"""

from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "model-name-unknown"
STAGE = "request"


def judge(situation: Situation) -> Finding:
    """Name what was asked for and what is served."""
    asked = situation.number("requested_model")
    served = (
        situation.number("served_names")
        or situation.case.value("served_model_name")
        or situation.case.value("model")
    )
    names = str(served).split("', type=")[0].strip("'\"[] ") if served else ""
    of = f"; served: {names[:200]}" if names else ""
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"the request names {asked}, which is not served{of}",
        event=situation.event,
        severity="warning",
        advice=[
            act("use-served-name", f"GET /v1/models lists the names{of}"),
            *change(
                situation,
                "served_model_name",
                str(asked),
                "set",
                "free",
                "the server then answers to that name",
            ),
        ],
        not_advised=[avoid("gpu_memory_utilization", "up", "the server runs; the name is wrong")],
    )
