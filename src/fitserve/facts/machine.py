"""The accelerators of this machine, asked from whichever driver answers: NVIDIA's, else AMD's."""

from fitserve.facts.amd import ask_amd_smi, ask_amdsmi, ask_rocm_smi
from fitserve.facts.nvidia import ask_nvml, ask_smi
from fitserve.facts.probed import ProbedDevice

_ASK = (ask_nvml, ask_smi, ask_amdsmi, ask_amd_smi, ask_rocm_smi)


def probe_devices() -> tuple[ProbedDevice, ...]:
    """Every device of this machine; empty where there is none or no driver answers.

    A library that is there without its driver is no error: the next one is asked.
    """
    for ask in _ASK:
        found = ask()
        if found:
            return found
    return ()
