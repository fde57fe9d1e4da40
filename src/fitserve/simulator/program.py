"""The program ``vllm`` of a simulated machine (o: processes, sockets).

Source: ``entrypoints/cli/main.py``, ``entrypoints/cli/serve.py``, ``entrypoints/openai/api_server.py`` of vLLM 0.8.5 to 0.32.0.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fitserve.simulator.arguments import read_arguments
from fitserve.simulator.engine import run_engine
from fitserve.simulator.engine_v0 import run_engine_v0
from fitserve.simulator.machine import Machine, read_machine, visible
from fitserve.simulator.models import Model, find_model
from fitserve.simulator.play import Play
from fitserve.simulator.refusals import Refusal, refuse_model, refuse_settings
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import Settings, resolve
from fitserve.simulator.start import Start
from fitserve.simulator.voice import Voice, traceback

_USAGE = "usage: vllm [-h] [-v] {chat,complete,serve,bench,collect-env,run-batch} ..."
_LOGO = """
       █     █     █▄   ▄█
 ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}
  █▄█▀ █     █     █     █  model   {model}
   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀
"""


class _Stopped(BaseException):
    """A signal has come."""


def main(arguments: Sequence[str]) -> int:
    """Be ``vllm``; gives the exit code."""
    folder, mode, *words = arguments
    machine = read_machine(Path(folder))
    if mode == "vllm":
        if words[:1] in (["--version"], ["-v"]):
            _say(machine.vllm_version)
            return 0
        if words[:1] != ["serve"]:
            _say(_USAGE)
            return 0 if words[:1] in ([], ["-h"], ["--help"]) else 2
        words = words[1:]
    if any(word in ("-h", "--help") or word.startswith("--help=") for word in words):
        _say(_help(machine.vllm_version))
        return 0
    given = read_arguments(words, machine.vllm_version, module=mode == "module")
    return serve(Path(folder), machine, given, os.environ)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _help(version: str) -> str:
    from fitserve.simulator.arguments import build_parser

    return build_parser(version).format_help()


class _Site(msgspec.Struct, frozen=True):
    """Where a server is started, and how it is asked for."""

    folder: Path
    machine: Machine
    given: dict[str, Any]
    environ: Mapping[str, str]


def serve(folder: Path, machine: Machine, given: dict[str, Any], environ: Mapping[str, str]) -> int:
    """Start a server, and be it until it ends."""
    version, place = machine.vllm_version, str(given.get("model", "Qwen/Qwen3-0.6B"))
    voice = Voice(version, "APIServer")
    _greet(voice, version, place, given)
    try:
        listener = _bind(str(given.get("host") or ""), int(given.get("port", 8000)))
    except OSError as error:
        voice.raw(
            "\n".join(traceback(voice.frames("api")[:2], f"OSError: [Errno {error.errno}] {error.strerror}"))
        )
        return 1
    model = find_model(place)
    refusal = refuse_model(place, model, given, version)
    if refusal is not None or model is None:
        return _refuse(voice, refusal)
    return _serve_model(_Site(folder, machine, given, environ), model, listener)


def _serve_model(site: _Site, model: Model, listener: socket.socket) -> int:
    folder, machine, given, environ = site.folder, site.machine, site.given, site.environ
    version, place = machine.vllm_version, str(given["model"])
    voice = Voice(version, "APIServer")
    devices = visible(machine, environ)
    settings = resolve(given, version, machine.device, model, environ)
    if not devices:
        return _refuse(voice, _no_device())
    refusal = refuse_settings(settings, model, machine, len(devices), environ)
    late = refusal is not None and refusal.frames[:1] == ("engine_init",)
    if refusal is None or refusal.frames != ("api", "api_model_config"):
        _tell_config(voice, settings, model)
    if refusal is not None and not late:
        return _refuse(voice, refusal)
    play = Play(
        folder=folder,
        machine=machine,
        model=model,
        place=place,
        settings=settings,
        devices=devices[: settings.world_size],
        refusal=refusal,
    )
    try:
        with _signals():
            pid, start, life = _start_engine(play)
    except _Stopped as stopped:
        voice.raw("\n".join(traceback(voice.frames("api"), f"KeyboardInterrupt: {stopped}")))
        return 130 if str(stopped) == "" else 1
    if start is None:
        _, status = os.waitpid(pid, 0)
        last = _engine_failed(version, os.waitstatus_to_exitcode(status))
        frames = voice.frames("api", "api_engine") if settings.v1 else voice.frames("v0_api")
        voice.raw("\n".join(traceback(frames, last)))
        return 1
    from fitserve.simulator.server import Engine, run_server

    return run_server(Engine(play=play, start=start, pid=pid, life=life), given, voice, listener)


def _engine_failed(version: str, code: int) -> str:
    """The error of the API server; a process that a signal has ended is seen before it is asked."""
    words = "RuntimeError: Engine core initialization failed. See root cause above."
    if not at_least(version, "0.8.0"):
        return "RuntimeError: Engine process failed to start. See stack trace for the root cause."
    if not at_least(version, "0.9.0"):
        return words
    name = "EngineCore" if at_least(version, "0.18.0") else "EngineCore_DP0"
    failed = {name if at_least(version, "0.10.2") else "EngineCore_0": code} if code < 0 else {}
    return f"{words} Failed core proc(s): {failed}"


def _start_engine(play: Play) -> tuple[int, Start | None, int]:
    """The engine core's pid, what it has brought up (None where it failed), and the pipe that keeps it alive."""
    told, ready = os.pipe()
    life, keep = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(told)
        os.close(keep)
        run_engine(play, ready, life) if play.settings.v1 else run_engine_v0(play, ready, life)
    os.close(ready)
    os.close(life)
    try:
        text = b"".join(iter(lambda: os.read(told, 1 << 16), b""))
    except _Stopped:
        os.kill(pid, signal.SIGTERM)
        raise
    return pid, msgspec.json.decode(text, type=Start) if text else None, keep


