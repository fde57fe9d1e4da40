"""An engine asked what a model takes: its answer, and every way of not getting one."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fitserve.facts.ask_engine import EngineAnswer, PretendedDevice, Question, ask_engine
from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config
from fitserve.memory.kv import KvCache, capacity, layer_specs
from fitserve.memory.options import Device, EngineOptions
from fitserve.memory.weights.rank_weights import rank_weights
from fitserve.plan.ask import ask
from fitserve.plan.asked import Asked
from fitserve.plan.make import make_plan
from fitserve.plan.request import Request, judge_request, resolve_request
from fitserve.plan.values import KvPlan, Plan
from fitserve.units import GIB, Quantity, Unknown

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
H100 = Device(
    name="NVIDIA H100 80GB HBM3",
    total_bytes=round(79.19 * GIB),
    compute_capability=(9, 0),
    multiprocessors=132,
)
PRETENDED = PretendedDevice(
    name=H100.name, total_bytes=H100.total_bytes, compute_capability=(9, 0), multiprocessors=132
)
COMPARED = 17
"""Architectures of the catalogue that both vLLM 0.32's CPU build and the memory model can answer for, at least."""
"""Dense, experts, FP8, MXFP4, NVFP4, windows, latent and sparse attention, an 8-bit latent cache, two kinds of recurrent layers."""


def request(config: dict[str, Any] = LLAMA, **given: Any) -> Request:
    """A question about a model on an H100."""
    checkpoint = Checkpoint(config=parse_config(json.dumps(config).encode()))
    return Request(checkpoint=checkpoint, model="model", device=H100, given=given, version="0.32.0")


def program(folder: Path, text: str) -> Path:
    """A program that stands where an engine's Python would."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def reason(found: object) -> str:
    """Why there is no answer."""
    assert isinstance(found, Unknown)
    return found.unknown


def test_a_python_without_vllm_says_what_is_missing() -> None:
    """The reason names the module that is not there."""
    (found,) = ask_engine(Path(sys.executable), [Question(config=LLAMA, device=PRETENDED)])

    assert "the engine cannot tell: ModuleNotFoundError: No module named 'torch'" == reason(found)


def test_a_program_that_is_not_there() -> None:
    """An engine that cannot be started is named."""
    (found,) = ask_engine(Path("/no/such/python"), [Question(config=LLAMA)])

    assert reason(found).endswith("/no/such/python cannot be started: No such file or directory")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("print('[1, 2')", "the engine's answer cannot be read: "),
        ("print('[]')", "the engine's answer cannot be read: "),
        ("print('{\"version\": 1}')", "the engine's answer cannot be read: "),
        ("print('{\"error\": 1}')", "the engine's answer cannot be read: "),
        ("raise SystemExit('out of luck')", "it ended with code 1: out of luck"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with signal 9"),
    ],
)
def test_what_cannot_be_read_is_no_answer(tmp_path: Path, text: str, expected: str) -> None:
    """Broken JSON, values of another kind and a death each have their reason."""
    (found,) = ask_engine(program(tmp_path, text), [Question(config=LLAMA)])

    assert expected in reason(found)


def test_nothing_is_left_after_the_time(tmp_path: Path, mark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that does not end in time is no answer, and its children are gone with it."""
    monkeypatch.setenv("FITSERVE_TEST_MARK", mark.env["FITSERVE_TEST_MARK"])
    sleeper = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    (found,) = ask_engine(program(tmp_path, sleeper), [Question(config=LLAMA)], timeout_seconds=1)

    assert "the engine did not answer: not within 1 s" == reason(found)
    assert [] == mark.left_after(10)


def test_answers_before_a_death_count(tmp_path: Path) -> None:
    """Of several questions, those answered before the engine died keep their answers."""
    answer = EngineAnswer(
        version="0.32.0", param_bytes=1, buffer_bytes=2, max_model_len=3, layers=(), caches=()
    )
    text = f"print({msgspec.json.encode(answer).decode()!r}, flush=True); raise SystemExit('gone')"
    first, second = ask_engine(program(tmp_path, text), [Question(config=LLAMA)] * 2)

    assert answer == first
    assert "the engine did not answer: it ended with code 1: gone" == reason(second)


