"""What a vLLM's own code says that a model takes: it is asked in a child process, and may fail."""

import contextlib
import json
import os
import resource
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fitserve.facts.engine.pip import clean_environment
from fitserve.units import GIB, Unknown

ASK_SECONDS = 120.0
"""A model takes about 10 s, most of it for importing vLLM (measured on two cores, vLLM 0.32.0)."""

_SCRIPT = Path(__file__).parent / "in_engine" / "ask.py"
_LARGEST_DATA_BYTES = 16 * GIB
"""What the child may allocate; a configuration of absurd size must not take the machine with it."""

_LARGEST_REPLY_BYTES = 16 << 20
_TAIL_BYTES = 4096
_REASON_LETTERS = 300


class PretendedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The CUDA device that vLLM is to plan for; it need not be there.

    Attributes:
        name: its product name.
        total_bytes: its memory.
        compute_capability: such as (9, 0).
        multiprocessors: streaming multiprocessors.
    """

    name: str
    total_bytes: int
    compute_capability: tuple[int, int]
    multiprocessors: int


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A model and the settings of a start.

    Attributes:
        config: its ``config.json``.
        hf_quant: its ``hf_quant_config.json``, if there is one.
        settings: vLLM's arguments by name.
        device: the CUDA device; None for the CPU backend.
        kv_cache_bytes: sizes of the first rank's KV cache.
        shared_bytes: sizes that its weights and its KV cache have together.
    """

    config: dict[str, Any]
    hf_quant: dict[str, Any] | None = None
    settings: dict[str, Any] = {}
    device: PretendedDevice | None = None
    kv_cache_bytes: tuple[int, ...] = ()
    shared_bytes: tuple[int, ...] = ()


class EngineLayers(msgspec.Struct, frozen=True, kw_only=True):
    """Equal layers on the first rank: what they keep, how many they are, and one block of one of them."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int


class EngineCache(msgspec.Struct, frozen=True, kw_only=True):
    """What fits into a KV cache of some size.

    Attributes:
        kv_cache_bytes: the size.
        num_blocks: its blocks.
        tokens: the number that vLLM prints as its size.
        max_concurrency: requests of ``max_model_len`` tokens at once.
        bytes_per_block: bytes of a block of all layers.
        longest: tokens of the longest request that fits; None where every length does.
        groups: the layers that share a block table.
        refused: why vLLM would not start; empty where it would.
        needed_bytes: what it says that one request needs, rounded as printed.
    """

    kv_cache_bytes: int
    num_blocks: int = 0
    tokens: int = 0
    max_concurrency: float = 0.0
    bytes_per_block: int = 0
    longest: int | None = None
    groups: tuple[EngineLayers, ...] = ()
    refused: str = ""
    needed_bytes: int = 0


class EngineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the first rank of a start takes, as vLLM's own code says.

    Attributes:
        version: the release that answered.
        param_bytes: parameters.
        buffer_bytes: buffers.
        max_model_len: the context that it settled on.
        layers: what its layers keep.
        caches: one for each size asked about, ``kv_cache_bytes`` first.
    """

    version: str
    param_bytes: int
    buffer_bytes: int
    max_model_len: int
    layers: tuple[EngineLayers, ...]
    caches: tuple[EngineCache, ...]

    @property
    def source(self) -> str:
        """Where its numbers are from."""
        return f"the engine (vLLM {self.version})"


class _Failure(msgspec.Struct, frozen=True):
    error: str


def ask_engine(
    python: Path, questions: Sequence[Question], *, timeout_seconds: float = ASK_SECONDS
) -> list[EngineAnswer | Unknown]:
    """Ask vLLM's own code: models are built without weights and without GPU memory, nothing of a repository is run.

    Args:
        python: the Python that vLLM is installed in.
        questions: what is asked, all about the same device; one child process answers them all.
        timeout_seconds: what the child may take for all of them.

    Returns:
        One answer a question; an unknown names what kept the engine from answering.
    """
    with tempfile.TemporaryDirectory(prefix="fitserve-ask-") as name:
        folder = Path(name)
        jobs = "".join(_job(folder / f"model-{at}", one) for at, one in enumerate(questions))
        (folder / "jobs").write_text(jobs, encoding="utf-8")
        ended = _run(python, folder, timeout_seconds)
        replies = _lines(folder / "replies")
        tail = _last_line(folder / "errors")
    answers = [_read(line) for line in replies[: len(questions)]]
    missing = f"the engine did not answer: {ended}{': ' if tail else ''}{tail}"
    return answers + [Unknown(missing)] * (len(questions) - len(answers))


def _job(folder: Path, question: Question) -> str:
    """The question as a line; its model as a folder with the configuration alone."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(question.config), encoding="utf-8")
    if question.hf_quant is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(question.hf_quant), encoding="utf-8")
    job = {
        "model": str(folder),
        "settings": question.settings,
        "device": msgspec.to_builtins(question.device),
        "kv_cache_bytes": question.kv_cache_bytes,
        "shared_bytes": question.shared_bytes,
    }
    return json.dumps(job) + "\n"


def _run(python: Path, folder: Path, timeout_seconds: float) -> str:
    """How the child ended; it and its children are gone afterwards."""
    import subprocess

    environment = {**clean_environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    with (
        (folder / "jobs").open("rb") as jobs,
        (folder / "replies").open("wb") as replies,
        (folder / "errors").open("wb") as errors,
    ):
        try:
            child = subprocess.Popen(
                [str(python), str(_SCRIPT)],
                stdin=jobs,
                stdout=replies,
                stderr=errors,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            return f"{python} cannot be started: {error.strerror}"
        try:
            with contextlib.suppress(OSError):
                resource.prlimit(child.pid, resource.RLIMIT_DATA, (_LARGEST_DATA_BYTES, _LARGEST_DATA_BYTES))
            code = child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return f"not within {timeout_seconds:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return f"it ended with signal {-code}" if code < 0 else f"it ended with code {code}"


def _lines(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return file.read(_LARGEST_REPLY_BYTES).splitlines()


def _last_line(path: Path) -> str:
    """The last line that says something."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    return next((line[:_REASON_LETTERS] for line in reversed(lines) if line), "")


def _read(line: bytes) -> EngineAnswer | Unknown:
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
        if "error" in found:
            error = msgspec.convert(found, _Failure).error
            return Unknown(f"the engine cannot tell: {' '.join(error.split())[:_REASON_LETTERS]}")
        return msgspec.convert(found, EngineAnswer)
    except msgspec.MsgspecError as error:
        return Unknown(f"the engine's answer cannot be read: {error}")
