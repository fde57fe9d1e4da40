"""A hundred kills, of the tool, its reaper, vLLM or a worker, at random moments: what is left of each.

python -m bench kills [NUMBER]
"""

import os
import subprocess
import sys
import time
from pathlib import Path

TEST = Path(__file__).parent.parent / "tests" / "fix" / "test_random_kills.py"


def main() -> int:
    """Run the test with so many kills."""
    number = sys.argv[1] if len(sys.argv) > 1 else "100"
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(TEST)],
        env={**os.environ, "FITSERVE_KILLS": number},
        check=False,
    )
    print(f"{number} kills in {time.perf_counter() - begun:.0f} s")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