def test_without_an_answer_the_memory_model_counts() -> None:
    """The plan is the one without an engine, and a note says why."""
    plain = request()
    asked = ask(plain, Path(sys.executable), "0.32.0")
    fallen_back = make_plan(msgspec.structs.replace(plain, asked=asked))
    note = "the memory model counts, no engine: the engine cannot tell: ModuleNotFoundError: No module named 'torch'"

    assert note in fallen_back.notes
    assert make_plan(plain) == msgspec.structs.replace(
        fallen_back, notes=[one for one in fallen_back.notes if one != note]
    )


@pytest.mark.parametrize(
    ("question", "version", "expected"),
    [
        (request(), "0.31.0", "the engine is vLLM 0.31.0, the plan is for 0.32.0"),
        (request(pipeline_parallel_size=2), "0.32.0", "pipeline_parallel_size 2 is not asked about"),
        (
            msgspec.structs.replace(request(), device=Device(name="MI300X", total_bytes=192 * GIB)),
            "0.32.0",
            "MI300X is not asked about: its compute capability or its size is not known",
        ),
    ],
)
def test_what_is_not_asked(question: Request, version: str, expected: str) -> None:
    """A question that the engine's answer would not fit is not put to it."""
    assert expected == reason(ask(question, Path("/no/such/python"), version))


