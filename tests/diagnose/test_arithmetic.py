"""Advice with numbers is safe: inside what was printed, in whole blocks, never a share that cannot be had."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from fitserve.diagnose.arithmetic import HIGHEST_UTILIZATION, LARGEST_DEVICE_BYTES
from fitserve.diagnose.engine import diagnose_lines
from fitserve.diagnose.finding import Advice, Diagnosis
from fitserve.facts.devices import catalogue
from fitserve.facts.line import Line

GIB = 1 << 30


def diagnose(*texts: str) -> Diagnosis:
    """The diagnosis of these bare lines."""
    return diagnose_lines(Line(number=number, text=text) for number, text in enumerate(texts, start=1))


def advice(found: Diagnosis, flag: str) -> Advice | None:
    """The advice about a flag, None if there is none."""
    return next((one for one in found.advice if one.flag == flag), None)


def too_small(length: int, needed: float, available: float, estimate: int | None = None) -> str:
    """The refusal of vLLM with these figures."""
    known = (
        f" Based on the available memory, the estimated maximum model length is {estimate}."
        if estimate
        else ""
    )
    return (
        f"ValueError: To serve at least one request with the models's max seq len ({length}), ({needed:.2f} GiB KV cache "
        f"is needed, which is larger than the available KV cache memory ({available:.2f} GiB).{known} Try increasing"
    )


@given(length=st.integers(1024, 1 << 20), per_token=st.floats(1e3, 2e6), share=st.floats(0.02, 0.99))
def test_the_advised_context_fits_the_true_cache(length: int, per_token: float, share: float) -> None:
    """Without an estimate by vLLM the advised context fits the cache behind the rounded figures, in whole blocks."""
    needed, available = length * per_token, length * per_token * share
    found = diagnose("vLLM API server version 0.8.5", too_small(length, needed / GIB, available / GIB))
    shorter = advice(found, "max_model_len")
    if shorter is None:
        return

    assert isinstance(shorter.to, int)
    assert shorter.to * per_token <= available or shorter.to < 16
    assert shorter.to % 16 == 0 or shorter.to < 16


@given(length=st.integers(2048, 1 << 20), estimate=st.integers(16, 1 << 20))
def test_vllms_estimate_is_kept_and_rounded_down(length: int, estimate: int) -> None:
    """The estimate of vLLM itself is taken in whole blocks, never more than it says."""
    estimate = min(estimate, length - 1)
    found = diagnose("vLLM API server version 0.19.1", too_small(length, 16.0, 4.97, estimate))
    shorter = advice(found, "max_model_len")

    assert shorter is not None
    assert estimate // 16 * 16 == shorter.to


@given(
    total=st.floats(8, 200),
    utilization=st.integers(10, 98),
    weights=st.floats(1, 150),
    activation=st.floats(0.1, 20),
)
def test_a_higher_share_is_never_above_what_is_safe(
    total: float, utilization: int, weights: float, activation: float
) -> None:
    """Where nothing is left for the cache, an advised share is higher than now, at most 0.95, and leaves something."""
    share = utilization / 100
    left = total * share - weights - activation
    if left > 0:
        return
    found = diagnose(
        "vLLM API server version 0.7.3",
        f"the current vLLM instance can use total_gpu_memory ({total:.2f}GiB) x gpu_memory_utilization ({share:.2f}) = 1.00GiB",
        f"model weights take {weights:.2f}GiB; non_torch_memory takes 0.00GiB; PyTorch activation peak memory takes "
        f"{activation:.2f}GiB; the rest of the memory reserved for KV Cache is {left:.2f}GiB.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
    )
    raised = advice(found, "gpu_memory_utilization")

    assert "no-kv-cache-blocks" == found.cause
    if raised is None:
        assert share >= 0.95 or left + (0.95 - share) * total < 0.02
        return
    assert isinstance(raised.to, float)
    assert share < raised.to <= 0.95
    assert left + (raised.to - share) * total > -0.02


@given(free=st.floats(1, 140), total=st.floats(8, 140), utilization=st.integers(50, 98))
def test_a_lower_share_is_free(free: float, total: float, utilization: int) -> None:
    """A share that is advised because memory is taken asks for no more than what is free."""
    share = utilization / 100
    if free >= total * share - 0.02:
        return
    found = diagnose(
        "vLLM API server version 0.16.0",
        f"ValueError: Free memory on device cuda:0 ({free:.2f}/{total:.2f} GiB) on startup is less than desired GPU memory "
        f"utilization ({share}, {total * share:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used",
    )
    lowered = advice(found, "gpu_memory_utilization")

    assert "free-other-process" in {one.action for one in found.advice}
    if lowered is not None:
        assert isinstance(lowered.to, float)
        assert lowered.to * total <= free + 1e-6


def test_a_pin_makes_utilization_inert() -> None:
    """Where bytes are pinned, the pin is what must grow, and utilization is not advised."""
    found = diagnose(
        "vLLM API server version 0.19.1",
        "non-default args: {'model': 'm', 'max_model_len': 32768, 'kv_cache_memory_bytes': 2147483648}",
        too_small(32768, 4.0, 2.0, 16384),
    )
    pin = advice(found, "kv_cache_memory_bytes")

    assert "kv-cache-pinned-too-small" == found.cause
    assert advice(found, "gpu_memory_utilization") is None
    assert pin is not None
    assert isinstance(pin.to, int)
    assert 4 * GIB <= pin.to < 4.1 * GIB


def test_options_are_typed_as_the_launch_is() -> None:
    """A script is told arguments of ``LLM(...)``, a command line is told options."""
    refusal = too_small(32768, 4.0, 2.0, 16384)
    script = diagnose(
        "Traceback (most recent call last):",
        '  File "/x/site-packages/vllm/entrypoints/llm.py", line 105, in __init__',
        "    self.llm_engine = LLMEngine.from_engine_args(engine_args)",
        refusal,
    )
    command = diagnose("$ vllm serve org/m --max-model-len 32768", refusal)

    assert "max_model_len=16384" == _option(script, "max_model_len")
    assert "--max-model-len 16384" == _option(command, "max_model_len")


def test_flags_of_other_releases_are_not_advised() -> None:
    """A flag that the boot's release does not have is not advised."""
    oom: Any = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 26.00 MiB. GPU 0 has a total capacity of 15.77 GiB "
        "of which 18.12 MiB is free."
    )
    capture = "Capturing cudagraphs for decoding. This may lead to unexpected consequences"
    old = diagnose("vLLM API server version 0.6.6", capture, oom)
    new = diagnose("vLLM API server version 0.19.0", capture, oom)

    assert advice(old, "max_cudagraph_capture_size") is None
    assert advice(new, "max_cudagraph_capture_size") is not None


def _option(found: Diagnosis, flag: str) -> str | None:
    one = advice(found, flag)
    return one.option if one else None


@given(needed=st.floats(0.5, 200), available=st.floats(0.01, 0.49))
def test_a_share_is_not_advised_that_no_device_could_give(needed: float, available: float) -> None:
    """Where the log does not show the device, a higher share is worth a try only if some device had that much in it."""
    found = diagnose("vLLM API server version 0.19.0", too_small(65536, needed, available, 4096))
    raised = advice(found, "gpu_memory_utilization")
    largest = max(device.total_gib for device in catalogue())

    assert largest * GIB <= LARGEST_DEVICE_BYTES
    if raised is None:
        assert any("none is so large" in one.why for one in found.not_advised)
    at_most = (HIGHEST_UTILIZATION - 0.9) * LARGEST_DEVICE_BYTES / GIB
    missing = round(needed, 2) - round(available, 2)
    assume(abs(missing - at_most) > 0.01)
    assert (raised is not None) == (missing < at_most)
