"""The next change: the cheapest that the memory model expects to serve the goal, corrected by what the start has shown."""

import json
from pathlib import Path

import pytest

from fitserve.diagnose.engine import diagnose_path
from fitserve.facts.command import read_command
from fitserve.fix.next_change import MODELLED, next_change
from fitserve.fix.question import question
from fitserve.plan.moves.table import MOVES
from fitserve.trial.choice import Bounds, Choice
from fitserve.units import Unknown
from tests.plan.test_make import LLAMA_8B

HEAD = """\
INFO 11-30 09:13:01 [api_server.py:1995] vLLM API server version {version}
INFO 11-30 09:13:01 [core.py:96] Initializing a V1 LLM engine (v{version}) with config: model='model', max_seq_len={length}
"""
LOADED = """\
(EngineCore pid=12) INFO 11-30 09:13:21 [gpu_model_runner.py:4567] Model loading took 14.99 GiB memory and 9.5 seconds
"""
SHORT_CACHE = (
    HEAD
    + LOADED
    + """\
(EngineCore pid=12) INFO 11-30 09:13:41 [gpu_worker.py:298] Available KV cache memory: {left} GiB
(EngineCore pid=12) ERROR 11-30 09:13:42 [core.py:935] ValueError: To serve at least one request with the models's max seq \
len ({length}), ({needed} GiB KV cache is needed, which is larger than the available KV cache memory ({left} GiB). Based on \
the available memory, the estimated maximum model length is {fits}. Try increasing `gpu_memory_utilization` or decreasing \
`max_model_len` when initializing the engine.
"""
)
WEIGHTS = (
    HEAD
    + """\
(EngineCore pid=12) INFO 11-30 09:13:11 [gpu_model_runner.py:4470] Starting to load model model...
(EngineCore pid=12) ERROR 11-30 09:13:12 [core.py:935]   File "vllm/v1/worker/gpu_model_runner.py", line 4480, in load_model
(EngineCore pid=12) ERROR 11-30 09:13:12 [core.py:935] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate \
224.00 MiB. GPU 0 has a total capacity of 11.63 GiB of which 46.75 MiB is free. Including non-PyTorch memory, this process \
has 11.57 GiB memory in use.
"""
)


class Case:
    """A model folder, a log, and what is asked of them."""

    def __init__(self, folder: Path) -> None:
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
        self.log = folder / "serve.log"

    def choice(self, text: str, *words: str, gpu: str = "RTX 4090", **bounds: object) -> Choice:
        """The next change after a start of the model with these words."""
        self.log.write_text(text, encoding="utf-8")
        launch = read_command(["vllm", "serve", str(self.model), *words])
        diagnosis = diagnose_path(self.log)
        assert diagnosis.failed
        limits = Bounds(**{"devices": 1, **bounds})  # type: ignore[arg-type]
        asked = question(launch, diagnosis, bounds=limits, device=gpu, environ={})
        return next_change(
            diagnosis, launch, asked if isinstance(asked, Unknown) else asked.request, set(), limits
        )


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """The 8B model's folder."""
    return Case(tmp_path)


def short_cache(length: int, *, left: float, version: str = "0.19.0") -> str:
    """The log of a start whose cache holds less than one request of that length."""
    needed = length * 131072 / 2**30
    fits = int(left * 2**30 / 131072) // 16 * 16
    return SHORT_CACHE.format(version=version, length=length, left=left, needed=f"{needed:.1f}", fits=fits)


def test_the_share_is_raised_by_as_much_as_is_missing(case: Case) -> None:
    """1 GiB is missing on a device that has it free: the smallest share that does goes before a shorter context."""
    choice = case.choice(short_cache(36864, left=3.9), "--max-model-len", "36864")

    assert choice.advice is not None
    assert choice.advice.flag == "gpu_memory_utilization"
    assert choice.advice.cost == "free"
    assert choice.advice.to in (0.93, 0.94)


def test_without_a_goal_the_context_is_shortened_to_what_fits(case: Case) -> None:
    """What vLLM printed counts, with a block in hand."""
    choice = case.choice(short_cache(131072, left=4.89))

    assert choice.advice is not None
    assert (choice.advice.flag, choice.advice.cost) == ("max_model_len", "capacity")
    assert 38912 < choice.advice.to <= 40048  # type: ignore[operator]


