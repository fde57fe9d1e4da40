"""What can go wrong on a machine beside memory: where, and with which words.

Source: PyTorch, NCCL, safetensors, ``huggingface_hub``; ``v1/engine/core.py`` and ``v1/executor/multiproc_executor.py`` of vLLM.
"""

from typing import Literal

import msgspec

Step = Literal["device", "load", "profile"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of a start.

    Attributes:
        cause: for whoever tests a reader of the log.
        step: during which it comes.
        frames: where it is raised.
        error: the last lines of its traceback.
        needs_ranks: it takes more than one rank.
    """

    cause: str
    step: Step
    frames: tuple[str, ...]
    error: str
    needs_ranks: bool = False


FAULTS: dict[str, Fault] = {
    "broken-checkpoint": Fault(
        cause="checkpoint-broken",
        step="load",
        frames=("load",),
        error="safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
    ),
    "disk-full": Fault(
        cause="disk-full",
        step="load",
        frames=("load",),
        error="OSError: [Errno 28] No space left on device",
    ),
    "old-driver": Fault(
        cause="cuda-driver-mismatch",
        step="device",
        frames=(),
        error=(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by "
            "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: "
            "https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver."
        ),
    ),
    "no-kernel": Fault(
        cause="cuda-driver-mismatch",
        step="profile",
        frames=("profile",),
        error=(
            "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be "
            "asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider "
            "passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
        ),
    ),
    "nccl": Fault(
        cause="nccl-failed",
        step="device",
        frames=(),
        error=(
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system "
            "error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclSystemError: System call (e.g. socket, malloc) or "
            "external library call failed or device error."
        ),
        needs_ranks=True,
    ),
    "no-compiler": Fault(
        cause="kernel-compile-failed",
        step="profile",
        frames=("profile",),
        error=(
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl."
        ),
    ),
    "small-shm": Fault(
        cause="shm-too-small",
        step="device",
        frames=(),
        error="OSError: [Errno 28] No space left on device: '/dev/shm/psm_7f3a91c2'",
        needs_ranks=True,
    ),
}

SILENT = ("hangs", "log-flood", "host-memory", "never-schedules", "worker-dies")
"""Faults without a traceback: a start that hangs after its weights; one that prints without end; a killed engine; a server whose
requests wait for ever; one whose engine is gone with the first request."""


def is_known(name: str) -> bool:
    """True where a fault is one of these."""
    return name in FAULTS or name in SILENT
