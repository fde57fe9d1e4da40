"""What a machine has: devices as nvidia-smi lists them, the host's memory as its node tells."""

import pytest

from fitserve.facts.host import parse_node, probe_host
from fitserve.facts.machine import parse_smi, usable_bytes
from fitserve.units import GIB, KIB, MIB


def test_a_device_whose_reserve_is_told() -> None:
    """What the driver keeps is taken off, as ``cudaMemGetInfo`` does."""
    (found,) = parse_smi("NVIDIA H100 80GB HBM3, 81559, 473, 81080, 9.0\n")

    assert (found.name, found.compute_capability) == ("NVIDIA H100 80GB HBM3", (9, 0))
    assert found.total_bytes == (81559 - 473) * MIB
    assert found.free_bytes == 81080 * MIB


def test_a_device_whose_reserve_is_not_told() -> None:
    """The catalogue's total counts for a device that it knows with that much on its board."""
    assert usable_bytes("NVIDIA L4", 23034 * MIB, 0) == round(22.04 * GIB)
    assert usable_bytes("NVIDIA L4", 8000 * MIB, 0) == 8000 * MIB
    assert usable_bytes("a device of tomorrow", 8000 * MIB, 0) == 8000 * MIB


@pytest.mark.parametrize("text", ["", "No devices were found\n", "GPU, [N/A], [N/A], [N/A], [N/A]\n"])
def test_an_answer_without_devices(text: str) -> None:
    """What is no device is none."""
    assert parse_smi(text) == ()


def test_a_name_with_a_comma() -> None:
    """Only the last fields are split off."""
    (found,) = parse_smi("Odd, Name, 1000, [N/A], 900, 8.6\n")

    assert (found.name, found.free_bytes) == ("Odd, Name", 900 * MIB)


def test_a_node_s_memory() -> None:
    """What can be reclaimed counts as available."""
    text = (
        "Node 0 MemTotal:  1000 kB\nNode 0 MemFree: 100 kB\nNode 0 Active(file): 10 kB\n"
        "Node 0 Inactive(file): 20 kB\nNode 0 SReclaimable: 3 kB\n"
    )
    found = parse_node(text)

    assert found.total_bytes == 1000 * KIB
    assert found.available_bytes == 133 * KIB


def test_this_machine_has_memory() -> None:
    """The probe answers on any machine."""
    found = probe_host()

    assert 0 < found.available_bytes <= found.total_bytes
