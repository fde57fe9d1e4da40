"""``max_num_seqs`` and ``max_num_batched_tokens`` where they are not set, by release and device.

Source: ``engine/arg_utils.py`` and ``config.py``/``config/scheduler.py`` of vLLM 0.2.0 to 0.33.0.
"""

from fitserve.memory.history import Quantities, at_least, default_batch
from fitserve.memory.options import Device
from fitserve.units import GIB

_AUTO_CHUNKED_ABOVE = 32768
_SMALL = 256


def batch_defaults(
    version: str | None,
    device: Device,
    max_model_len: int,
    *,
    is_v1: bool,
    chunked: bool | None,
    is_server: bool = True,
    is_multimodal: bool = False,
    world_size: int = 1,
) -> Quantities:
    """The two sizes that vLLM fills in.

    Args:
        version: the release.
        device: the accelerator.
        max_model_len: the resolved length.
        is_v1: the V1 engine runs.
        chunked: ``enable_chunked_prefill`` as given; None where it is not.
        is_server: the OpenAI server starts it; False for ``LLM(...)``.
        is_multimodal: the model takes more than text.
        world_size: tensor times pipeline parallel size.
    """
    if "cpu" in device.name.lower():
        return Quantities(128 * world_size, 2048 * world_size)
    if not is_v1:
        return _before_v1(version, max_model_len, chunked, is_multimodal=is_multimodal)
    found = default_batch(version, _counted_bytes(version, device), is_server=is_server)
    seqs, tokens = found.max_num_seqs, found.max_num_batched_tokens
    if not at_least(version, "0.8.0"):
        seqs, tokens = 1024, 2048
    elif not at_least(version, "0.8.4"):
        seqs = 1024
    if chunked is False and at_least(version, "0.10.1"):
        tokens = max(tokens, max_model_len)
    if at_least(version, "0.10.1"):
        tokens = min(tokens, seqs * max_model_len)
    return Quantities(seqs, tokens)


def _before_v1(
    version: str | None, max_model_len: int, chunked: bool | None, *, is_multimodal: bool
) -> Quantities:
    auto = chunks_long_contexts(version, max_model_len, is_multimodal=is_multimodal)
    if chunked or (chunked is None and auto):
        return Quantities(_SMALL, 2048 if at_least(version, "0.6.5") else 512)
    floor = 5120 if is_multimodal and at_least(version, "0.6.3") else 2048
    return Quantities(_SMALL, max(max_model_len, floor))


def chunks_long_contexts(version: str | None, max_model_len: int, *, is_multimodal: bool) -> bool:
    """True where the old engine cuts prompts up without being told to.

    Source: ``engine/arg_utils.py`` of vLLM 0.5.3 to 0.10.2; drafts, adapters and sliding windows, which prevent it too, do not
    count here.
    """
    is_long = max_model_len > _AUTO_CHUNKED_ABOVE
    return at_least(version, "0.5.3") and is_long and not is_multimodal


def _counted_bytes(version: str | None, device: Device) -> int:
    """The memory by which the release puts the device in a tier.

    By name before 0.8.5; an A100 counts as small from 0.9.0 on, a GB10 from 0.33.0 on.
    """
    name = device.name.lower()
    if not at_least(version, "0.8.5"):
        return device.total_bytes if "h100" in name or "h200" in name else 0
    if at_least(version, "0.9.0") and "a100" in name and device.total_bytes < 160 * GIB:
        return 0
    if at_least(version, "0.33.0") and device.compute_capability == (12, 1):
        return 0
    return device.total_bytes
