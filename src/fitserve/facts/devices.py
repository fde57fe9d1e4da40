"""The catalogue of devices: what ``cudaMemGetInfo`` reports there, which is less than the box says.

A total is ``measured`` where a start-up log of vLLM printed it for that device, and ``computed`` where it is the board's
memory (``board_mib``, what ``nvidia-smi`` shows) less what the driver keeps: 0.24 GiB to 12 GiB, 0.35 to 16, 0.45 to 40, 0.6
above, as on the measured devices; nothing on AMD and unified memory. It differs by up to 0.2 GiB with driver and
platform: under WSL2 the driver keeps nothing.

Source: measured starts of vLLM 0.6 to 0.28; compute capabilities and multiprocessors as the makers publish them.
"""

import re
from functools import cache
from pathlib import Path

import msgspec

from fitserve.units import GIB

_PART = re.compile(r"\d+g|mig|\d+[abcq]|laptop|mobile|maxq")
"""Words of MIG's and vGPU's profiles, and of notebooks."""

_MEMORY_TOLERANCE = 0.08
"""Names round the memory on the board: 24GB is 22.5 GiB of an A10, 192GB 179 GiB of a B200."""


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the catalogue.

    Attributes:
        name: its product name.
        matches: the words that name it, lower case.
        total_gib: what ``cudaMemGetInfo`` reports as total.
        board_mib: the memory on the board, as ``nvidia-smi`` shows it.
        capability: such as ``9.0``; None where it is not a CUDA device.
        multiprocessors: streaming multiprocessors or compute units.
        unified: it shares the host's memory.
        source: ``measured`` or ``computed``.
    """

    name: str
    matches: tuple[str, ...]
    total_gib: float
    board_mib: int
    capability: str | None
    multiprocessors: int | None
    unified: bool
    source: str

    @property
    def total_bytes(self) -> int:
        """What ``cudaMemGetInfo`` reports as total."""
        return round(self.total_gib * GIB)

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """Such as (9, 0); None where it is not a CUDA device."""
        if self.capability is None:
            return None
        major, _, minor = self.capability.partition(".")
        return int(major), int(minor)


@cache
def catalogue() -> tuple[DeviceFacts, ...]:
    """Every device of the table."""
    text = Path(__file__).with_name("devices.json").read_bytes()
    return tuple(msgspec.json.decode(text, type=list[DeviceFacts]))


def find_device(name: str) -> DeviceFacts | None:
    """The device that a name means: the entry with the most of its words in it.

    Args:
        name: in any spelling: ``H100``, ``NVIDIA H100 80GB HBM3``, ``rtx4090``, ``DGX-Spark``.
    """
    words = _words(name)
    found = [
        (len(match.split()), len(match), device)
        for device in catalogue()
        for match in device.matches
        if _words(match) <= words
    ]
    return max(found, key=lambda item: item[:2])[2] if found else None


def other_product(name: str, device: DeviceFacts) -> str | None:
    """The word of a name that makes it another product than the device it was found as; None where there is none.

    A slice of a device, a virtual or a mobile one, or another amount of memory: none of them has the device's own.
    """
    own = _words(device.name).union(*map(_words, device.matches))
    for word in sorted(_words(name) - own):
        memory = re.fullmatch(r"(\d+)gb", word)
        board_gb = device.board_mib / 1024
        if memory and abs(int(memory[1]) - board_gb) > _MEMORY_TOLERANCE * board_gb:
            return word
        if not memory and _PART.fullmatch(word):
            return word
    return None


def similar_names(name: str) -> list[str]:
    """The names of the table that are spelled most like one that it does not have; at most three."""
    import difflib

    spellings = {match: device.name for device in catalogue() for match in device.matches}
    found = difflib.get_close_matches(name.lower(), spellings, n=3, cutoff=0.5)
    return list(dict.fromkeys(spellings[match] for match in found))


def _words(text: str) -> frozenset[str]:
    """Its words, lower case; a maker's series and a memory size count apart from the number: ``rtx4090`` is two words."""
    spaced = re.sub(r"[^a-z0-9]+", " ", text.lower())
    spaced = re.sub(r"\b(rtx|gtx|rx|pro)(?=\d)", r"\1 ", spaced)
    spaced = re.sub(r"\b(\d+) (gb|gib)\b", r"\1gb", spaced)
    return frozenset(re.sub(r"(?<=\d)(ti|super)\b", r" \1", spaced).split())
