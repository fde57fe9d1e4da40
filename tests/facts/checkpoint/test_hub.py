"""The Hub, played by a small server on this machine that huggingface_hub asks over HTTP."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROGRAM = """
import json, sys
from fitserve.errors import FitserveError
from fitserve.facts.checkpoint import read_checkpoint
try:
    found = read_checkpoint(sys.argv[1])
    print(json.dumps([found.config.architecture, len(found.tensors), found.size_bytes, found.source]))
except FitserveError as error:
    print(json.dumps([type(error).__name__, error.what, error.hint]))
"""


class Mirror(ThreadingHTTPServer):
    """Serves one directory as the repository ``org/tiny``, and remembers what was asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.bytes_sent: dict[str, int] = {}
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers what huggingface_hub asks: information on a repository, files, and ranges of files."""

    protocol_version = "HTTP/1.1"
    server: Mirror

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Keep quiet."""

    def do_HEAD(self) -> None:
        """The file's facts."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """The file, or the part that is asked for."""
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.server.tokens.add(self.headers.get("Authorization"))
        path = self.path.split("?")[0]
        if path.startswith("/api/models/org/tiny"):
            return self._info(path)
        name = path.rsplit("/", 1)[-1]
        file = self.server.folder / name
        if not path.startswith("/org/tiny/resolve/") or not file.is_file():
            return self._send(
                404, b"", {"X-Error-Code": "EntryNotFound" if "tiny" in path else "RepoNotFound"}
            )
        data, status = file.read_bytes(), 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes="):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            data, status = data[int(first) : int(last or len(data)) + 1], 206
        if body:
            self.server.bytes_sent[name] = self.server.bytes_sent.get(name, 0) + len(data)
        return self._send(status, data, {"X-Repo-Commit": COMMIT, "ETag": f'"{name}"'}, body=body)

    def _info(self, path: str) -> None:
        names = [
            {
                "type": "file",
                "path": file.name,
                "rfilename": file.name,
                "size": file.stat().st_size,
                "oid": "0" * 40,
            }
            for file in self.server.folder.iterdir()
        ]
        answer: object = {
            "id": "org/tiny",
            "modelId": "org/tiny",
            "sha": COMMIT,
            "siblings": names,
            "tags": [],
        }
        if "/tree/" in path or "/paths-info/" in path:
            answer = names
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, headers: dict[str, str], *, body: bool = True) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)


@pytest.fixture
def mirror(write_llama: Callable[..., Path]) -> Iterator[Mirror]:
    """A running mirror of the small Llama."""
    server = Mirror(write_llama())
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(model: str, home: Path, **env: str) -> list[object]:
    """What a fresh process reads of a model on the Hub."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, model],
        env=inherited | {"HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"} | env,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer: list[object] = json.loads(done.stdout)
    return answer


def test_a_mirror_gives_headers_only(
    mirror: Mirror, tmp_path_factory: pytest.TempPathFactory, llama_bytes: int
) -> None:
    """``HF_ENDPOINT`` counts, ``HF_TOKEN`` is sent, and of the weights only the beginning is fetched."""
    weights = mirror.folder / "model.safetensors"
    home = tmp_path_factory.mktemp("home")

    found = ask("org/tiny", home, HF_ENDPOINT=mirror.url, HF_TOKEN="hf_secret")

    assert ["LlamaForCausalLM", 21, llama_bytes, "org/tiny"] == found
    assert "Bearer hf_secret" in mirror.tokens
    assert weights.stat().st_size > 100_000
    assert mirror.bytes_sent["model.safetensors"] < weights.stat().st_size


def test_an_unknown_model_is_an_input_error(mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the Hub does not have is said, with what to check."""
    found = ask("org/missing", tmp_path_factory.mktemp("home"), HF_ENDPOINT=mirror.url)

    assert "InputError" == found[0]
    assert "check the name" in str(found[2])


def test_offline_nothing_is_asked(mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> None:
    """``HF_HUB_OFFLINE`` asks nobody: what is not in the cache is an input error."""
    home = tmp_path_factory.mktemp("home")
    found = ask("org/tiny", home, HF_ENDPOINT=mirror.url, HF_HUB_OFFLINE="1")

    assert "InputError" == found[0]
    assert "HF_HUB_OFFLINE" in str(found[2])
    assert {} == mirror.bytes_sent


def test_the_cache_answers_offline(mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was read once is read again without the Hub; only the headers are not kept."""
    home = tmp_path_factory.mktemp("home")
    ask("org/tiny", home, HF_ENDPOINT=mirror.url)

    found = ask("org/tiny", home, HF_ENDPOINT=mirror.url, HF_HUB_OFFLINE="1")

    assert ["LlamaForCausalLM", 0, None, "org/tiny"] == found
