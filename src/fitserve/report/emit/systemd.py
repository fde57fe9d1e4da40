"""A systemd unit: it counts as started when the server answers, and ends with everything below it.

Source: systemd.service(5), systemd.exec(5), systemd.kill(5): ``%`` and ``$`` are doubled in ``ExecStart``; with
``KillMode=mixed`` TERM goes to the server, which ends its engine, and KILL to whatever is left.
"""

from fitserve.report.emit.deployment import STOP_SECONDS, Deployment
from fitserve.report.emit.document import heading

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@+:,./=-")


def systemd(server: Deployment) -> str:
    """The unit."""
    program = server.program if server.program[0].startswith("/") else ("/usr/bin/env", *server.program)
    model = [] if server.program[-1] == "serve" else ["--model"]
    words = [*program, *model, *server.arguments()]
    lines = [
        "[Unit]",
        f"Description=vLLM: {_line(server.model).replace('%', '%%')}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=exec",
        *(
            f"Environment={_quoted(f'{name}={value}', dollars=False)}"
            for name, value in server.environment.items()
        ),
        f"EnvironmentFile={'' if server.secrets else '-'}/etc/{server.name}.env",
        "ExecStart=" + " ".join(_quoted(word) for word in words),
        "ExecStartPost=" + " ".join(_quoted(word) for word in _until_it_answers(server)),
        f"TimeoutStartSec={server.start_bound_seconds}",
        f"TimeoutStopSec={STOP_SECONDS}",
        "KillMode=mixed",
        "Restart=on-failure",
        "RestartSec=10",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    notes = [
        f"save it as /etc/systemd/system/{server.name}.service; add User= for whoever owns the model",
        *(f"/etc/{server.name}.env has the line {name}=..." for name in server.secrets),
    ]
    return heading(server, *notes) + "\n".join(lines) + "\n"


def _until_it_answers(server: Deployment) -> list[str]:
    """A program that asks until the server answers or is gone."""
    host = str(server.options.get("host", "127.0.0.1"))
    called = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - read, not bound
    url = f"{server.scheme}://{f'[{called}]' if ':' in called else called}:{server.port}/health"
    insecure = "k" if server.scheme == "https" else ""
    script = (
        f"while kill -0 $MAINPID; do curl -sf{insecure} -o /dev/null {url} && exit 0; sleep 2; done; exit 1"
    )
    return ["/bin/sh", "-c", script]


def _quoted(word: str, *, dollars: bool = True) -> str:
    """A word as systemd reads it; dollars mean something in commands alone."""
    text = word.replace("%", "%%")
    if dollars:
        text = text.replace("$", "$$")
    if text and set(text) <= _PLAIN:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _line(text: str) -> str:
    return " ".join(text.split())
