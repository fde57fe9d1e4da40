"""Quantisers that a release, not the checkpoint alone, decides."""

import pytest

from fitserve.facts.model_config import ModelConfig
from fitserve.memory.weights.detect import quantiser_for
from fitserve.memory.weights.shapes import ExpertsShape


@pytest.mark.parametrize(("version", "kept"), [("0.29.0", True), ("0.30.0", False)])
def test_packed_experts_may_keep_the_order_of_their_columns(version: str, kept: bool) -> None:
    """To 0.29 they are registered with it and Marlin gives it up: 60 layers of 384 experts of Kimi K2.5 at eight ranks.

    vLLM 0.29.0 registers 1,368,391,680 bytes more than 0.32.0.
    """
    scheme = {
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
        "targets": ["Linear"],
    }
    section = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": scheme},
    }
    config = ModelConfig(
        data={"architectures": ["DeepseekV3ForCausalLM"], "quantization_config": section},
        text={},
    )
    quantiser = quantiser_for(config, None, (), version)
    shape = ExpertsShape(
        experts=384,
        hidden=7168,
        intermediate=256,
        all_intermediate=2048,
        projections=2,
        biased=False,
        element_bytes=2,
    )

    assert kept == (quantiser.other is not None)
    if quantiser.other is not None:
        more = quantiser.other.experts("mlp.experts").experts(shape)
        assert 1_368_391_680 == 60 * (more - quantiser.experts("mlp.experts").experts(shape))
