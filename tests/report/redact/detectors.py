"""The table ``detect_secrets.toml`` from the installed bc-detect-secrets: ``python tests/report/redact/detectors.py > FILE``."""

import pkgutil
import sys
from importlib import import_module, metadata
from typing import Any

import detect_secrets.plugins

OWN = {"basic_auth", "private_key"}
"""Detectors whose place a rule of ours takes: passwords in URLs, and keys over several lines."""

WHOLE_MATCH = {"github_token"}
"""Detectors whose group is the token's prefix, not the token."""


def detectors() -> list[dict[str, Any]]:
    """Each pattern with its kind, its flags and the group that is the secret."""
    found = []
    for module in pkgutil.iter_modules(detect_secrets.plugins.__path__):
        plugin = import_module(f"detect_secrets.plugins.{module.name}")
        for kind in vars(plugin).values():
            if module.name in OWN or getattr(kind, "__module__", "") != plugin.__name__:
                continue
            patterns = getattr(kind, "denylist", ())
            for pattern in patterns if isinstance(patterns, list | tuple) else ():
                found.append(
                    {
                        "kind": module.name.replace("_", "-").removesuffix("-key").removesuffix("-token")
                        + "-secret",
                        "pattern": pattern.pattern,
                        "flags": int(pattern.flags) & ~32,
                        "group": 0 if module.name in WHOLE_MATCH else pattern.groups,
                    }
                )
    return found


def main() -> None:
    """Write the table."""
    version = metadata.version("bc-detect-secrets")
    sys.stdout.write(
        f"# The patterns of bc-detect-secrets {version} (Apache-2.0), from their `denylist`; made by tests/report/redact/detectors.py.\n"
    )
    for entry in detectors():
        sys.stdout.write(
            f"\n[[detector]]\nkind = \"{entry['kind']}\"\npattern = '''{entry['pattern']}'''\n"
            f"flags = {entry['flags']}\ngroup = {entry['group']}\n"
        )


if __name__ == "__main__":
    main()
