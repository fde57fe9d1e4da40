"""What is kept of a run has none of the keys of its command."""

import shlex

import msgspec
import pytest

from fitserve.diagnose.finding import Diagnosis, Evidence
from fitserve.report.record import Record
from fitserve.report.secrets import without_secrets
from fitserve.trial.outcome import Trial


def record_of(line: str, secret: str) -> Record:
    """A run whose log has shown the key as well."""
    argv = shlex.split(line)
    diagnosis = Diagnosis(
        stage="config",
        cause="unknown-flag",
        line=1,
        severity="error",
        confidence="certain",
        message=f"argument {secret} is not known",
        evidence=[Evidence(1, f"args: api_key=['{secret}']")],
        settings={"api_key": [secret], "port": 8000},
    )
    trial = Trial(n=1, argv=argv, env={"HF_TOKEN": secret}, outcome="failed", seconds=1, diagnosis=diagnosis)
    return Record(
        run="r",
        kind="fix",
        started_utc="2026-12-01T00:00:00+00:00",
        fitserve_version="0",
        command=argv,
        trials=[trial],
        outcome="not-reached",
        final_command=argv,
    )


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("vllm serve m --api-key sk-0123456789", "sk-0123456789"),
        ("vllm serve m --api-key=sk-0123456789", "sk-0123456789"),
        ("env HF_TOKEN=hf_abcdefgh vllm serve m", "hf_abcdefgh"),
        ("docker run -e HF_TOKEN=hf_abcdefgh vllm/vllm-openai --model m", "hf_abcdefgh"),
    ],
)
def test_a_key_is_nowhere(line: str, secret: str) -> None:
    """Commands, settings and quoted lines have a mask in its place."""
    kept = msgspec.json.encode(without_secrets(record_of(line, secret))).decode()

    assert (False, True) == (secret in kept, "***" in kept)


def test_a_key_that_is_a_word_spoils_no_others() -> None:
    """A key as short as a letter goes where it stands alone, and the words around it stay."""
    kept = without_secrets(record_of("vllm serve m --api-key a", "a"))

    assert ["vllm", "serve", "m", "--api-key", "***"] == kept.command
    assert ("failed", {"api_key": ["***"], "port": 8000}) == (
        kept.trials[0].outcome,
        kept.trials[0].diagnosis and kept.trials[0].diagnosis.settings,
    )


def test_a_run_without_keys_is_kept_as_it_is() -> None:
    """Nothing is changed where nothing is secret."""
    record = record_of("vllm serve m --tokenizer t", "t")

    assert record == without_secrets(record)
