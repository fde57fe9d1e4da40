"""A ``docker`` with a daemon of its own, as far as ``compose up``, ``ps``, ``rm`` and ``run`` of one server go.

The daemon (``fake_docker.py --daemon FOLDER``) starts what its clients ask for, so that a container is no descendant of
the client, as with the real one; a client that is ended leaves its container running. ``FAKE_DOCKER`` names the folder.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

MARK = "FAKE_CONTAINER"
FOLDER = Path(os.environ.get("FAKE_DOCKER", "."))


def daemon(folder: Path) -> None:
    """Start and kill containers, one file a request."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    (folder / "ready").touch()
    while True:
        for request in sorted(folder.glob("*.start")):
            asked = json.loads(request.read_text())
            request.unlink()
            with (folder / f"{request.stem}.log").open("wb") as log:
                running[request.stem] = subprocess.Popen(
                    asked["argv"],
                    env={**asked["env"], MARK: request.stem},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            (folder / f"{request.stem}.up").touch()
        for request in folder.glob("*.kill"):
            request.unlink()
            kill_container(request.stem)
        for name, process in list(running.items()):
            if process.poll() is not None:
                (folder / f"{name}.up").unlink(missing_ok=True)
                (folder / f"{name}.code").write_text(str(process.returncode))
                del running[name]
        time.sleep(0.02)


def kill_container(name: str) -> None:
    """Kill every process of a container, whatever has become of its parents."""
    needle = f"{MARK}={name}".encode()
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and needle in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def start(name: str, argv: list[str], env: dict[str, str]) -> None:
    """Ask for a container, and pass its output on until it ends."""
    for old in ("code", "log"):
        (FOLDER / f"{name}.{old}").unlink(missing_ok=True)
    whole = FOLDER / f"{name}.new"
    whole.write_text(json.dumps({"argv": argv, "env": {**os.environ, **env}}))
    whole.rename(FOLDER / f"{name}.start")
    log = FOLDER / f"{name}.log"
    at = 0
    while True:
        ended = (FOLDER / f"{name}.code").exists()
        if log.exists():
            data = log.read_bytes()[at:]
            at += len(data)
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        if ended:
            sys.exit(int((FOLDER / f"{name}.code").read_text()))
        time.sleep(0.02)


def kill(name: str) -> None:
    """Ask for its end, and wait for it."""
    if (FOLDER / f"{name}.up").exists():
        (FOLDER / f"{name}.kill").touch()
    while (FOLDER / f"{name}.up").exists():
        time.sleep(0.02)


def compose(words: list[str]) -> None:
    """``compose -f FILE ... SUBCOMMAND ... SERVICE``."""
    files = [words[at + 1] for at, word in enumerate(words) if word == "-f"] or ["compose.yaml"]
    name = words[-1]
    service: dict[str, Any] = {}
    for file in files:
        service |= yaml.safe_load(Path(file).read_text())["services"].get(name, {})
    (FOLDER / "asked").open("a").write(" ".join(words) + "\n")
    if "ps" in words:
        print("c0ffee" if (FOLDER / f"{name}.up").exists() else "", end="")
    elif "rm" in words:
        kill(name)
    else:
        start(name, ["vllm", "serve", *map(str, service["command"])], {})


def main() -> None:
    """Be the daemon or a client."""
    words = sys.argv[1:]
    if words[0] == "--daemon":
        daemon(Path(words[1]))
    elif words[0] == "compose":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        compose(words[1:])


if __name__ == "__main__":
    main()
