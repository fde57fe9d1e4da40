"""The tool's own command line as a child process, with a program that starts like vLLM on its path."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ENTRY = [sys.executable, "-c", "from fitserve.cli import main; main()"]


class Tool:
    """Starts ``fitserve`` with an environment of its own."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [*ENTRY, *arguments],
            env={**self.env, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def start(
        self, *arguments: str, text: bool = True, stderr: int = subprocess.PIPE, **env: str
    ) -> subprocess.Popen[Any]:
        """Start it in a group of its own, as a terminal would."""
        return subprocess.Popen(
            [*ENTRY, *arguments],
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=text,
            process_group=0,
        )

    def fix(self, *options: str, launch: list[str], **env: str) -> tuple[int, dict[str, Any]]:
        """Run ``fix --json``; its exit code and its answer."""
        done = self.run("fix", "--json", "--quiet", *options, "--", *launch, **env)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def record(self) -> dict[str, Any]:
        """The newest run of the journal."""
        done = self.run("report", "last", "--format", "json", "--no-redact")
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def tool(fake_vllm: Path, mark: Any, tmp_path: Path) -> Tool:
    """The tool, its journal in a folder of its own."""
    return Tool(
        {
            **os.environ,
            **mark.env,
            "PATH": f"{fake_vllm}:{os.environ['PATH']}",
            "FITSERVE_DATA_DIR": str(tmp_path / "data"),
            "TMPDIR": str(tmp_path),
            "VLLM_RPC_BASE_PATH": tempfile.gettempdir(),  # a socket's path has 107 bytes at most
        }
    )


@pytest.fixture
def port() -> int:
    """A port that nobody has."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        number: int = server.getsockname()[1]
    return number
