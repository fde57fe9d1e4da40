"""A record as it may be kept: no key that its command holds."""

from typing import Any

import msgspec

from fitserve.diagnose.finding import Diagnosis, Evidence
from fitserve.facts.command_edit import secrets_in
from fitserve.report.record import Record
from fitserve.trial.outcome import Pending, Trial

MASK = "***"
_WORD_CHARACTERS = 6
"""A shorter key may be a part of ordinary words: it is hidden where it stands alone."""


def without_secrets(record: Record) -> Record:
    """The record with the API keys and tokens of its command hidden: in commands, logged settings, quoted lines."""
    secrets = secrets_in(record.command)
    if not secrets:
        return record
    return msgspec.structs.replace(
        record,
        command=_hidden(record.command, secrets),
        final_command=_hidden(record.final_command, secrets),
        trials=[_trial(trial, secrets) for trial in record.trials],
        pending=_pending(record.pending, secrets),
    )


def _pending(pending: Pending | None, secrets: list[str]) -> Pending | None:
    if pending is None:
        return None
    return msgspec.structs.replace(
        pending, argv=_hidden(pending.argv, secrets), env=_hidden(pending.env, secrets)
    )


def _trial(trial: Trial, secrets: list[str]) -> Trial:
    diagnosis = trial.diagnosis
    return msgspec.structs.replace(
        trial,
        argv=_hidden(trial.argv, secrets),
        env=_hidden(trial.env, secrets),
        diagnosis=None if diagnosis is None else _diagnosis(diagnosis, secrets),
    )


def _diagnosis(diagnosis: Diagnosis, secrets: list[str]) -> Diagnosis:
    return msgspec.structs.replace(
        diagnosis,
        message=_hidden(diagnosis.message, secrets),
        settings=_hidden(diagnosis.settings, secrets),
        evidence=[Evidence(each.line, _hidden(each.text, secrets)) for each in diagnosis.evidence],
    )


def _hidden(value: Any, secrets: list[str]) -> Any:
    """The value without the secrets, whatever it is made of."""
    if isinstance(value, str):
        for secret in secrets:
            if value == secret:
                return MASK
            head, equals, text = value.partition("=")
            if text == secret:
                return f"{head}{equals}{MASK}"
            if len(secret) >= _WORD_CHARACTERS:
                value = value.replace(secret, MASK)
        return value
    if isinstance(value, list):
        return [_hidden(item, secrets) for item in value]
    if isinstance(value, dict):
        return {name: _hidden(item, secrets) for name, item in value.items()}
    return value
