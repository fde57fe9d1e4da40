"""What the written files share: YAML with its keys in order, and comments in front."""

from typing import Any

from fitserve.report.emit.deployment import Deployment


def document(*values: Any) -> str:
    """The values as YAML documents."""
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes a value twice where it stands twice."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump_all(values, Dumper=Plain, sort_keys=False, width=1 << 30))


def heading(server: Deployment, *notes: str) -> str:
    """Comments: what is known about the command, and what is left to do."""
    lines = [*([server.note] if server.note else []), *notes]
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)
