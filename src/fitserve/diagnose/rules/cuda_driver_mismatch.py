"""The driver or the runtime is too old for the build, or the build has no kernels for the device.

Source: CUDA, PyTorch and the loader print these; vLLM only passes them on.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid

CAUSE = "cuda-driver-mismatch"
STAGE = "environment"
_KERNELS = (
    "no-kernel-image",
    "torch-capability-unsupported",
    "device-kernel-image",
    "hip-invalid-function",
    "hip-no-kernel-image",
    "cuda-invalid-function",
    "rocblas-no-library",
)
_COMPAT = ("driver-forward-compat", "driver-unsupported-display")
_FABRIC = ("driver-fabric", "driver-system-not-ready")
_LIBRARIES = ("undefined-symbol", "glibc-too-old", "libcudart-missing", "lib-missing")


def judge(situation: Situation) -> Finding:
    """Tell the build, the driver and the libraries apart."""
    message, advice = _answer(situation)
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=advice,
        not_advised=[avoid("gpu_memory_utilization", None, "nothing has asked for memory yet")],
    )


def _answer(situation: Situation) -> tuple[str, list[Advice]]:
    name = situation.event.id
    older = act("older-image", "an image built for the CUDA release of this driver")
    if name in _KERNELS:
        capability = situation.number("capability")
        of_what = f" of capability {capability}" if capability else ""
        newer = act("newer-vllm-build", "a build whose PyTorch holds kernels for this device")
        return f"this build has no kernels for the device{of_what}", [newer, older]
    if name in _COMPAT:
        remove = act(
            "remove-compat-libs",
            "libcuda of the image's cuda-compat folder is loaded instead of the driver's",
            option="unset LD_LIBRARY_PATH; rm /etc/ld.so.conf.d/*cuda*compat*",
        )
        return "the image's compatibility libraries do not fit this driver", [
            remove,
            act("update-driver", "same release"),
        ]
    if name in _FABRIC:
        why = "the fabric manager must run, in the driver's release"
        return "the device's fabric is not initialised", [act("update-driver", why), act("restart", why)]
    if name in _LIBRARIES:
        newer = act("newer-vllm-build", "a build for this system's PyTorch, CUDA and C libraries")
        return "a library does not fit this build", [newer, older]
    driver = situation.number("driver_version")
    found = f" (found {driver})" if driver else ""
    update = act("update-driver", "the build's CUDA release asks for a newer driver")
    return f"the driver is too old for this build{found}", [update, older]
