"""No device is visible: driver, container runtime, ``CUDA_VISIBLE_DEVICES``, a MIG id.

Source: vLLM 0.6.2 and later (``Failed to infer device type``), PyTorch, the container runtime.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change
from fitserve.facts.settings import Setting

CAUSE = "no-gpu-visible"
STAGE = "environment"
_IDS = ("mig-visible-devices-int", "gpu-uuid-visible-devices-int")


def judge(situation: Situation) -> Finding:
    """Name what hides the device."""
    visible = situation.case.settings.get("CUDA_VISIBLE_DEVICES")
    if situation.event.id in _IDS:
        message = "CUDA_VISIBLE_DEVICES holds a MIG or GPU id, and this version reads it as a number"
        advice = [
            *change(situation, "CUDA_VISIBLE_DEVICES", "0", "set", "free", "an index instead of an id"),
            act(
                "start-container-with-gpus",
                "hand the container the one MIG device and leave the variable alone",
            ),
        ]
    else:
        message = _message(visible)
        advice = _advice(situation, visible)
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=advice,
        not_advised=[
            avoid("gpu_memory_utilization", None, "there is no device whose memory could be shared")
        ],
    )


def _message(visible: Setting | None) -> str:
    if visible is not None:
        return f"no GPU is visible; CUDA_VISIBLE_DEVICES is {visible.value!r}"
    return "no GPU is visible to this process"


def _advice(situation: Situation, visible: Setting | None) -> list[Advice]:
    container = act(
        "start-container-with-gpus",
        "a container sees no device unless its runtime hands one over",
        option="docker run --gpus all ...",
    )
    variable = change(
        situation, "CUDA_VISIBLE_DEVICES", "0", "set", "free", "it must name a device that nvidia-smi lists"
    )
    driver = act("update-driver", "nvidia-smi must list the device on the host first")
    return [*variable, container, driver] if visible is not None else [container, *variable, driver]