def test_changed_settings_take_their_own_weights() -> None:
    """An answer counts for the settings it was given for: other weights and other caches are the memory model's."""
    answer = EngineAnswer(
        version="0.32.0", param_bytes=GIB, buffer_bytes=0, max_model_len=4096, layers=(), caches=()
    )
    plain = request()
    options = resolve_request(plain).options
    params = Quantity.exact(GIB, "measured", answer.source)
    asked = msgspec.structs.replace(plain, asked=Asked(answer=answer, options=options, param_bytes=params))
    same, shorter, divided = (
        judge_request(asked, changes).ranks[0].weights_bytes
        for changes in ({}, {"max_model_len": 1024}, {"tensor_parallel_size": 2})
    )

    assert (params, params) == (same, shorter)
    assert judge_request(plain, {"tensor_parallel_size": 2}).ranks[0].weights_bytes == divided


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ((), "there is no private engine; fitserve engine install makes one"),
        ((sys.executable,), f"this python has no vLLM ({sys.executable})"),
    ],
)
def test_the_command_falls_back_with_a_note(tmp_path: Path, engine: tuple[str, ...], expected: str) -> None:
    """``--ask-engine`` without a usable engine plans all the same, and says why no engine was asked."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    command = [sys.executable, "-m", "fitserve", "plan", str(tmp_path), "--gpu", "H100", "--json"]
    ended = subprocess.run(
        [*command, "--ask-engine", *engine],
        env={**os.environ, "FITSERVE_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert [f"the memory model counts, no engine: {expected}"] == json.loads(ended.stdout)["notes"]


@pytest.fixture(scope="module")
def catalogue() -> dict[str, Checkpoint]:
    """A published model of each architecture, as ``aiconfigurator-core`` carries their configurations."""
    spec = importlib.util.find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("aiconfigurator-core is not installed: pip install aiconfigurator-core==0.12.0")
    folder = Path(next(iter(spec.submodule_search_locations))) / "model_configs"
    found: dict[str, Checkpoint] = {}
    for path in sorted(folder.glob("*_config.json")):
        text = path.read_bytes()
        architecture = json.loads(text).get("architectures")
        if architecture is None or architecture[0] in found:
            continue
        quant = path.with_name(path.name.replace("_config.json", "_hf_quant_config.json"))
        hf_quant = quant.read_bytes() if quant.exists() else None
        found[architecture[0]] = Checkpoint(config=parse_config(text, hf_quant=hf_quant))
    return found


@pytest.mark.live
@pytest.mark.timeout(900)
def test_the_memory_model_says_what_the_engine_says(
    engine_python: Path, catalogue: dict[str, Checkpoint]
) -> None:
    """Weights, layers, blocks and tokens of every architecture are to the byte what vLLM's own code makes of them.

    Where either cannot tell, nothing is compared: the model never answers with a guess.
    """
    settings: dict[str, Any] = {
        "max_model_len": 8192,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "tensor_parallel_size": 2,
    }
    options = EngineOptions(vllm_version="0.32.0", device=H100, **settings)
    size = 20 * GIB
    questions = [
        Question(
            config=one.config.data,
            hf_quant=one.config.hf_quant,
            settings=settings,
            device=PRETENDED,
            kv_cache_bytes=(size,),
        )
        for one in catalogue.values()
    ]
    answers = ask_engine(engine_python, questions)

    known = {name: answer for name, answer in zip(catalogue, answers, strict=True) if is_known(answer)}
    counts = {name: counted(catalogue[name], options, size) for name in known}
    both = {name for name in known if counts[name] is not None}

    assert {name: told(known[name]) for name in both} == {name: counts[name] for name in both}
    assert len(both) >= COMPARED


def is_known(answer: EngineAnswer | Unknown) -> bool:
    """True where the engine has answered."""
    return isinstance(answer, EngineAnswer)


def told(answer: EngineAnswer | Unknown) -> object:
    """What the engine says."""
    if isinstance(answer, Unknown):
        return answer
    layers = sorted((one.kind, one.block_size, one.page_bytes, one.layers) for one in answer.layers)
    (cache,) = answer.caches
    return (
        (answer.param_bytes, answer.buffer_bytes),
        layers,
        (cache.num_blocks, cache.tokens, cache.bytes_per_block, round(cache.max_concurrency, 6)),
    )


def counted(checkpoint: Checkpoint, options: EngineOptions, size: int) -> object:
    """What the memory model says; None where it does not know."""
    weights = rank_weights(checkpoint, options)
    specs = layer_specs(checkpoint.config, options)
    if isinstance(weights, Unknown) or isinstance(specs, Unknown):
        return None
    cache = capacity(specs, options, size)
    assert isinstance(cache, KvCache)
    return (
        (weights[0].param_bytes.expected, weights[0].buffer_bytes.expected),
        sorted((one.kind, one.block_size, one.page_bytes, len(one.layers)) for one in specs),
        (cache.num_blocks, cache.tokens, cache.bytes_per_block, round(cache.max_concurrency, 6)),
    )


@pytest.mark.live
@pytest.mark.timeout(900)
def test_a_plan_takes_the_engines_numbers(engine_python: Path) -> None:
    """Weights and cache are the engine's, in place of and equal to the memory model's, and the note says so."""
    plain = request(tensor_parallel_size=2)
    with_engine = make_plan(msgspec.structs.replace(plain, asked=ask(plain, engine_python, "0.32.0")))
    source = "the engine (vLLM 0.32.0)"

    assert f"weights and KV cache are from {source}; the memory model says the same" in with_engine.notes
    assert {("measured", source)} == {
        (rank.weights_bytes.basis, rank.weights_bytes.source)
        for rank in with_engine.budget
        if isinstance(rank.weights_bytes, Quantity)
    }
    assert numbers(make_plan(plain)) == numbers(with_engine)


def numbers(plan: Plan) -> object:
    """The cache of a plan without its sources."""
    cache = plan.kv_cache
    assert isinstance(cache, KvPlan)
    assert isinstance(cache.tokens, Quantity)
    assert isinstance(cache.num_blocks, Quantity)
    ends = [(one.low, one.expected, one.high) for one in (cache.tokens, cache.num_blocks)]
    return ends, cache.max_concurrency, cache.concurrency_low, cache.bytes_per_token, cache.groups
