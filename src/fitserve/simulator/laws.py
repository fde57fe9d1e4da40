"""What a start takes of a device: measured figures, and simple laws by which they follow the settings; pure functions.

Each machine differs a little from the measured one: the seed draws how much. Nothing here is shared with the planner.

Source: the measured starts in ``data/models.json``; activation before and since 0.17: 5.64 and 2.23 GiB (Qwen3-14B, same settings); the
share of tokens: 2.02 GiB for 32,768 tokens (Qwen2.5-1.5B); non-torch memory with NVLink: 0.55 GiB up to 0.17, 2.07 to 2.21 since.
"""

import math
import random

import msgspec

from fitserve.simulator.machine import Device
from fitserve.simulator.models import Measured, Model
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import GIB, Settings

_RUN_SEQS, _RUN_TOKENS = 1024, 8192
_SORTING = 5.64 / 2.23
_NVLINK = ("H100", "H200", "A100", "V100", "B200")


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What each rank takes, bytes.

    Attributes:
        context: before vLLM looks at the device for the first time.
        weights: the model.
        non_torch: what libraries take while the model runs.
        activation: the most at once in the profile run.
        sampler: what warming up the sampler for ``max_num_seqs`` takes.
        serving: the most at once when a full batch is served.
        images: what the encoder's profile run takes.
        graphs: of all captured graphs.
        estimate: what vLLM reckons for them.
    """

    context: int
    weights: int
    non_torch: int
    activation: int
    sampler: int
    serving: int
    images: int
    graphs: int
    estimate: int


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How a machine differs from the measured ones: the same for every start on it, whatever the settings.

    Attributes:
        weights, activation, graphs, estimate, non_torch: factors.
        wide, deep: how many inner and outer widths of a token live at once in the layers.
        lump: the estimate over the graphs where neither is measured.
        small: GiB of libraries on small devices.
        image: GiB that the encoder takes of its largest image.
        context, links, switch: GiB of the CUDA context, and of the links between ranks with and without NVLink.
    """

    weights: float
    activation: float
    graphs: float
    estimate: float
    non_torch: float
    wide: float
    deep: float
    lump: float
    small: float
    context: float
    links: float
    switch: float
    image: float


def draw_noise(model: Model, device: Device, seed: int) -> Noise:
    """The noise of a machine with that seed."""
    dice = random.Random(f"{seed} {model.name} {device.name}")  # noqa: S311 -- noise, no secret
    return Noise(
        weights=dice.uniform(0.998, 1.004),
        activation=dice.uniform(0.97, 1.04),
        graphs=dice.uniform(0.85, 1.2),
        estimate=dice.uniform(0.9, 1.1),
        non_torch=dice.uniform(0.9, 1.1),
        wide=dice.uniform(2.8, 3.2),
        deep=dice.uniform(3.7, 4.6),
        lump=dice.choice([0.75, 0.85, 0.9, 1.0, 1.0, 1.1, 1.9]),
        small=dice.uniform(0.03, 0.16),
        context=dice.uniform(0.3, 0.45),
        links=dice.uniform(0.95, 1.5),
        switch=dice.uniform(0.15, 0.3),
        image=dice.uniform(0.55, 0.9),
    )


def needs(model: Model, settings: Settings, device: Device, seed: int) -> Needs:
    """What a start takes of each device of a machine with that seed."""
    noise = draw_noise(model, device, seed)
    row = closest(model, settings)
    sampler, forward = batch_bytes(model, settings, row, noise)
    full_sampler = sampler
    if runs_second_runner(settings):
        sampler *= 2 / 14
    images = settings.image_items * noise.image * GIB
    graphs, estimate = graph_bytes(model, settings, row, device, noise)
    return Needs(
        context=math.ceil(context_gib(settings, device, noise) * GIB),
        weights=math.ceil(weight_bytes(model, settings, row) * noise.weights),
        non_torch=math.ceil(non_torch_gib(settings, device, noise) * GIB),
        activation=math.ceil(max(sampler, forward, images)),
        images=math.ceil(images),
        sampler=0 if runs_second_runner(settings) else math.ceil(sampler * 0.8),
        serving=math.ceil(max(full_sampler * 0.6, forward)),
        graphs=math.ceil(graphs),
        estimate=math.ceil(estimate),
    )


def closest(model: Model, settings: Settings) -> Measured:
    """The measured start that is nearest: the same division over devices, then the same side of 0.17."""

    def distance(row: Measured) -> tuple[float, ...]:
        old = not at_least(row.vllm_version or "0.11.0", "0.17.0") if _is_release(row.vllm_version) else True
        return (
            abs(math.log2(row.tensor_parallel_size / settings.tensor_parallel_size)),
            abs(math.log2(row.pipeline_parallel_size / settings.pipeline_parallel_size)),
            old == at_least(settings.version, "0.17.0"),
        )

    return min(model.measured, key=distance)


def _is_release(version: str | None) -> bool:
    return version is not None and all(part.isdecimal() for part in version.split("."))


