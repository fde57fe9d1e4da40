"""What the settings set aside for LoRA adapters."""

from collections.abc import Mapping
from typing import Any

from fitserve.errors import UsageError
from fitserve.memory.given import checked, positive
from fitserve.memory.options import LoraOptions

_LARGEST_RANK = 4096
_MOST_ADAPTERS = 1 << 20


def lora_options(given: Mapping[str, Any]) -> LoraOptions | None:
    """The settings of adapters; None where they are not enabled.

    Raises:
        UsageError: a value is of the wrong kind or out of its range.
    """
    if not given.get("enable_lora"):
        return None
    values: dict[str, Any] = {}
    for name, most in (("max_loras", _MOST_ADAPTERS), ("max_lora_rank", _LARGEST_RANK)):
        if given.get(name) is not None:
            values[name] = positive(name, checked(name, given[name], int))
            if values[name] > most:
                raise UsageError(f"{name} {values[name]:,} is too large", hint=f"give at most {most:,}")
    extra = given.get("lora_extra_vocab_size")
    if extra is not None and checked("lora_extra_vocab_size", extra, int) not in (0, 256, 512):
        raise UsageError(f"lora_extra_vocab_size {extra} is not taken by vLLM", hint="give 256 or 512")
    targets = given.get("lora_target_modules")
    if targets is not None:
        values["lora_target_modules"] = tuple(
            targets if isinstance(targets, list | tuple) else [str(targets)]
        )
    switches = (
        "fully_sharded_loras",
        "enable_lora_bias",
        "enable_moe_shared_loras",
        "enable_mixed_moe_lora_format",
        "enable_tower_connector_lora",
    )
    for name in switches:
        if given.get(name) is not None:
            values[name] = checked(name, given[name], bool)
    dtype = given.get("lora_dtype")
    return LoraOptions(
        **values, lora_extra_vocab_size=extra, lora_dtype="auto" if dtype is None else str(dtype)
    )
