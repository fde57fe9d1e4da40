"""The engine takes any text, says the same at once and line by line, and tells boots apart."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitserve.diagnose.engine import Watcher, diagnose_lines
from fitserve.facts.line import Line
from fitserve.facts.log import read_lines
from fitserve.facts.messages.catalogue import catalogue

SAMPLES = [message.sample for message in catalogue().messages]
FRAMES = [
    "Traceback (most recent call last):",
    '  File "/x/site-packages/vllm/worker/worker.py", line 1, in load_model',
]
TOO_SMALL = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (4.97 GiB). Based on the available memory, the estimated "
    "maximum model length is 40704. Try increasing `gpu_memory_utilization`"
)
TAKEN = (
    "ValueError: Free memory on device cuda:1 (9.88/44.4 GiB) on startup is less than desired GPU memory utilization "
    "(0.92, 40.85 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
ENDED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


def lines_of(*texts: str) -> list[Line]:
    """Bare lines with these texts."""
    return [Line(number=number, text=text) for number, text in enumerate(texts, start=1)]


@given(st.binary(max_size=400))
def test_any_bytes_get_a_diagnosis(content: bytes) -> None:
    """Whatever the bytes are, an answer comes."""
    assert diagnose_lines(read_lines(io.BytesIO(content))).cause


@settings(max_examples=300)
@given(st.lists(st.sampled_from(SAMPLES + FRAMES) | st.text(max_size=60), max_size=12))
def test_any_mix_of_messages_gets_a_diagnosis(texts: list[str]) -> None:
    """Every mixture of known messages, frames and noise gets an answer whose line is one of the lines."""
    found = diagnose_lines(lines_of(*texts))

    assert found.line is None or 1 <= found.line <= len(texts)


@given(st.lists(st.sampled_from(SAMPLES + FRAMES), max_size=10))
def test_line_by_line_is_the_same(texts: list[str]) -> None:
    """A watcher that was fed line by line says what the engine says at once."""
    watcher = Watcher()
    for line in lines_of(*texts):
        watcher.feed(line)

    assert diagnose_lines(lines_of(*texts)) == watcher.diagnosis()


@pytest.mark.parametrize(
    "sample", [m.sample for m in catalogue().messages if m.cause and m.weight > 1 and m.is_vllms]
)
def test_every_plain_cause_is_named(sample: str) -> None:
    """A boot that ends with a message that names its cause is diagnosed, with that line."""
    found = diagnose_lines(lines_of("vLLM API server version 0.19.1", sample, ENDED))

    assert found.cause not in {"healthy", "wrapper-only", "not-a-vllm-log", "unrecognised-error"}
    assert 2 == found.line
    assert found.message


VERSION = "(APIServer pid=7) INFO 12-01 10:00:00 [api_utils.py:347] vLLM API server version 0.19.1"
LAST_WORDS = (
    'zmq.error.ZMQError: ipc path "/a" is longer than 107 characters',
    "TimeoutError: nothing came",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "EOFError",
    "ray.exceptions.RaySystemError: System error: absent",
    "torch.package.Strange: a name that does not end as errors do",
)


@pytest.mark.parametrize("words", LAST_WORDS)
def test_a_start_that_ends_in_a_traceback_is_not_healthy(words: str) -> None:
    """Whatever the exception is: also one that is only the echo of a failure where anything else is in the log."""
    found = diagnose_lines(lines_of(VERSION, *FRAMES, "    load()", words))
    beside_a_cause = diagnose_lines(lines_of(VERSION, TAKEN, *FRAMES, "    load()", words))
    beside_a_death = diagnose_lines(lines_of(VERSION, ENDED, *FRAMES, "    wait()", "EOFError"))

    assert ("unrecognised-error", 5, True) == (found.cause, found.line, words[:40] in found.message)
    assert "gpu-memory-taken" == beside_a_cause.cause
    assert "wrapper-only" == beside_a_death.cause


def test_a_line_that_is_no_exception_ends_no_start() -> None:
    """What another part of the program prints after the code of a traceback is no error."""
    found = diagnose_lines(lines_of(VERSION, *FRAMES, "    load()", "INFO: 127.0.0.1 - a request"))

    assert "healthy" == found.cause


def test_the_port_between_processes_is_not_the_servers() -> None:
    """A taken ZeroMQ address is named with its own port, and not by the one that clients use."""
    command = "vllm serve m --port 9044"
    taken = "zmq.error.ZMQError: Address already in use"
    named = diagnose_lines(lines_of(command, *FRAMES, f"{taken} (addr='tcp://127.0.0.1:5557')"))
    unnamed = diagnose_lines(lines_of(command, *FRAMES, taken))

    assert ("port-in-use", "port 5557 is taken") == (named.cause, named.message)
    assert ("port-in-use", "the address is taken") == (unnamed.cause, unnamed.message)


def test_a_watcher_is_certain_before_the_end() -> None:
    """The cause is certain with its own line, while the processes are still giving up."""
    watcher = Watcher()
    certain = []
    for line in lines_of("vLLM API server version 0.19.1", "Using max model len 131072", TOO_SMALL, ENDED):
        watcher.feed(line)
        certain.append(watcher.certain)

    assert [None, None] == certain[:2]
    assert certain[2] is not None
    assert ("kv-cache-smaller-than-context", 3) == (certain[2].cause, certain[2].line)


def test_phases_advance() -> None:
    """A watcher knows how far the start has come."""
    watcher = Watcher()
    phases = []
    for line in lines_of(
        "vLLM API server version 0.19.1",
        "Starting to load model org/m...",
        "Model loading took 14.99 GiB memory and 3.7 seconds",
        "Available KV cache memory: 26.17 GiB",
        "Graph capturing finished in 12 secs, took 0.52 GiB",
        "Application startup complete.",
    ):
        watcher.feed(line)
        phases.append(watcher.phase)

    assert ["config", "weights", "profiling", "kv_cache", "warmup", "serving"] == phases
    assert watcher.ready


def test_the_last_boot_is_diagnosed() -> None:
    """Of two boots the last one is diagnosed; the other failure is kept."""
    banner = "vLLM API server version 0.20.1"
    found = diagnose_lines(lines_of(banner, TOO_SMALL, ENDED, banner, TAKEN, ENDED))

    assert ("gpu-memory-taken", 5, 2) == (found.cause, found.line, found.boots)
    assert [("kv-cache-smaller-than-context", 2)] == [(one.cause, one.line) for one in found.earlier]


def test_a_boot_that_has_only_begun_does_not_hide_the_failure() -> None:
    """In a restart loop whose log ends after a banner, the failure before it is the answer."""
    banner = "vLLM API server version 0.20.1"
    found = diagnose_lines(lines_of(banner, TOO_SMALL, ENDED, banner))

    assert "kv-cache-smaller-than-context" == found.cause


def test_an_empty_log_is_no_vllm_log() -> None:
    """Nothing is not a vLLM log."""
    assert "not-a-vllm-log" == diagnose_lines([]).cause


def test_numbers_and_budget_come_from_the_log() -> None:
    """The numbers of the finding and the memory of the boot are what vLLM printed."""
    found = diagnose_lines(
        lines_of(
            "vLLM API server version 0.19.1", "Model loading took 14.99 GiB memory and 3.7 seconds", TOO_SMALL
        )
    )

    assert {
        "max_model_len": 131072,
        "needed_gib": 16.0,
        "available_gib": 4.97,
        "estimated_max_model_len": 40704,
    } == {
        name: found.numbers[name]
        for name in ("max_model_len", "needed_gib", "available_gib", "estimated_max_model_len")
    }
    assert round(14.99 * (1 << 30)) == found.budget[0]["weights_bytes"]["expected"]
