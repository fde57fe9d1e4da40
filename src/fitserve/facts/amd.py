"""AMD's devices, from the package ``amdsmi``, or from ``amd-smi`` or ``rocm-smi`` where it is not installed.

``hipMemGetInfo`` reports the whole memory as total, and as free what no process holds: the driver keeps nothing back that its total counts.

Source: ``amdsmi_interface.py`` of amdsmi 7.0.2; ``amd-smi static|metric|process --json``, ``rocm-smi --json``. Read from sources and
documented answers, not tried on a device.
"""

import importlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from fitserve.facts.probed import Holder, ProbedDevice, with_owner

_SECONDS = 30.0
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "": 1 << 20}
_UNKNOWN = ("", "N/A", "None")


def ask_amdsmi() -> tuple[ProbedDevice, ...] | None:
    """What the package says; None where it, its library or the driver is not there."""
    try:
        smi: Any = importlib.import_module("amdsmi")
        smi.amdsmi_init()
    except Exception:  # noqa: BLE001 -- a foreign library: whatever it raises, the next one is asked
        return None
    try:
        return tuple(
            _describe(smi, handle, index) for index, handle in enumerate(smi.amdsmi_get_processor_handles())
        )
    except Exception:  # noqa: BLE001 -- the same
        return None
    finally:
        _quietly(smi.amdsmi_shut_down)


def _describe(smi: Any, handle: Any, index: int) -> ProbedDevice:
    asic = _quietly(smi.amdsmi_get_gpu_asic_info, handle) or {}
    kind = smi.AmdSmiMemoryType.VRAM
    total, used = smi.amdsmi_get_gpu_memory_total(handle, kind), smi.amdsmi_get_gpu_memory_usage(handle, kind)
    return ProbedDevice(
        index=index,
        name=_known(asic.get("market_name")) or "AMD GPU",
        total_bytes=int(total),
        free_bytes=max(0, int(total) - int(used)),
        compute_capability=None,
        source="amdsmi",
        uuid=_known(_quietly(smi.amdsmi_get_gpu_device_uuid, handle)),
        architecture=_known(asic.get("target_graphics_version")),
        processes=_holders(_quietly(smi.amdsmi_get_gpu_process_list, handle) or []),
    )


def _quietly(ask: Any, *arguments: Any) -> Any:
    """The answer; None where the library raises."""
    try:
        return ask(*arguments)
    except Exception:  # noqa: BLE001 -- a foreign library
        return None


def _known(value: object) -> str:
    text = str(value) if value is not None else ""
    return "" if text in _UNKNOWN else text


def _holders(processes: list[Any]) -> tuple[Holder, ...]:
    """Processes as the package or ``amd-smi process`` lists them."""
    found = []
    for entry in processes:
        one = entry.get("process_info", entry) if isinstance(entry, Mapping) else None
        if not isinstance(one, Mapping) or not isinstance(one.get("pid"), int):
            continue
        memory = one.get("memory_usage")
        held = _bytes(memory.get("vram_mem"), "b") if isinstance(memory, Mapping) else None
        found.append(with_owner(int(one["pid"]), _known(one.get("name")), held))
    return tuple(found)


def _bytes(value: object, unit: str = "") -> int | None:
    """A size: a number, or an object with ``value`` and ``unit``; a number's own unit is MiB unless another is named."""
    if isinstance(value, Mapping):
        return _bytes(value.get("value"), str(value.get("unit", "")).lower())
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or unit not in _UNITS:
        return None
    return int(value * _UNITS[unit])


def ask_amd_smi() -> tuple[ProbedDevice, ...]:
    """What the program ``amd-smi`` says; empty where it is not there or does not answer."""
    program = shutil.which("amd-smi")
    if program is None:
        return ()
    answers = [_run(program, *words, "--json") for words in (("static",), ("metric", "-m"), ("process",))]
    return parse_amd_smi(*answers)


def ask_rocm_smi() -> tuple[ProbedDevice, ...]:
    """What the older program ``rocm-smi`` says; empty where it is not there or does not answer."""
    program = shutil.which("rocm-smi")
    if program is None:
        return ()
    text = _run(program, "--showproductname", "--showmeminfo", "vram", "--showuniqueid", "--json")
    return parse_rocm_smi(text, _run(program, "--showpids", "--json"))


