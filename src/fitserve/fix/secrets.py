"""A record as it may be kept: no key in its commands."""

import msgspec

from fitserve.facts.command_edit import masked
from fitserve.report.record import Record


def without_secrets(record: Record) -> Record:
    """The record with every API key and token in its commands hidden."""
    return msgspec.structs.replace(
        record,
        command=masked(record.command),
        final_command=None if record.final_command is None else masked(record.final_command),
        trials=[msgspec.structs.replace(trial, argv=masked(trial.argv)) for trial in record.trials],
    )
