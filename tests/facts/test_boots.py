"""Which lines of a log belong to one start-up."""

import io
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.facts.boots import BOOT_NEEDLES, number_boots
from fitserve.facts.line import Line
from fitserve.facts.log import open_log, read_lines
from tests.facts.boots_of import split_boots

CORPUS = Path(__file__).parents[2] / "../shared/corpus"

LOGO = [
    "INFO 06-13 08:00:46 [utils.py:299]",
    "INFO 06-13 08:00:46 [utils.py:299]        █     █     █▄   ▄█",
    "INFO 06-13 08:00:46 [utils.py:299]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.24.0",
]
VERSION = ["INFO 06-13 08:00:46 [api_server.py:121] vLLM API server version 0.8.5"]
ARGUMENTS = ["INFO 06-13 08:00:46 [utils.py:233] non-default args: {'model': 'a/b'}"]
NAMESPACE = ["INFO 06-13 08:00:46 api_server.py:112] args: Namespace(host=None)"]
PLATFORM = ["INFO 06-13 08:00:40 [__init__.py:207] Automatically detected platform cuda."]
ENGINE = ["INFO 06-13 08:00:52 [core.py:114] Initializing a V1 LLM engine (v0.24.0) with config: model='a/b'"]
EARLY_ENGINE = ["INFO 06-13 08:00:52 llm_engine.py:70] Initializing an LLM engine with config: model='a/b'"]
READY = ["INFO:     Application startup complete."]
FAILED = ["RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"]
STOPPED = [
    "INFO:     Shutting down",
    "INFO:     Application shutdown complete.",
    "INFO:     Finished server process [1]",
]

SERVER = [*LOGO, *ARGUMENTS, *ENGINE, *FAILED]
OLD_SERVER = [*VERSION, *NAMESPACE, *EARLY_ENGINE, *READY, *STOPPED]


def tagged(lines: list[str], tag: str) -> list[str]:
    """The lines of one process."""
    return [f"({tag}) {line}" for line in lines]


def later(lines: list[str], minutes: int) -> list[str]:
    """The same lines, some minutes later."""
    return [line.replace("06-13 08:00", f"06-13 08:{minutes:02}") for line in lines]


def read(lines: list[str]) -> list[Line]:
    """The lines of a log."""
    return list(read_lines(io.BytesIO("\n".join(lines).encode())))


CASES = {
    "one server": ([SERVER], [6]),
    "a restart in a container, where every process has the same id": (
        [tagged(SERVER, "APIServer pid=1"), tagged(SERVER, "APIServer pid=1")],
        [6, 6],
    ),
    "a new process after a served one": (
        [tagged(OLD_SERVER, "APIServer pid=7"), tagged(SERVER, "APIServer pid=90")],
        [7, 6],
    ),
    "a restart after a kill that left no line": (
        [tagged([*LOGO, *ENGINE, *READY], "APIServer pid=7"), tagged(SERVER, "APIServer pid=90")],
        [5, 6],
    ),
    "what comes before the banner belongs to it": ([OLD_SERVER, PLATFORM + SERVER], [7, 7]),
    "a command typed again": ([["$ vllm serve a/b", *SERVER], ["$ vllm serve a/b", *SERVER]], [7, 7]),
    "a log whose beginning is missing": ([[*ENGINE, *FAILED], SERVER], [2, 6]),
    "workers detect their platform without a boot of their own": (
        [
            [
                *PLATFORM,
                *VERSION,
                *PLATFORM,
                *ENGINE,
                *PLATFORM,
                *tagged(PLATFORM, "VllmWorkerProcess pid=4"),
                *READY,
            ]
        ],
        [7],
    ),
    "engines of data parallel ranks": (
        [[*LOGO, *tagged(ENGINE, "EngineCore_DP0 pid=4"), *tagged(ENGINE, "EngineCore_DP1 pid=5"), *READY]],
        [6],
    ),
    "engines without a name that start together": ([[*VERSION, *ENGINE, *ENGINE, *READY]], [4]),
    "several API servers": (
        [
            [
                *tagged([*LOGO, *ARGUMENTS], "ApiServer_0 pid=4"),
                *tagged([*LOGO, *ARGUMENTS], "ApiServer_1 pid=5"),
            ]
        ],
        [8],
    ),
    "actors of Ray": (
        [[*tagged(VERSION + ENGINE, "LLMRayActor pid=4"), *tagged(VERSION + ENGINE, "LLMRayActor pid=5")]],
        [4],
    ),
    "an engine in a script, run again": ([[*ENGINE, *FAILED], later([*ENGINE, *FAILED], 9)], [2, 2]),
    "a script's next engine": ([[*ENGINE, *READY], later([*ENGINE, *READY], 9)], [2, 2]),
}


@pytest.mark.parametrize("name", CASES)
def test_boots(name: str) -> None:
    """A log falls into the boots it holds."""
    parts, sizes = CASES[name]

    assert sizes == [len(boot) for boot in split_boots(read(list(chain(*parts))))]


def test_two_containers_in_one_log() -> None:
    """Containers whose lines interleave have a boot each, and lines of others start none."""
    one, other = ([f"vllm-{name}  | {line}" for line in SERVER] for name in "ab")
    gateway = ['gateway  | 10.0.0.1 - - "GET / HTTP/1.1" 502'] * 6
    lines = list(chain(*zip(one, other, gateway, strict=True)))
    first, second = split_boots(read(lines))

    assert ["vllm-a"] * 6 == [line.origin for line in first if line.origin != "gateway"]
    assert ["vllm-b"] * 6 == [line.origin for line in second if line.origin != "gateway"]


@given(
    st.lists(st.sampled_from([SERVER, OLD_SERVER, PLATFORM, ENGINE, FAILED, READY, ["text"]]), max_size=12)
)
def test_every_line_has_one_boot(parts: list[list[str]]) -> None:
    """Boots hold every line once and in order, and are numbered without gaps in the order of their beginnings."""
    lines = read(list(chain(*parts))) if parts else []
    boots = split_boots(lines)
    numbers = [number for number, _ in number_boots(lines)]

    assert lines == list(chain(*boots))
    assert list(dict.fromkeys(numbers)) == list(range(len(boots)))


@given(st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=4), st.integers(1, 5))
def test_a_server_that_restarts_for_ever(models: list[str], restarts: int) -> None:
    """A restart loop has as many boots as it has banners."""
    loop = [line.replace("a/b", model) for model in models for _ in range(restarts) for line in SERVER]

    assert len(models) * restarts == len(split_boots(read(loop)))


@pytest.mark.shared
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the reference folder is not beside the checkout")
def test_reference_logs() -> None:
    """The reference logs have two boots where they are said to, else one; a prefilter's needles change nothing."""
    for path in sorted(CORPUS.glob("*.log")):
        answer = path.with_name(path.name.replace(".log", ".expected.json")).read_text()
        with open_log(path) as stream:
            lines = list(read_lines(stream))
        kept = [line for line in lines if any(needle.decode() in line.text for needle in BOOT_NEEDLES)]
        boots = 1 + ("two-boots" in answer)

        assert (path.name, boots) == (path.name, len(split_boots(lines)))
        assert (path.name, boots) == (path.name, max(len(split_boots(kept)), 1))
