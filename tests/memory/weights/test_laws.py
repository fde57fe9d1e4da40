"""Laws that hold for every modelled architecture and setting."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import InputError
from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.memory.options import EngineOptions
from fitserve.memory.weights import RankWeights, rank_weights
from fitserve.memory.weights.families.registry import FAMILIES
from fitserve.memory.weights.shapes import stage_layers
from fitserve.units import Unknown

LINES = (Path(__file__).parent / "measured_small.jsonl").read_text(encoding="utf-8").splitlines()
CONFIGS: dict[str, dict[str, Any]] = {row["model"]: row["config"] for row in map(json.loads, LINES)}
PLAIN = sorted(name for name, config in CONFIGS.items() if "quantization_config" not in config)
QUANTISED = sorted(CONFIGS.keys() - PLAIN)


def weights(config: dict[str, Any], **settings: Any) -> tuple[RankWeights, ...] | Unknown:
    """Each rank's weights."""
    checkpoint = Checkpoint(config=parse_config(json.dumps(config).encode()))
    return rank_weights(checkpoint, EngineOptions(**settings))


def params(found: tuple[RankWeights, ...]) -> list[int]:
    """Each rank's parameters."""
    return [rank.param_bytes.expected for rank in found]


@pytest.mark.parametrize("name", PLAIN)
def test_more_ranks_never_hold_more(name: str) -> None:
    """Twice as many ranks never need more bytes on one of them."""
    before = None
    for ranks in (1, 2, 4, 8):
        found = weights(CONFIGS[name], tensor_parallel_size=ranks)
        if isinstance(found, Unknown):
            break
        now = max(params(found))

        assert before is None or now <= before
        before = now


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("stages", [2, 3])
def test_stages_hold_the_whole(name: str, stages: int) -> None:
    """All pipeline stages together hold at least the whole model."""
    whole = weights(CONFIGS[name])
    parts = weights(CONFIGS[name], pipeline_parallel_size=stages)

    assert isinstance(whole, tuple)
    assert isinstance(parts, tuple)
    assert stages == len(parts)
    assert params(whole)[0] <= sum(params(parts))


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_weights_are_smaller(name: str) -> None:
    """A quantised checkpoint takes less than the same model in 16 bit."""
    config = CONFIGS[name]
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    small, large = weights(config), weights(plain)

    assert isinstance(small, tuple)
    assert isinstance(large, tuple)
    assert params(small)[0] < params(large)[0]


@given(st.integers(1, 200), st.integers(1, 16))
def test_stages_divide_the_layers(layers: int, stages: int) -> None:
    """Every layer is on one stage, in order, and no stage has two more than another."""
    found = stage_layers(layers, stages)

    assert list(range(layers)) == [layer for stage in found for layer in stage]
    assert max(map(len, found)) - min(map(len, found)) <= 1


@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.text(max_size=12), st.integers(-5, 5)))
def test_a_poor_configuration_is_an_input_error(architecture: str, noise: dict[str, int]) -> None:
    """A configuration without its numbers is refused, or unknown; it never breaks."""
    try:
        config = parse_config(json.dumps({**noise, "architectures": [architecture]}).encode())
        found = rank_weights(Checkpoint(config=config), EngineOptions())
    except InputError:
        return

    assert isinstance(found, Unknown)


DAMAGE = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.integers(-3, 1 << 70),
    st.floats(),
    st.lists(st.integers(-2, 3), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(-2, 3), max_size=2),
)


@given(st.sampled_from(sorted(CONFIGS)), st.data(), DAMAGE)
def test_a_damaged_configuration_never_breaks(name: str, data: st.DataObject, value: Any) -> None:
    """Whatever stands at one key, at any depth, the answer is a size, an unknown or an input error."""
    config = json.loads(json.dumps(CONFIGS[name]))
    place = config
    key = data.draw(st.sampled_from(sorted(place)))
    while isinstance(place[key], dict) and place[key]:
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place)))
    place[key] = value
    try:
        found = weights(config, tensor_parallel_size=2)
    except InputError:
        return

    assert isinstance(found, tuple | Unknown)


def test_an_absurd_number_of_layers_is_an_input_error() -> None:
    """A trillion layers are damage, not something to count for ever."""
    with pytest.raises(InputError) as caught:
        weights({**CONFIGS["llama"], "num_hidden_layers": 1 << 40})

    assert caught.value.what == "1,099,511,627,776 is not between 1 and 1,000"
    assert caught.value.where.endswith("num_hidden_layers")


def test_an_unknown_architecture_is_named() -> None:
    """What is not modelled is unknown, by its name."""
    found = weights({"architectures": ["TotallyNewForCausalLM"], "hidden_size": 64})

    assert Unknown("the weights of TotallyNewForCausalLM are not modelled") == found


def test_an_unknown_quantisation_is_named() -> None:
    """A method that is not modelled is unknown, by its name."""
    config = {**CONFIGS["llama"], "quantization_config": {"quant_method": "quantum"}}

    assert Unknown("the weights are not known: the quantisation 'quantum'") == weights(config)


def test_ranks_that_do_not_divide_are_said() -> None:
    """A start that vLLM refuses has no weights, and says why."""
    found = weights(CONFIGS["llama"], tensor_parallel_size=3)

    assert isinstance(found, Unknown)
    assert "num_attention_heads 8 is not divisible by tensor_parallel_size 3" in found.unknown


def test_experts_are_dealt_out() -> None:
    """Under expert parallelism 13 experts on two ranks are 7 and 6; attention stays divided."""
    config = CONFIGS["qwen3moe"]
    found = weights(config, tensor_parallel_size=2, enable_expert_parallel=True)

    assert isinstance(found, tuple)
    one_expert = 3 * config["hidden_size"] * config["moe_intermediate_size"] * 2
    first, second = params(found)
    assert 4 * one_expert == first - second


def test_only_the_language_model_is_smaller() -> None:
    """``--language-model-only`` leaves the vision tower out."""
    both, alone = weights(CONFIGS["qwen2vl"]), weights(CONFIGS["qwen2vl"], language_model_only=True)

    assert isinstance(both, tuple)
    assert isinstance(alone, tuple)
    assert params(alone)[0] < params(both)[0]


def test_values_are_plain_json() -> None:
    """A rank's weights go to JSON and back."""
    found = weights(CONFIGS["llama"])

    assert found == msgspec.json.decode(msgspec.json.encode(found), type=tuple[RankWeights, ...])


def test_towers_of_packed_checkpoints_stay_as_they_are() -> None:
    """An AWQ checkpoint that names no exceptions still has its vision tower in 16 bit."""
    config = CONFIGS["qwen2vl"]
    section = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    plain = weights(config)
    alone = weights(config, language_model_only=True)
    packed = weights({**config, "quantization_config": section})
    packed_alone = weights({**config, "quantization_config": section}, language_model_only=True)

    assert isinstance(plain, tuple)
    assert isinstance(alone, tuple)
    assert isinstance(packed, tuple)
    assert isinstance(packed_alone, tuple)
    assert params(plain)[0] - params(alone)[0] == params(packed)[0] - params(packed_alone)[0]
