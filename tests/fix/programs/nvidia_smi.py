"""A program that answers like ``nvidia-smi`` for devices that are not there. Standard library alone.

``FAKE_SMI`` names a folder: each file in it is a device, its name the UUID, and holds lines ``PID MIB``. A process that lives
holds that much there; ``all`` stands for every process of the fake vLLM, and ``ghost`` for memory that no process has. A file
``hangs`` makes every question last for ever, ``fails`` makes it end with an error.
"""

import os
import sys
import time
from pathlib import Path

TOTAL_MIB = 24_000
FOLDER = Path(os.environ["FAKE_SMI"])


def servers() -> list[int]:
    """The processes of the fake vLLM itself."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (
            any(word.endswith(b"fake_vllm.py") for word in words[:2])
            and os.environ["FITSERVE_TEST_MARK"].encode() in (folder / "environ").read_bytes()
        ):
            found.append(int(folder.name))
    return found


def held(path: Path) -> list[tuple[int, int]]:
    """Who holds how much of a device; 0 stands for nobody."""
    found = []
    for line in path.read_text().splitlines():
        who, mib = line.split()
        pids = {"all": servers(), "ghost": [0]}[who] if who in ("all", "ghost") else [int(who)]
        found += [(pid, int(mib)) for pid in pids if pid == 0 or Path(f"/proc/{pid}").exists()]
    return found


def main() -> None:
    """Answer one question."""
    if (FOLDER / "hangs").exists():
        time.sleep(600)
    if (FOLDER / "fails").exists():
        sys.exit("Unable to determine the device handle for GPU0: GPU is lost.")
    for path in sorted(FOLDER.iterdir()):
        holders = held(path)
        free = TOTAL_MIB - 500 - sum(mib for _, mib in holders)
        if sys.argv[1].startswith("--query-gpu"):
            print(f"{path.name}, Fake Device, {TOTAL_MIB}, 500, {free}, 9.0, [N/A]")
        elif sys.argv[1].startswith("--query-compute-apps"):
            for pid, mib in holders:
                if pid:
                    print(f"{path.name}, {pid}, [Not Found], {mib}")


if __name__ == "__main__":
    main()
