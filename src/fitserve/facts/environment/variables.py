"""The variables that vLLM and its libraries read: their names, and values where these say nothing of anyone."""

import re
from collections.abc import Mapping

import msgspec

_RELEVANT = re.compile(
    r"(?:VLLM|CUDA|NVIDIA|NCCL|HF|HUGGING_FACE|HUGGINGFACE|TRANSFORMERS|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|FLASHINFER|FLASH_ATTN|XFORMERS|RAY|OMP|MKL|"
    r"GLOO|UCX|HIP|ROCR|HSA|ROCM|TOKENIZERS|SAFETENSORS|LMCACHE|NIXL|DG|KMP|GOMP|MASTER|WORLD|LOCAL_RANK|RANK|MODELSCOPE)(?:_.*)?|LD_LIBRARY_PATH|LD_PRELOAD|"
    r"(?:HTTPS?|NO|ALL)_PROXY|https?_proxy|no_proxy|TMPDIR|XDG_CACHE_HOME|SSL_CERT_FILE|REQUESTS_CA_BUNDLE"
)
_SECRET = re.compile(
    r"(?i)key|token|secret|passw|auth|credential|proxy|cert|endpoint|url|uri|host|addr|_ip$|user"
)
_HARMLESS = re.compile(r"[A-Za-z0-9_:,+\-=]{0,80}|\d+(?:\.\d+)?|[A-Za-z_]+(?:\.[A-Za-z_]+)*")


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that is set; ``value`` is None where it may say something of someone."""

    name: str
    value: str | None


def relevant(environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """Those of the environment that matter for a start, by name."""
    return tuple(
        Variable(name=name, value=environ[name] if _is_harmless(name, environ[name]) else None)
        for name in sorted(environ)
        if _RELEVANT.fullmatch(name)
    )


def _is_harmless(name: str, value: str) -> bool:
    """True for switches, numbers and words; not for paths, addresses, keys or long tokens."""
    if _SECRET.search(name) or not _HARMLESS.fullmatch(value):
        return False
    return max(map(len, re.split(r"[,:=]", value))) <= 40 and not re.search(
        r"(?=\w*\d)(?=\w*[A-Za-z])\w{24,}", value
    )
