"""Files that an edited launch needs: copies of what its command names, written beside the log (o: files).

The user's own files are never written. A script that looks for files beside itself has its copy there too, under a name
of its own, because nowhere else would it find them.
"""

from pathlib import Path

import msgspec

from fitserve.errors import MachineError
from fitserve.facts.command import Launch
from fitserve.facts.command_edit import with_option
from fitserve.facts.container import Service, find_compose
from fitserve.facts.shell_script import Script


def placed(launch: Launch, folder: Path, name: str) -> Launch:
    """The launch with its edited files written, and named in the command.

    Args:
        launch: the launch.
        folder: where copies go.
        name: what their names begin with.

    Raises:
        MachineError: a copy cannot be written.
    """
    config = launch.config
    if config is not None and config.edited:
        copy = _written(folder / f"{name}-{Path(config.path).name}", config.text.encode())
        launch = with_option(msgspec.structs.replace(launch, config=None), "config", str(copy))
        launch = msgspec.structs.replace(launch, config=config)
    if isinstance(launch.host, Script) and launch.host.path is not None and launch.host.edited:
        return _with_script(launch, launch.host, folder, name)
    if isinstance(launch.host, Service) and launch.host.edited:
        override = _written(folder / f"{name}-{launch.host.name}.yaml", launch.host.override().encode())
        files = [*launch.host.files, str(override)]
        argv = launch.host.compose.with_files(launch.argv, files)
        compose = find_compose(argv) or launch.host.compose
        host = msgspec.structs.replace(launch.host, compose=compose)
        return msgspec.structs.replace(launch, argv=tuple(argv), host=host)
    return launch


def _with_script(launch: Launch, script: Script, folder: Path, name: str) -> Launch:
    original = Path(script.path or "")
    beside = script.asks_its_place
    target = original.with_name(f".{name}-{original.name}") if beside else folder / f"{name}-{original.name}"
    if beside and target.exists() and target.read_bytes() != script.text:
        raise MachineError(
            "the script's copy would take the place of another file",
            where=str(target),
            hint="remove that file",
        )
    copy = _written(target, script.text, original.stat().st_mode & 0o777)
    return msgspec.structs.replace(
        launch, argv=(*launch.argv[: script.at], str(copy), *launch.argv[script.at + 1 :])
    )


def _written(path: Path, content: bytes, mode: int = 0o600) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
    except OSError as error:
        raise MachineError(
            f"a copy of an edited file cannot be written: {error.strerror}",
            where=str(path),
            hint="name another folder with --log-dir",
        ) from error
    return path.absolute()
