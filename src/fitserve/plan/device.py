"""The device of a plan: as it is described, or as this machine has it (o: the driver, this host)."""

import os

from fitserve.errors import MachineError, UsageError
from fitserve.facts.devices import find_device, other_product, similar_names
from fitserve.facts.host import probe_host
from fitserve.memory.options import Device


def host_device(total_bytes: int | None) -> Device:
    """The CPU backend with the memory given, else with this machine's."""
    if total_bytes is not None:
        return Device(name="CPU", total_bytes=total_bytes)
    found = probe_host()
    return Device(
        name="CPU", total_bytes=found.total_bytes, free_bytes=found.available_bytes, source="probed"
    )


def described_device(name: str | None, total_bytes: int | None) -> Device:
    """A device of the catalogue, or one of a given size.

    Raises:
        UsageError: the catalogue does not have it, or another product of its kind, and its size is not given.
    """
    facts = find_device(name) if name else None
    if facts is None:
        if total_bytes is None:
            similar = " or ".join(similar_names(name or ""))
            raise UsageError(
                f"no device is called {name!r}",
                where="--gpu",
                hint=(f"did you mean {similar}? Else " if similar else "")
                + "give its memory too: --gpu-total-gib 23.5",
            )
        return Device(
            name=name or "device", total_bytes=total_bytes, compute_capability=(8, 0), source="given"
        )
    word = None if total_bytes else other_product(name or "", facts)
    if word is not None:
        raise UsageError(
            f"{name!r} is no {facts.name}: {word} has another memory",
            where="--gpu",
            hint="give its memory too, as cudaMemGetInfo reports it: --gpu-total-gib 39.4",
        )
    return Device(
        name=facts.name,
        total_bytes=total_bytes or facts.total_bytes,
        compute_capability=facts.compute_capability,
        unified=facts.unified,
        multiprocessors=facts.multiprocessors,
        source="given" if total_bytes else f"catalogue, {facts.source}",
    )


def probed_device() -> tuple[Device, int]:
    """The device of this machine with the least free memory, and how many there are.

    Raises:
        MachineError: no device answers.
    """
    from fitserve.facts.machine import probe_devices
    from fitserve.facts.visible import visible

    found = visible(probe_devices(), os.environ)
    if not found:
        raise MachineError(
            "this machine has no GPU that answers, or shows none",
            hint="describe the one that is meant: --gpu H100",
        )
    tightest = min(found, key=lambda one: one.free_bytes)
    facts = find_device(tightest.name)
    device = Device(
        name=tightest.name,
        total_bytes=tightest.total_bytes,
        free_bytes=min(tightest.free_bytes, tightest.total_bytes),
        compute_capability=tightest.compute_capability or (facts.compute_capability if facts else None),
        unified=tightest.unified,
        multiprocessors=facts.multiprocessors if facts else None,
        source=tightest.source,
    )
    return device, len(found)
