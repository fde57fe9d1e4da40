"""What supervision adds to a start: from the launch to the first answer of /health, bare and under ``fitserve run``.

Without arguments the launched program is a bare web server, so that the difference is the tool's alone, in 10 rounds.
``python -m bench supervise PYTHON MODEL`` launches the vLLM of that Python instead, in 2 rounds. Exits with 1 where
the median start is more than 1 second later under supervision.
"""

import http.client
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARGET_SECONDS = 1.0
PATIENCE_SECONDS = 600.0
SUPERVISED = [sys.executable, "-c", "from fitserve.cli import main; main()", "run", "--quiet", "--"]
SERVER = """#!{python}
import http.server, sys
class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Well).serve_forever()
"""


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        number: int = server.getsockname()[1]
    return number


def is_up(port: int) -> bool:
    """True where /health answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def seconds_to_health(argv: list[str], environ: dict[str, str]) -> float:
    """One start, ended again."""
    port = free_port()
    begun = time.perf_counter()
    with subprocess.Popen(
        [*argv, "--port", str(port)],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        while not is_up(port):
            if process.poll() is not None or time.perf_counter() - begun > PATIENCE_SECONDS:
                raise SystemExit(f"it did not start: {argv}")
            time.sleep(0.005)
        taken = time.perf_counter() - begun
        process.send_signal(signal.SIGINT)
        process.wait()
    return taken


def main() -> int:
    """Measure in turns, and print."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "FITSERVE_DATA_DIR": folder, "TMPDIR": folder, "VLLM_NO_USAGE_STATS": "1"}
        if len(sys.argv) == 3:
            rounds, name = 2, "vLLM"
            flags = ["--load-format", "dummy", "--enforce-eager", "--max-model-len", "2048"]
            memory = ["--kv-cache-memory-bytes", "40M"]
            entry = ["-m", "vllm.entrypoints.openai.api_server", "--model"]
            launch = [sys.argv[1], *entry, sys.argv[2], *flags, *memory]
        else:
            rounds, name = 10, "a bare web server"
            program = Path(folder) / "vllm"
            program.write_text(SERVER.format(python=sys.executable), encoding="utf-8")
            program.chmod(0o755)
            launch = [str(program), "serve", "model"]
        pairs = [
            (seconds_to_health(launch, environ), seconds_to_health([*SUPERVISED, *launch], environ))
            for _ in range(rounds)
        ]
    bare, under = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"launch to /health of {name}, median of {rounds}, in turns")
    print(
        f"bare {bare:.2f} s, under fitserve run {under:.2f} s: {under - bare:+.2f} s, ratio {under / bare:.2f}"
    )
    print(f"target: at most {TARGET_SECONDS:+.2f} s")
    return 0 if under - bare <= TARGET_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
