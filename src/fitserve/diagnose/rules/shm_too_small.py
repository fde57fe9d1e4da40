"""``/dev/shm`` or the container's shared memory is too small.

Source: vLLM ``distributed/device_communicators/shm_broadcast.py``; Python, NCCL and PyTorch print the errors; 0.27.0 and
later check before.
"""

from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid

CAUSE = "shm-too-small"
STAGE = "environment"


def judge(situation: Situation) -> Finding:
    """Name the segment, and the size that the container must be given."""
    required, free = situation.number("required_mib"), situation.number("free_mib")
    if required is not None and free is not None:
        message = f"the shared memory has {free:,} MiB free, {required:,} MiB is needed"
    else:
        message = "the shared memory is too small for the segments that the ranks need"
    ranks = situation.case.whole("tensor_parallel_size") or 1
    why = f"{ranks} ranks share segments there" if ranks > 1 else "processes of vLLM share segments there"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        confidence="certain" if situation.event.weight > 2 else "likely",
        advice=[
            act(
                "raise-shm-size",
                f"{why}; a container has 64 MiB by default",
                option="--shm-size 16g (or --ipc=host)",
            )
        ],
        not_advised=[
            avoid(
                "gpu_memory_utilization",
                None,
                "host memory shared between processes is short, not the device's",
            ),
        ],
    )
