"""The loop fixes a launch where it stands: in a script, in a compose file, behind srun; and ends it in its own way."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """#!/bin/bash
set -eu
PORT={port}
exec vllm serve org/model \\
    --port "$PORT" \\
    --max-model-len 8192 \\
    --kv-cache-memory-bytes=64M
"""

COMPOSE = """
services:
  llm:
    image: vllm/vllm-openai:v0.32.0
    network_mode: host
    command: [org/model, --port, "{port}", --max-model-len, "8192", --kv-cache-memory-bytes, "64M"]
"""

SRUN = """#!/bin/sh
echo "srun: job 4711 queued and waiting for resources" >&2
echo "srun: job 4711 has been allocated resources" >&2
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""

DOCKER = Path(__file__).parent / "programs" / "fake_docker.py"


def program(folder: Path, name: str, text: str) -> None:
    """Put a program into the folder that the tool looks into first."""
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def docker(fake_vllm: Path, tmp_path: Path, tool: Any) -> Iterator[Path]:
    """A docker with a daemon that the tool has not started; its folder."""
    folder = tmp_path / "docker"
    folder.mkdir()
    program(fake_vllm, "docker", f'#!/bin/sh\nexec "{sys.executable}" "{DOCKER}" "$@"\n')
    daemon = subprocess.Popen(
        [sys.executable, str(DOCKER), "--daemon", str(folder)], env={**os.environ, "PATH": tool.env["PATH"]}
    )
    tool.env["FAKE_DOCKER"] = str(folder)
    while not (folder / "ready").exists():
        time.sleep(0.02)
    yield folder
    daemon.kill()
    daemon.wait()


def test_a_script_is_fixed_in_a_copy(tool: Any, port: int, mark: Any, tmp_path: Path) -> None:
    """The second trial runs a copy with one changed line; the script itself is as it was."""
    script = tmp_path / "start.sh"
    script.write_text(SCRIPT.format(port=port))
    code, answer = tool.fix("--log-dir", str(tmp_path / "logs"), launch=["bash", str(script)])
    copy = tmp_path / "logs" / "trial-2-start.sh"
    lines = [
        (old, new)
        for old, new in zip(script.read_text().splitlines(), copy.read_text().splitlines(), strict=True)
        if old != new
    ]

    assert (0, "served", f"bash {copy}") == (code, answer["outcome"], answer["command"])
    assert [("    --kv-cache-memory-bytes=64M", "    --kv-cache-memory-bytes=135266304")] == lines
    assert (SCRIPT.format(port=port), []) == (script.read_text(), mark.processes())


def test_a_config_file_is_fixed_in_a_copy(tool: Any, port: int, tmp_path: Path) -> None:
    """What stands in the config file is changed in a copy of it, which the final command names."""
    config = tmp_path / "c.yaml"
    text = f"port: {port}  # ours\nmax-model-len: 8192\nkv-cache-memory-bytes: 64M # few\n"
    config.write_text(text)
    code, answer = tool.fix(
        "--log-dir", str(tmp_path / "logs"), launch=["vllm", "serve", "org/model", "--config", str(config)]
    )

    copy = tmp_path / "logs" / "trial-2-c.yaml"

    assert (0, f"vllm serve org/model --config {copy}") == (code, answer["command"])
    assert text.replace("64M", "135266304") == copy.read_text()
    assert (text, f"http://127.0.0.1:{port}") == (config.read_text(), answer["verification"]["url"])


def test_a_service_is_fixed_by_an_override_and_ended_by_docker(
    tool: Any, port: int, mark: Any, docker: Path, tmp_path: Path
) -> None:
    """The final command lays one file over the user's; no container is left, and docker was asked to end each."""
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.format(port=port))
    launch = ["docker", "compose", "-f", str(file), "up", "llm"]
    code, answer = tool.fix("--log-dir", str(tmp_path / "logs"), launch=launch)
    override = tmp_path / "logs" / "trial-2-llm.yaml"
    asked = [line for line in (docker / "asked").read_text().splitlines() if " rm " in line]

    assert (0, "served") == (code, answer["outcome"])
    assert f"docker compose -f {file} -f {override} up llm" == answer["command"]
    assert [
        f"-f {file} rm --stop --force llm",
        f"-f {file} -f {override} rm --stop --force llm",
    ] == asked
    assert (COMPOSE.format(port=port), []) == (file.read_text(), mark.left_after(5))


def test_a_service_that_runs_already_is_left_alone(
    tool: Any, port: int, docker: Path, tmp_path: Path
) -> None:
    """What the user has running is named and neither stopped nor started anew."""
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.format(port=port))
    (docker / "llm.up").touch()
    done = tool.run("fix", "--", "docker", "compose", "-f", str(file), "up", "llm")

    assert (4, True) == (done.returncode, "the service llm runs already" in done.stderr)
    assert (docker / "llm.up").exists()