@contextlib.contextmanager
def _signals() -> Any:
    def stop(number: int, _frame: object) -> None:
        raise _Stopped("terminated" if number == signal.SIGTERM else "")

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _greet(voice: Voice, version: str, place: str, given: dict[str, Any]) -> None:
    if at_least(version, "0.15.0"):
        voice.log(
            voice.places["lines"].get("banner") or voice.places["lines"]["args"],
            _LOGO.format(version=version, model=place),
        )
    else:
        voice.log("banner", f"vLLM API server version {version}")
    entries = {"model_tag": place, **given} if at_least(version, "0.15.0") else given
    if at_least(version, "0.9.0"):
        voice.log("args", f"non-default args: {entries}")
    else:
        listed = ", ".join(f"{name}={value!r}" for name, value in given.items())
        voice.log(
            "banner",
            f"args: Namespace(subparser='serve', model_tag='{place}', {listed}, dispatch_function=<function cmd>)",
        )


def _tell_config(voice: Voice, settings: Settings, model: Model) -> None:
    if at_least(settings.version, "0.10.1"):
        architecture = (model.config.get("architectures") or ["LlamaForCausalLM"])[0]
        voice.log("architecture", f"Resolved architecture: {architecture}")
    if at_least(settings.version, "0.9.2"):
        length = model.longest if settings.max_model_len == -1 else settings.max_model_len
        voice.log("max_len", f"Using max model len {length}")
    if settings.chunked_prefill:
        voice.log(
            "chunked",
            f"Chunked prefill is enabled with max_num_batched_tokens={settings.max_num_batched_tokens}.",
        )


def _no_device() -> Refusal:
    return Refusal(
        cause="no-gpu-visible",
        error="RuntimeError",
        message="Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose "
        "logging to help debug the issue.",
        frames=("api",),
    )


def _refuse(voice: Voice, refusal: Refusal | None) -> int:
    if refusal is not None:
        voice.raw("\n".join(traceback(voice.frames(*refusal.frames), refusal.last_line)))
    return 1


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family=family, type=socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
