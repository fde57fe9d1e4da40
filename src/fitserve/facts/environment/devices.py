"""The accelerators, their driver, and which of them a process started here would see."""

import sys
from collections.abc import Mapping

import msgspec

from fitserve.facts.environment.ask_devices import DeviceReply
from fitserve.facts.environment.bounded import ask_program
from fitserve.facts.probed import Holder
from fitserve.facts.visible import visible
from fitserve.units import Unknown

VISIBLE = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
)
_UUID_CHARACTERS = 12


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One device, or one MIG instance.

    Attributes:
        index: its number in the order of the bus.
        name: as the driver says.
        uuid: the beginning of its identity: enough for CUDA_VISIBLE_DEVICES.
        total_bytes: what vLLM reckons with as total.
        free_bytes: free now.
        compute_capability: such as ``9.0``, or an architecture such as ``gfx942``; empty where it is not told.
        mig: it is a MIG instance.
        ecc: memory errors are corrected; None where it is not told.
        unified: it shares the host's memory.
        processes: who holds its memory.
        source: who told.
    """

    index: int
    name: str
    uuid: str
    total_bytes: int
    free_bytes: int
    compute_capability: str
    mig: bool
    ecc: bool | None
    unified: bool
    processes: tuple[Holder, ...]
    source: str


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """All of them.

    Attributes:
        gpus: in the order of the bus.
        driver: its version; empty where there is none.
        runtime: the newest CUDA or ROCm that it runs.
        selection: the variables that choose devices, as they are set here.
        visible: positions in ``gpus`` that a process started here sees, in its order.
    """

    gpus: tuple[Gpu, ...]
    driver: str
    runtime: str
    selection: dict[str, str]
    visible: tuple[int, ...]


def probe(environ: Mapping[str, str], seconds: float) -> Devices | Unknown:
    """Ask in a process of its own, which is killed at the limit."""
    answer = ask_program([sys.executable, "-m", "fitserve.facts.environment.ask_devices"], seconds)
    if isinstance(answer, Unknown):
        return Unknown(f"the driver was asked, {answer.unknown.removeprefix(sys.executable)}")
    try:
        reply = msgspec.json.decode(answer, type=DeviceReply)
    except msgspec.MsgspecError as error:
        return Unknown(f"what was asked of the driver cannot be read: {error}")
    return described(reply, environ)


def described(reply: DeviceReply, environ: Mapping[str, str]) -> Devices:
    """The reply as it is shown, and what the environment's variables make of it."""
    seen = visible(reply.devices, environ)
    return Devices(
        gpus=tuple(
            Gpu(
                index=one.index,
                name=one.name,
                uuid=one.uuid[:_UUID_CHARACTERS],
                total_bytes=one.total_bytes,
                free_bytes=one.free_bytes,
                compute_capability=(
                    ".".join(map(str, one.compute_capability)) if one.compute_capability else one.architecture
                ),
                mig=bool(one.parent),
                ecc=reply.driver.ecc.get(one.parent or one.uuid),
                unified=one.unified,
                processes=one.processes,
                source=one.source,
            )
            for one in reply.devices
        ),
        driver=reply.driver.version,
        runtime=reply.driver.runtime,
        selection={name: environ[name] for name in VISIBLE if name in environ},
        visible=tuple(reply.devices.index(one) for one in seen),
    )
