"""A container is no descendant of ours, and ends with the trial all the same."""

import os
import sys
from pathlib import Path
from typing import Any

from fitserve.facts.command import read_command
from fitserve.trial.attempt import Attempt
from fitserve.trial.progress import Quiet
from fitserve.trial.watch import Limits

DOCKER = f"""#!{sys.executable}
import sys, time
from pathlib import Path
here = Path(__file__).parent
if sys.argv[1] == "kill":
    (here / "killed").write_text(sys.argv[2])
    sys.exit()
Path(sys.argv[sys.argv.index("--cidfile") + 1]).write_text("c0ffee")
print("started", flush=True)
time.sleep(600)
"""


def test_a_container_is_killed_with_its_client(tmp_path: Path, mark: Any) -> None:
    """When the client is ended, the container that it has started is killed by its id, and the file of the id is gone."""
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    words = [
        str(docker),
        "run",
        "--rm",
        "-p",
        "18999:8000",
        "vllm/vllm-openai:v0.19.0",
        "--model",
        "org/model",
    ]
    attempt = Attempt(
        1,
        read_command(words),
        environ={**os.environ, **mark.env},
        log_path=tmp_path / "log",
        progress=Quiet(),
    )
    trial = attempt.settle(Limits(silence_seconds=1))

    assert words == trial.argv
    assert ("c0ffee", False, []) == (
        (tmp_path / "killed").read_text(),
        (tmp_path / "log.cid").exists(),
        mark.processes(),
    )
