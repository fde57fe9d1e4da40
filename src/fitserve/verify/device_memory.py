"""(o) The devices' memory around a verification, where the server is on this machine."""

import asyncio

import msgspec

from fitserve.verify.target import Target


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one device at one moment, whoever holds it.

    Attributes:
        index: the device's number.
        name: as the driver says.
        used_bytes: everything that is not free.
        total_bytes: all of it.
    """

    index: int
    name: str
    used_bytes: int
    total_bytes: int


async def read_device_memory(target: Target) -> list[DeviceMemory]:
    """Each device of this machine; empty where there is none, or where the server is on another machine."""
    if not target.loopback:
        return []
    return await asyncio.to_thread(_read)


def _read() -> list[DeviceMemory]:
    from fitserve.facts.machine import probe_devices

    return [
        DeviceMemory(
            index=device.index,
            name=device.name,
            used_bytes=device.total_bytes - device.free_bytes,
            total_bytes=device.total_bytes,
        )
        for device in probe_devices()
    ]
