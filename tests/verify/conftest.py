"""The misbehaving server, started once for all tests of this folder."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fake_url() -> Iterator[str]:
    """The address of the running fake server; a mode's name is added as the base path."""
    program = Path(__file__).with_name("fake_server.py")
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()