def _run(program: str, *arguments: str) -> str:
    try:
        answer = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return answer.stdout


def _json(text: str) -> Any:
    """The JSON in an answer, behind warnings that may stand before it; None where there is none."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    try:
        return json.loads(text[min(starts) :]) if starts else None
    except (ValueError, RecursionError):
        return None


def _by_gpu(text: str) -> dict[int, Mapping[str, Any]]:
    """Each device's part of an answer of ``amd-smi``; from ROCm 7 on it stands below ``gpu_data``."""
    found = _json(text)
    if isinstance(found, Mapping):
        found = found.get("gpu_data")
    parts = found if isinstance(found, list) else []
    return {one["gpu"]: one for one in parts if isinstance(one, Mapping) and isinstance(one.get("gpu"), int)}


def _part(place: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    found = (place or {}).get(name)
    return found if isinstance(found, Mapping) else {}


def parse_amd_smi(static: str, metric: str, process: str = "") -> tuple[ProbedDevice, ...]:
    """The devices in three answers of ``amd-smi --json``; one without a size is left out."""
    facts, use, held = _by_gpu(static), _by_gpu(metric), _by_gpu(process)
    found = []
    for index in sorted(facts.keys() | use.keys()):
        memory, asic = _part(use.get(index), "mem_usage"), _part(facts.get(index), "asic")
        size = _part(facts.get(index), "vram").get("size")
        total = _bytes(memory.get("total_vram")) or _bytes(size)
        used = _bytes(memory.get("used_vram"))
        if not total:
            continue
        processes = (held.get(index) or {}).get("process_list")
        found.append(
            ProbedDevice(
                index=index,
                name=_known(asic.get("market_name")) or "AMD GPU",
                total_bytes=total,
                free_bytes=max(0, total - (used or 0)),
                compute_capability=None,
                source="amd-smi",
                uuid=_known(
                    _part(facts.get(index), "ids").get("uuid") or (facts.get(index) or {}).get("uuid")
                ),
                architecture=_known(asic.get("target_graphics_version")),
                processes=_holders(processes if isinstance(processes, list) else []),
            )
        )
    return tuple(found)


def parse_rocm_smi(text: str, processes: str = "") -> tuple[ProbedDevice, ...]:
    """The devices in an answer of ``rocm-smi --json``.

    Which device a process is on is not told: with one device it is that one, with several nobody is named.
    """
    cards = _json(text)
    found = []
    for name, card in cards.items() if isinstance(cards, Mapping) else []:
        number = str(name).removeprefix("card")
        if not number.isdecimal() or not isinstance(card, Mapping):
            continue
        total, used = (_bytes(card.get(f"VRAM Total {word}Memory (B)"), "b") for word in ("", "Used "))
        if not total:
            continue
        found.append(
            ProbedDevice(
                index=int(number),
                name=_known(card.get("Card Series") or card.get("Card series")) or "AMD GPU",
                total_bytes=total,
                free_bytes=max(0, total - (used or 0)),
                compute_capability=None,
                source="rocm-smi",
                uuid=_unique(card.get("Unique ID")),
                architecture=_known(card.get("GFX Version")),
                processes=_rocm_holders(processes) if len(cards) == 1 else (),
            )
        )
    return tuple(sorted(found, key=lambda one: one.index))


def _unique(value: object) -> str:
    """The identity as ``ROCR_VISIBLE_DEVICES`` takes it."""
    text = _known(value).lower().removeprefix("0x")
    return f"GPU-{text}" if text else ""


def _rocm_holders(text: str) -> tuple[Holder, ...]:
    """Lines ``PID4711: name, devices, bytes, ...``."""
    system = _part(_json(text), "system")
    found = []
    for key, value in system.items():
        pid, fields = str(key).removeprefix("PID"), str(value).rsplit(",", 4)
        if pid.isdecimal() and len(fields) == 5:
            held = fields[2].strip()
            found.append(with_owner(int(pid), fields[0].strip(), int(held) if held.isdecimal() else None))
    return tuple(found)
