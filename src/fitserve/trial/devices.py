"""How many devices a launch would see (o: NVML, the environment)."""

import os
from collections.abc import Mapping


def visible_devices(environ: Mapping[str, str] = os.environ) -> int | None:
    """The number of NVIDIA devices that ``CUDA_VISIBLE_DEVICES`` leaves; None without a driver that says it."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        present = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return present
    return min(present, len([name for name in named.split(",") if name.strip()]))