def test_a_killed_tool_leaves_no_service(
    tool: Any, port: int, mark: Any, docker: Path, tmp_path: Path
) -> None:
    """After SIGKILL of the tool, docker is asked to end what compose has started."""
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.format(port=port))
    process = tool.start("fix", "--", "docker", "compose", "-f", str(file), "up", "llm", FAKE_VLLM="silent")
    end = time.monotonic() + 60
    while not (docker / "llm.up").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.kill()
    process.communicate()

    assert [] == mark.left_after(15)
    assert not (docker / "llm.up").exists()


@pytest.mark.parametrize(("inside", "cancelled"), [(False, "4711\n4711\n"), (True, None)])
def test_a_job_of_srun_is_cancelled_unless_it_is_the_users(
    *, inside: bool, cancelled: str | None, tool: Any, port: int, mark: Any, fake_vllm: Path, tmp_path: Path
) -> None:
    """A job that srun was given for the trial is cancelled after it; inside of an allocation nothing is."""
    program(fake_vllm, "srun", SRUN)
    program(fake_vllm, "scancel", f'#!/bin/sh\necho "$1" >> "{tmp_path}/cancelled"\n')
    launch = ["srun", "-N1", "vllm", "serve", "org/model", "--port", str(port)]
    launch += ["--max-model-len", "8192", "--kv-cache-memory-bytes=64M"]
    code, answer = tool.fix(launch=launch, **({"SLURM_JOB_ID": "1"} if inside else {}))
    note = tmp_path / "cancelled"

    assert (0, "served") == (code, answer["outcome"])
    assert (cancelled, []) == (note.read_text() if note.exists() else None, mark.processes())


def test_what_serves_is_written_for_other_places(tool: Any, port: int, tmp_path: Path) -> None:
    """With --emit, fix writes files beside its JSON, and report writes one from the journal."""
    launch = ["vllm", "serve", "org/model", "--port", str(port), "--api-key", "sk-a-secret-key"]
    code, _ = tool.fix("--emit", "k8s", "--emit", "yaml", "--emit-dir", str(tmp_path / "out"), launch=launch)
    unit = tool.run("report", "last", "--emit", "systemd")

    assert (0, {"kubernetes.yaml", "vllm.yaml"}) == (
        code,
        {path.name for path in (tmp_path / "out").iterdir()},
    )
    assert f"port: {port}\n" in (tmp_path / "out" / "vllm.yaml").read_text()
    assert (0, True) == (unit.returncode, unit.stdout.startswith("# run "))
    assert "every check passed" in unit.stdout
    for text in (unit.stdout, *(path.read_text() for path in (tmp_path / "out").iterdir())):
        assert "sk-a-secret-key" not in text


def test_nothing_is_written_for_what_does_not_serve(tool: Any, port: int) -> None:
    """A run without a final command is an error for report, and a line on stderr for fix."""
    launch = ["vllm", "serve", "org/model", "--port", str(port), "--max-model-len", "8192"]
    done = tool.run("fix", "--max-trials", "1", "--emit", "k8s", "--", *launch)
    report = tool.run("report", "last", "--emit", "k8s")

    assert (1, True) == (done.returncode, "nothing is emitted: no command of this run serves" in done.stderr)
    assert (3, "") == (report.returncode, report.stdout)


def test_json_and_what_is_emitted_do_not_share_stdout(tool: Any) -> None:
    """With --json and no folder, the exit code is 2 and nothing is started."""
    done = tool.run("fix", "--json", "--emit", "k8s", "--", "vllm", "serve", "org/model")

    assert (2, True) == (done.returncode, "stdout has the JSON already" in done.stderr)


@pytest.mark.live
def test_the_real_engine_is_fixed_in_a_script_and_its_config(
    *, tool: Any, engine_python: Path, tiny_model: Path, port: int, mark: Any, tmp_path: Path
) -> None:
    """The real vLLM serves from the copies of a script and of its config file, the pinned cache made larger in one of them."""
    config = tmp_path / "c.yaml"
    config.write_text(
        f"max-model-len: 8192\nkv-cache-memory-bytes: 4M  # few\nenforce-eager: true\nport: {port}\n"
    )
    script = tmp_path / "start.sh"
    script.write_text(
        f"#!/bin/bash\nMODEL={tiny_model}\nexec {engine_python} -m vllm.entrypoints.openai.api_server \\\n"
        f'    --model "$MODEL" \\\n    --load-format dummy \\\n    --config {config}\n'
    )
    code, answer = tool.fix(
        "--log-dir",
        str(tmp_path / "logs"),
        "--emit",
        "yaml",
        "--emit-dir",
        str(tmp_path),
        launch=["bash", str(script)],
    )
    written = (tmp_path / "vllm.yaml").read_text()

    assert (0, "served", []) == (code, answer["outcome"], mark.processes())
    assert ["failed", "served"] == [trial["outcome"] for trial in answer["trials"]]
    assert f"bash {tmp_path}/logs/trial-2-start.sh" == answer["command"]
    assert f"model: {tiny_model}\n" in written
    assert "every check passed" in written
