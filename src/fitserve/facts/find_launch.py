"""A launch with the files that its command names: a script, a compose file, vLLM's own config file (i: files).

None of them is ever written: what is edited in them goes into copies when the launch is started.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from fitserve.errors import InputError, UsageError
from fitserve.facts.command import Launch, in_script, read_command, read_words, split_environment
from fitserve.facts.config_file import read_config_file
from fitserve.facts.container import Compose, Service, find_compose, read_service
from fitserve.facts.container.compose import FILES
from fitserve.facts.shell_script import SHELLS, script_in
from fitserve.facts.shell_words import Known

_ELSEWHERE = {
    "kubectl": "a cluster",
    "oc": "a cluster",
    "helm": "a cluster",
    "sbatch": "a batch job",
    "qsub": "a batch job",
    "bsub": "a batch job",
}
_SHEBANG = re.compile(rb"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(\w+)")
_MOST_BYTES = 1 << 20
_ENVIRONMENT_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$")


def find_launch(argv: Sequence[str], environ: Mapping[str, str], *, watched: bool = True) -> Launch:
    """The vLLM launch in a command, in the script or the compose file that it names, with its config file.

    Args:
        argv: the command.
        environ: the user's environment.
        watched: False where the command is only read, so that it may run anywhere.

    Raises:
        UsageError: there is none, or one that cannot be supervised.
        InputError: a file that the command names cannot be read.
    """
    words, env = split_environment(argv)
    if watched:
        _refuse_elsewhere(words)
    launch = _in_compose(words, env, environ) or _in_script(words, env, environ) or read_command(argv)
    if launch.container is not None:
        return launch
    path = launch.value("config")
    return launch if path is None else msgspec.structs.replace(launch, config=read_config_file(str(path)))


def _refuse_elsewhere(words: Sequence[str]) -> None:
    """Refuse what starts the server where nobody here can watch or end it."""
    for at, word in enumerate(words[:3]):
        name = PurePath(word).name
        if name in ("docker", "podman", "nerdctl") and words[at + 1 : at + 2] in (["exec"], ["start"]):
            raise UsageError(
                f"what {name} {words[at + 1]} starts would outlive the command",
                where=" ".join(words),
                hint=f"start the server with {name} run --rm",
            )
        if name not in _ELSEWHERE:
            continue
        inside = (
            "run fitserve inside the pod; its result can be written as a manifest: fitserve report last --emit k8s"
            if _ELSEWHERE[name] == "a cluster"
            else "run it inside an allocation: salloc ... fitserve fix -- srun vllm serve MODEL, or -- bash SCRIPT"
        )
        raise UsageError(
            f"what {name} starts runs in {_ELSEWHERE[name]}, where it cannot be watched from here",
            where=" ".join(words),
            hint=inside,
        )


def _in_script(words: list[str], env: dict[str, str], environ: Mapping[str, str]) -> Launch | None:
    """The launch in a script file or behind ``bash -c``; None where the command is no script, or the launch itself."""
    known_environ = {**environ, **env}
    outer = Launch(argv=tuple(words), env=env, program=0, first=0, takes_model=False)
    if not words or read_words(words) is not None:
        return None
    shell = script_in(words)
    if shell is not None and shell[1]:
        at = shell[0]
        text = words[at].encode("utf-8", "surrogateescape")
        return in_script(outer, text, at, None, Known(known_environ, tuple(words[at + 2 :])))
    place = shell[0] if shell is not None else _script_program(words)
    if place is None:
        return None
    at = place
    path = words[at] if shell is not None else (shutil.which(words[at]) or words[at])
    return in_script(outer, _content(path), at, path, Known(known_environ, tuple(words[at + 1 :])))


def _script_program(words: Sequence[str]) -> int | None:
    """The first word that is a shell script; None without one."""
    for at, word in enumerate(words):
        found = shutil.which(word) if at == 0 else word
        if found is None or not Path(found).is_file():
            continue
        with Path(found).open("rb") as file:
            first = _SHEBANG.match(file.readline(200))
        if (first and first[1].decode() in SHELLS) or (
            first is None and word.endswith((".sh", ".slurm", ".sbatch"))
        ):
            return at
    return None


def _content(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"the script cannot be read: {error.strerror}", where=path) from error
    if len(content) > _MOST_BYTES or b"\0" in content:
        raise InputError("this is no shell script", where=path)
    return content


def _in_compose(words: list[str], env: dict[str, str], environ: Mapping[str, str]) -> Launch | None:
    compose = find_compose(words)
    if compose is None:
        return None
    files = compose.files or _default_files({**environ, **env})
    known = {**_environment_file(compose, files), **environ, **env}
    described = _merged([_services(file) for file in files])
    wanted = compose.services or tuple(described)
    found = [
        launch
        for name in wanted
        if name in described
        and (launch := _of_service(read_service(name, described[name], compose, files, known))) is not None
    ]
    if len(found) != 1:
        raise UsageError(
            f"{'none' if not found else len(found)} of the services {', '.join(wanted)} starts vLLM"
            if not found
            else f"{len(found)} services start vLLM, and only one can be changed",
            where=", ".join(files),
            hint="name the one that is meant: docker compose up SERVICE",
        )
    return msgspec.structs.replace(found[0], argv=tuple(words), env=env)


def _of_service(service: Service) -> Launch | None:
    """The launch that a service is: its command starts vLLM, or its image does, and takes the command as options."""
    found = read_words(service.words)
    if found is not None:
        return msgspec.structs.replace(found, host=service, container=service.container)
    if service.head != 1 or service.words[0] != service.image or not service.container.is_vllm:
        return None
    if script_in(service.words) is not None:
        raise UsageError(
            "the service's command is a shell's script, which is not edited in a compose file",
            where=f"service {service.name}",
            hint="give vLLM's options as the service's command",
        )
    return Launch(
        argv=service.words, program=0, first=1, takes_model=True, host=service, container=service.container
    )


def _default_files(environ: Mapping[str, str]) -> tuple[str, ...]:
    if named := environ.get("COMPOSE_FILE"):
        return tuple(named.split(environ.get("COMPOSE_PATH_SEPARATOR", ":")))
    found = next((name for name in FILES if Path(name).is_file()), None)
    if found is None:
        raise InputError("there is no compose file", where=str(Path.cwd()), hint="name it with -f FILE")
    stem = found.rpartition(".")[0]
    overrides = [name for end in ("yaml", "yml") if Path(name := f"{stem}.override.{end}").is_file()]
    return (found, *overrides[:1])


def _services(file: str) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the compose file cannot be read: {error.strerror}", where=file) from error
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"the compose file is no YAML: {error}", where=file) from error
    services = content.get("services") if isinstance(content, dict) else None
    if not isinstance(services, dict):
        raise InputError("the compose file has no services", where=file)
    return {str(name): each for name, each in services.items() if isinstance(each, dict)}


def _merged(files: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The services of several files: a later file's values count, its lists and mappings add."""
    merged: dict[str, Any] = {}
    for services in files:
        for name, described in services.items():
            before = merged.get(name, {})
            merged[name] = {
                **before,
                **{key: _laid_over(key, before.get(key), value) for key, value in described.items()},
            }
    return merged


def _laid_over(key: str, before: Any, value: Any) -> Any:
    if key in ("command", "entrypoint") or type(before) is not type(value):
        return value
    if isinstance(value, dict):
        return {**before, **value}
    return [*before, *value] if isinstance(value, list) else value


def _environment_file(compose: Compose, files: Sequence[str]) -> dict[str, str]:
    """The variables of ``.env`` beside the first file, or of the files that the command names."""
    folder = Path(compose.directory) if compose.directory else Path(files[0]).parent
    found: dict[str, str] = {}
    for path in [Path(name) for name in compose.environment_files] or [folder / ".env"]:
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            matches = [match for line in lines if (match := _ENVIRONMENT_LINE.match(line))]
            found |= {match[1]: match[2].strip().strip("'\"") for match in matches}
    return found