def test_the_context_that_is_the_goal_costs_nothing(case: Case) -> None:
    """Nobody loses what nobody needs."""
    choice = case.choice(short_cache(131072, left=4.89), goal_context=32768)

    assert choice.advice is not None
    assert (choice.advice.flag, choice.advice.to, choice.advice.cost) == ("max_model_len", 32768, "free")


def test_a_goal_that_a_device_cannot_hold_takes_another_one(case: Case) -> None:
    """With two devices the cache is large enough; with one it is said what would be."""
    log = short_cache(131072, left=4.89)
    two = case.choice(log, goal_context=65536, goal_concurrency=2, devices=2)
    one = case.choice(log, goal_context=65536, goal_concurrency=2)

    assert two.advice is not None
    assert (two.advice.flag, two.advice.to) == ("tensor_parallel_size", 2)
    assert one.advice is None
    assert one.reachable.startswith("at best 2 at once of ")


PINNED = """\
(APIServer pid=1) INFO 11-30 09:13:01 [utils.py:253] non-default args: {{'kv_cache_memory_bytes': 536870912, 'max_model_len': {length}}}
(EngineCore pid=12) ERROR 11-30 09:13:42 [core.py:935] ValueError: To serve at least one request with the models's max seq \
len ({length}), ({needed} GiB KV cache is needed, which is larger than the available KV cache memory (0.5 GiB). Based on \
the available memory, the estimated maximum model length is 4096. Try increasing `gpu_memory_utilization` or decreasing \
`max_model_len` when initializing the engine.
"""


def test_a_cache_that_was_set_by_hand_is_as_large_as_the_goal_needs(case: Case) -> None:
    """Not as many requests of the whole context: the goal is several shorter ones, and one change does."""
    log = (HEAD + LOADED + PINNED).format(version="0.19.0", length=65536, needed="8.0")
    words = (
        "--max-model-len",
        "65536",
        "--kv-cache-memory-bytes",
        str(1 << 29),
        "--gpu-memory-utilization",
        "0.5",
    )
    choice = case.choice(log, *words, gpu="H100", goal_context=16384, goal_concurrency=16)

    assert choice.advice is not None
    blocks = 16384 * 16 // 16 + 1
    assert (choice.advice.flag, choice.advice.to) == ("kv_cache_memory_bytes", blocks * 16 * 131072)
    assert "will be needed too" not in choice.advice.why


def test_answers_change_only_where_that_is_allowed(case: Case) -> None:
    """An fp8 cache would do; it is taken when it may be."""
    log = short_cache(65536, left=4.89)
    words = ("--max-model-len", "65536", "--gpu-memory-utilization", "0.95")
    kept = case.choice(log, *words, goal_context=65536)
    allowed = case.choice(log, *words, goal_context=65536, allow_output=True)

    assert kept.advice is None or kept.advice.cost != "output"
    assert allowed.advice is not None
    assert allowed.advice.cost in ("speed", "output")


def test_weights_that_do_not_fit_are_no_matter_of_the_share(case: Case) -> None:
    """Offloading and more devices help; the share and the context do not."""
    log = WEIGHTS.format(version="0.19.0", length=8192)
    alone = case.choice(log, "--max-model-len", "8192", gpu="RTX 3060", goal_context=8192)
    several = case.choice(log, "--max-model-len", "8192", gpu="RTX 3060", goal_context=8192, devices=2)

    assert alone.advice is not None
    assert (alone.advice.flag, alone.advice.cost) == ("cpu_offload_gb", "speed")
    assert several.advice is not None
    assert several.advice.flag in ("cpu_offload_gb", "tensor_parallel_size")


def test_a_model_that_is_not_at_hand_leaves_the_diagnosis_advice(tmp_path: Path) -> None:
    """Without a configuration there is no model of the memory; the log's own numbers still count."""
    case = Case(tmp_path)
    (case.model / "config.json").unlink()
    choice = case.choice(short_cache(131072, left=4.89))

    assert choice.advice is not None
    assert choice.advice.flag == "max_model_len"
    assert choice.advice.to == 40048


def test_every_move_says_what_it_saves_and_costs() -> None:
    """The table has no empty cells, no two moves of one name, and only causes that exist."""
    folder = Path(__file__).parents[2] / "src" / "fitserve" / "diagnose" / "rules"
    causes = {page.stem.replace("_", "-") for page in folder.glob("*.md")} | {"goal-not-met"}

    assert len({move.name for move in MOVES}) == len(MOVES)
    assert all(move.saves and move.costs and move.causes for move in MOVES)
    assert causes >= MODELLED