def runs_second_runner(settings: Settings) -> bool:
    """True where the second model runner is the default, whose profile run does not sample as it serves (0.29 and newer)."""
    return at_least(settings.version, "0.29.0")


def weight_bytes(model: Model, settings: Settings, row: Measured) -> float:
    """The weights of a rank: the measured ones, divided otherwise, and quantised or offloaded where that is asked."""
    embedding = model.text["vocab_size"] * model.text["hidden_size"] * 2
    measured = row.weights_gib * GIB
    whole = measured * row.tensor_parallel_size * 0.996
    if row.pipeline_parallel_size > 1:
        whole = (measured - embedding) * row.pipeline_parallel_size + 2 * embedding
    same = (row.tensor_parallel_size, row.pipeline_parallel_size)
    if same != (settings.tensor_parallel_size, settings.pipeline_parallel_size):
        measured = whole * (1 / settings.tensor_parallel_size + 0.004)
        if settings.pipeline_parallel_size > 1:
            embedding = round(embedding / settings.tensor_parallel_size)
            measured = (measured - 2 * embedding) / settings.pipeline_parallel_size + embedding
    if settings.quantization == "fp8" and model.quantization is None:
        embedding = embedding // settings.tensor_parallel_size
        measured = (measured - 2 * embedding) / 2 + 2 * embedding
    if settings.dtype == "float32":
        measured *= 2
    return max(measured - settings.cpu_offload_bytes, measured * 0.02)


def batch_bytes(model: Model, settings: Settings, row: Measured, noise: Noise) -> tuple[float, float]:
    """What sampling and what the layers take of a batch, bytes."""
    text, element = model.text, 4 if settings.dtype == "float32" else 2
    inner = text.get("intermediate_size") or text.get("moe_intermediate_size") or 4 * text["hidden_size"]
    experts = text.get("num_experts_per_tok") or 1
    inner = max(inner, (text.get("moe_intermediate_size") or 0) * experts)

    def layers(tokens: int, ranks: int) -> float:
        return float(tokens * element * (noise.wide * inner / ranks + noise.deep * text["hidden_size"]))

    sequences, tokens = row.max_num_seqs or _RUN_SEQS, row.max_num_batched_tokens or _RUN_TOKENS
    if row.total_gib < 70 and row.max_num_seqs is None:
        sequences = 256
        tokens = row.max_num_batched_tokens or 2048
    measured = row.activation_gib * GIB
    kept = tokens * text["hidden_size"] * element
    unit = max((measured - kept) / (sequences * text["vocab_size"]), 1.5)
    old = not _is_release(row.vllm_version) or not at_least(row.vllm_version or "0", "0.17.0")
    if old and at_least(settings.version, "0.17.0"):
        unit /= _SORTING
    elif not old and not at_least(settings.version, "0.17.0"):
        unit *= _SORTING
    unit = min(unit, 40.0)
    sampling = settings.max_num_seqs * text["vocab_size"] * unit
    hidden = settings.max_num_batched_tokens * text["hidden_size"] * element
    return (sampling + hidden) * noise.activation, layers(
        settings.max_num_batched_tokens, settings.tensor_parallel_size
    ) * noise.activation


def graph_bytes(
    model: Model, settings: Settings, row: Measured, device: Device, noise: Noise
) -> tuple[float, float]:
    """What the graphs take, and what vLLM reckons."""
    if not settings.captures:
        return 0.0, 0.0
    layers = model.text["num_hidden_layers"]
    usual = (0.25 if device.capability[0] == 9 else 0.1) + 0.18 + 0.0157 * layers
    base = row.graphs_gib if row.graphs_gib and row.graphs_gib > 0.05 else usual
    share = 0.35 + 0.65 * settings.captures / 102
    taken = base * share * noise.graphs / math.sqrt(settings.pipeline_parallel_size) * GIB
    known = row.estimate_gib / base if row.estimate_gib and row.graphs_gib else noise.lump
    return taken, taken * known * noise.estimate


def non_torch_gib(settings: Settings, device: Device, noise: Noise) -> float:
    """What libraries take while the model runs, GiB."""
    if settings.tensor_parallel_size > 1 and any(name in device.name for name in _NVLINK):
        if not at_least(settings.version, "0.18.0"):
            return 0.55 * noise.non_torch
        return (2.07 if settings.tensor_parallel_size == 2 else 2.15) * noise.non_torch
    if settings.tensor_parallel_size > 1:
        return 0.21 * noise.non_torch
    if device.capability[0] < 9:
        return noise.small
    return (0.25 if at_least(settings.version, "0.18.0") else 0.13) * noise.non_torch


def context_gib(settings: Settings, device: Device, noise: Noise) -> float:
    """What is taken before vLLM's first look, GiB: the CUDA context, and from 0.11 on the links between ranks."""
    base = 0.51 if device.capability[0] >= 9 else noise.context
    if settings.world_size == 1 or not at_least(settings.version, "0.11.0"):
        return base
    return base + (noise.links if any(name in device.name for name in _NVLINK) else noise.switch)
