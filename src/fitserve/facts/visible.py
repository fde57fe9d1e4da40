"""Which of a machine's devices a process sees, and in which order.

NVIDIA: ``CUDA_VISIBLE_DEVICES`` names indices, the beginnings of uuids, or MIG instances; the first entry that means nothing ends the
list, and a device named twice leaves none. Indices count in the order of the bus with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, else the fastest
device first: which one that is, only CUDA knows; here the newest generation comes first, then the largest memory. AMD:
``ROCR_VISIBLE_DEVICES`` chooses first, ``HIP_VISIBLE_DEVICES`` or ``CUDA_VISIBLE_DEVICES`` among what it leaves.

Source: CUDA's programming guide ("CUDA Environment Variables"), the MIG user guide, ROCm's "GPU isolation techniques".
"""

from collections.abc import Mapping, Sequence

from fitserve.facts.probed import ProbedDevice

_AMD = ("amdsmi", "amd-smi", "rocm-smi")


def visible(devices: Sequence[ProbedDevice], environ: Mapping[str, str]) -> tuple[ProbedDevice, ...]:
    """The devices that a process with this environment sees, in its order.

    Args:
        devices: all of the machine, in the order of the bus.
        environ: the process's variables.
    """
    if any(one.source in _AMD for one in devices):
        left = _chosen(tuple(devices), environ.get("ROCR_VISIBLE_DEVICES"))
        name = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environ else "CUDA_VISIBLE_DEVICES"
        return _chosen(left, environ.get(name))
    ordered = sorted(devices, key=lambda one: one.index)
    if environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        ordered.sort(key=lambda one: (one.compute_capability or (0, 0), one.total_bytes), reverse=True)
    asked = environ.get("CUDA_VISIBLE_DEVICES")
    whole = tuple(one for one in ordered if not one.parent)
    parts = tuple(one for one in ordered if one.parent)
    if asked is None:
        # A process computes on one MIG instance at most, and only where no whole device is there.
        return whole or parts[:1]
    return _chosen(whole or parts, asked, parts=parts)


def _chosen(
    devices: tuple[ProbedDevice, ...], asked: str | None, *, parts: tuple[ProbedDevice, ...] = ()
) -> tuple[ProbedDevice, ...]:
    if asked is None:
        return devices
    found: list[ProbedDevice] = []
    for entry in asked.split(","):
        device = _named(devices, parts, entry.strip())
        if device is None:
            break
        if device in found:
            return ()
        found.append(device)
    return tuple(found)


def _named(
    devices: tuple[ProbedDevice, ...], parts: tuple[ProbedDevice, ...], entry: str
) -> ProbedDevice | None:
    """What an entry means: an index, or the beginning of exactly one uuid."""
    if entry.isdecimal():
        return devices[int(entry)] if int(entry) < len(devices) else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    pool = parts if entry.startswith("MIG-") else devices
    matching = [one for one in pool if one.uuid.lower().startswith(entry.lower())]
    return matching[0] if len(matching) == 1 else None
