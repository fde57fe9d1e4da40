"""The next change is the cheapest one that can be carried out and that no goal forbids."""

from typing import Any

import pytest

from fitserve.diagnose.finding import Advice, Diagnosis
from fitserve.facts.command import Launch, read_command, shown
from fitserve.trial.choice import Bounds, change_of, changed, choose, tries

SHORTER = Advice(flag="max_model_len", to=4096, direction="down", cost="capacity", why="4,096 tokens fit")
FP8 = Advice(flag="kv_cache_dtype", to="fp8", direction="set", cost="output", why="half the cache")
EAGER = Advice(flag="enforce_eager", to=True, direction="set", cost="speed", why="no graphs")
MORE = Advice(flag="gpu_memory_utilization", to=0.95, direction="up", cost="free", why="more of the device")
FEWER = Advice(flag="max_num_seqs", to=8, direction="down", cost="capacity", why="fewer at once")
TWO = Advice(flag="tensor_parallel_size", to=2, direction="up", cost="hardware", why="half on each")
FREE = Advice(action="free-other-process", why="it holds 3 GiB")
RETRY = Advice(action="retry", why="a neighbour moved")
REMOVE = Advice(flag="swap_space", action="remove-flag", why="this release does not have it")


def launch_of(*options: str) -> Launch:
    """A launch with these options."""
    return read_command(["vllm", "serve", "org/model", *options])


def failed(*advice: Advice) -> Diagnosis:
    """A diagnosis with this advice."""
    return Diagnosis(
        stage="kv_cache",
        cause="kv-cache-smaller-than-context",
        line=1,
        severity="error",
        confidence="certain",
        message="it does not fit",
        advice=list(advice),
    )


@pytest.mark.parametrize(
    ("advice", "options", "bounds", "chosen"),
    [
        pytest.param([SHORTER, EAGER, MORE], [], {}, MORE, id="the cheapest"),
        pytest.param([SHORTER, FEWER], [], {}, SHORTER, id="the diagnosis' order between equals"),
        pytest.param([FREE, EAGER], [], {}, EAGER, id="an action is for the user"),
        pytest.param([FREE], [], {}, None, id="nothing but an action"),
        pytest.param([FP8], [], {}, None, id="answers may not change"),
        pytest.param([FP8], [], {"allow_output": True}, FP8, id="answers may change"),
        pytest.param([FP8, SHORTER], [], {"allow_output": True}, SHORTER, id="output comes last"),
        pytest.param([SHORTER, EAGER], [], {"goal_context": 8000}, EAGER, id="below the goal's context"),
        pytest.param([SHORTER], [], {"goal_context": 4096}, SHORTER, id="just the goal's context"),
        pytest.param([FEWER, EAGER], [], {"goal_concurrency": 9}, EAGER, id="below the goal's number"),
        pytest.param([MORE, EAGER], ["--gpu-memory-utilization", "0.95"], {}, EAGER, id="it is set already"),
        pytest.param([TWO], [], {}, None, id="unknown devices"),
        pytest.param([TWO], [], {"devices": 1}, None, id="too few devices"),
        pytest.param([TWO], [], {"devices": 2}, TWO, id="enough devices"),
        pytest.param([TWO], ["-pp", "2"], {"devices": 2}, None, id="devices for every stage"),
        pytest.param([RETRY, SHORTER], [], {}, RETRY, id="the same again"),
        pytest.param([REMOVE], ["--swap-space", "4"], {}, REMOVE, id="an option is taken away"),
        pytest.param([REMOVE], [], {}, None, id="an option that is not there"),
        pytest.param([], [], {}, None, id="no advice"),
    ],
)
def test_the_choice(
    advice: list[Advice], options: list[str], bounds: dict[str, Any], chosen: Advice | None
) -> None:
    """What is chosen, and every other advice that came before it has a reason."""
    choice = choose(failed(*advice), launch_of(*options), set(), Bounds(**bounds))

    assert chosen == choice.advice
    assert all(skipped.reason for skipped in choice.skipped)
    assert chosen is not None or len(advice) == len(choice.skipped)


@pytest.mark.parametrize("advice", [SHORTER, EAGER, MORE, RETRY])
def test_nothing_is_tried_twice(advice: Advice) -> None:
    """A change that was made once is not chosen again, though the flag has another value by now."""
    launch = launch_of("--max-model-len", "8192")

    assert choose(failed(advice), launch, tries(launch, advice), Bounds()).advice is None


def test_there_is_no_way_back() -> None:
    """The value before a change is not chosen later: the loop cannot go in circles."""
    launch = launch_of("--max-model-len", "8192")
    tried = tries(launch, SHORTER)
    back = Advice(flag="max_model_len", to=8192, direction="up", cost="free", why="longer again")

    assert choose(failed(back), changed(launch, SHORTER), tried, Bounds()).advice is None


@pytest.mark.parametrize(
    ("line", "advice", "becomes"),
    [
        (["--max-model-len=8k"], SHORTER, "vllm serve org/model --max-model-len=4096"),
        ([], SHORTER, "vllm serve org/model --max-model-len 4096"),
        ([], EAGER, "vllm serve org/model --enforce-eager"),
        (["--swap-space", "4", "--port", "9"], REMOVE, "vllm serve org/model --port 9"),
        (["--port", "9"], RETRY, "vllm serve org/model --port 9"),
        (
            [],
            Advice(
                flag="max_cudagraph_capture_size", to=8, option="--cuda-graph-sizes 8", cost="speed", why=""
            ),
            "vllm serve org/model --cuda-graph-sizes 8",
        ),
        (
            [],
            Advice(flag="VLLM_CPU_KVCACHE_SPACE", to=4, cost="free", why=""),
            "VLLM_CPU_KVCACHE_SPACE=4 vllm serve org/model",
        ),
        (
            [],
            Advice(flag="VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", to=False, cost="free", why=""),
            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 vllm serve org/model",
        ),
    ],
)
def test_the_change_in_the_command(line: list[str], advice: Advice, becomes: str) -> None:
    """Exactly one thing differs, in the spelling that stands there or that the release has."""
    launch = changed(launch_of(*line), advice)

    assert becomes == shown(launch.argv, launch.env)


def test_a_change_tells_the_value_before() -> None:
    """The change carries what the command had, as vLLM took it."""
    change = change_of(launch_of("--max-model-len", "8k"), SHORTER)

    assert change is not None
    assert ("max_model_len", 8000, 4096, "capacity") == (
        change.flag,
        change.value_from,
        change.to,
        change.cost,
    )


def test_starting_again_is_no_change() -> None:
    """The same command again differs in nothing."""
    assert change_of(launch_of(), RETRY) is None
