"""What runs where: pods, containers, devices, accounts, and settings of an environment."""

import re
from collections.abc import Iterator

from fitserve.report.redact.known import is_ordinary
from fitserve.report.redact.rule import BEFORE, Edit, Memory, Replace, Rule, first_setting, hidden

_ANY_UUID = rb"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
_UUID = rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SAFE = rb"[bcdfghjklmnpqrstvwxz2456789]"
_NAME = rb"[a-z0-9](?:[a-z0-9.\-]{0,250}[a-z0-9])?"
_COMMON_SPACES = frozenset(
    b"default kube-system kube-public kube-node-lease none vllm monitoring logging prometheus torch".split()
)
_HARMLESS_VARIABLES = re.compile(
    rb"(?:VLLM|CUDA|NCCL|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|HF|HUGGINGFACE|TRANSFORMERS|RAY|OMP|MKL|OPENBLAS|NUMBA|NVIDIA|NV|LD|PYTHON|PIP|UV|LC|LANG|LANGUAGE|"
    rb"TERM|SHELL|SHLVL|TZ|XDG|GLOO|UCX|FI|TOKENIZERS|SAFETENSORS|FLASHINFER|FLASH|XFORMERS|ROCM|HIP|HSA|ROCR|MIOPEN|PATH|PWD|OLDPWD|HOME|USER|LOGNAME|"
    rb"HOSTNAME|CONDA|VIRTUAL|KUBERNETES|DEBIAN|GPG|CC|CXX|CFLAGS|MAX|NVCC|SLURM|MASTER|WORLD|RANK|LOCAL|GPU|MODEL|DTYPE|TENSOR|PORT|HOST|COLORTERM|LS|LESS|EDITOR|"
    rb"LMCACHE|NIXL|MOONCAKE|DG|DEEPEP|NVSHMEM|TVM|TQDM|OTEL|PROMETHEUS|C|TENSORFLOW|TF|KINETO|TMPDIR|TMP|TEMP|_)(?:_[A-Z0-9_]*)?"
)
_VARIABLE = rb"(?P<name>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)"
_HARMLESS_VALUE = re.compile(
    rb"(?i)[\d.:,\-+%x]*[kmgt]?i?b?|true|false|yes|no|on|off|none|null|auto|debug|info|warn(?:ing)?|error|critical|[a-z0-9]{1,5}|[\w.:,+\-]*vllm[\w.:,+/\-]*"
)


def cluster_rules() -> list[Rule]:
    """Kubernetes, Docker, drivers, cloud accounts; settings as ``env`` and ``docker inspect`` list them."""
    return [*_identity_rules(), *_pod_rules(), *_account_rules()]


def _identity_rules() -> list[Rule]:
    """Devices, serial numbers, containers by their identity."""
    return [
        Rule(
            pattern=re.compile(
                BEFORE
                + rb"(?:(?:MIG-)?GPU-|MIG-|gpu-|mig-|(?i:[a-z_]*uuid)[\"']?\s{0,40}[:=]\s{0,3}[\"']?|nvidia-smi [^\n]{0,400}?(?:-i|--id=?) ?)(?P<uuid>"
                + _ANY_UUID
                + rb")"
            ),
            replace=_device,
            probe=rb"(?:GPU|MIG)-[0-9a-f]{8}-|uuid[\"']?[ \t]{0,40}[:=]|nvidia-smi ",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(
                rb"(?i)(?:serial(?: number|_number)?|unique[ _]id|board[ _]id|chassis[ _](?:serial|uuid)|machine[-_ ]id|product[_ ]uuid)[\"']?\s{0,40}[:=]\s{0,3}[\"']?(?P<serial>(?:0x)?[0-9A-Fa-f\-]{8,40}|[A-Z0-9]{8,24})(?![A-Za-z0-9])"
            ),
            replace=hidden("serial", "serial"),
            probe=rb"(?:serial|unique[ _]id|board[ _]id|serial number|serial_number|[ _-](?:uuid|id))[\"']?[ \t]{0,40}[:=]",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(
                rb"(?:(?:docker|containerd|cri-o|dockershim)://|(?:cri-containerd|docker|crio|libpod)-|/(?:docker|kubepods|libpod|pod|containers|overlay2|k8s\.io)/|"
                rb"\b(?:docker|podman|nerdctl|crictl) (?:exec|logs|inspect|stop|kill|rm|start|restart|attach|wait|cp|stats|top) (?:-\S+ )*|"
                rb"(?i:container(?:[ _]?id)?|\"Id\"|sandbox(?:[ _]?id)?)[\"']?[ :=]{1,3}[\"']?)(?P<id>[0-9a-f]{64}|[0-9a-f]{12})(?![0-9a-f])"
            ),
            replace=hidden("container", "id", everywhere=True),
            probe=rb"(?:docker|containerd|cri-o|dockershim|crio|libpod|kubepods|pod|containers|overlay2|k8s\.io|container|container[ _]?id|sandbox|sandbox[ _]?id|\"Id)[\"':/= \-]{1,4}[0-9a-f]{12}|(?:docker|podman|nerdctl|crictl) [a-z]+ .*[0-9a-f]{12}",
            caseless=True,
        ),
    ]


def _pod_rules() -> list[Rule]:
    """Pods, namespaces, containers by name."""
    return [
        Rule(
            pattern=re.compile(
                rb"(?:kubepods[^\s\"']{0,400}?pod|/pods/|pod(?:_uid|UID)[\"']?[:= ]+[\"']?|\bpod)(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})"
            ),
            replace=hidden("pod", "uid"),
            probe=rb"(?:pod|pods/|pod_uid|podUID)[\"':= ]{0,4}[0-9a-f]{8}[-_][0-9a-f]{4}[-_]",
        ),
        Rule(
            pattern=re.compile(
                rb"(?<![A-Za-z0-9])(?:assigned )(?P<space>" + _NAME + rb")/(?P<pod>" + _NAME + rb") to |"
                rb"(?<![A-Za-z0-9])(?:pods?[ /]\"?|[Pp]od(?:[ _]?[Nn]ame)?[\"']?\s{0,3}[=:]\s{0,3}[\"']?)(?:(?P<space2>"
                + _NAME
                + rb")[/_])?(?P<pod2>"
                + _NAME
                + rb")(?![A-Za-z0-9_])|"
                rb"(?<![A-Za-z0-9.\-])(?P<hashed>[a-z0-9][a-z0-9.\-]{0,200}-"
                + _SAFE
                + rb"{6,10}-"
                + _SAFE
                + rb"{5})(?![A-Za-z0-9\-])"
            ),
            replace=_pod,
            probe=rb"assigned |pods?[ /]|[Pp]od(?:[ _]?[Nn]ame)?[\"']?[ ]{0,3}[=:]|-"
            + _SAFE
            + rb"{6,10}-"
            + _SAFE
            + rb"{5}",
        ),
        Rule(
            pattern=re.compile(
                rb"(?<![A-Za-z0-9_])(?i:(?:pod_)?namespace|ns|kube_namespace)[\"']?\s{0,3}[=:/]\s{0,3}[\"']?(?P<space>"
                + _NAME
                + rb")(?![A-Za-z0-9_(])"
            ),
            replace=_named("namespace", "space"),
            probe=rb"(?:namespace|\bns)[\"']?[ ]{0,3}[=:/]",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(
                rb"(?<![A-Za-z0-9_])(?:container_name|[Cc]ontainer(?:[ _]?[Nn]ame)?)[\"']?\s{0,3}[=: ]\s{0,3}(?P<quote>\\?[\"'])?/?(?P<name>[a-z0-9][a-z0-9_.\-]{2,80})(?![A-Za-z0-9_(])|\"Name\": \"/(?P<inspected>[a-z0-9][a-z0-9_.\-]{2,80})\""
            ),
            replace=_container,
            probe=rb"[Cc]ontainer(?:[ _]?[Nn]ame)?[\"']?[ ]{0,3}[=: ]|\"Name\": \"/",
        ),
    ]


def _account_rules() -> list[Rule]:
    """Accounts, and settings."""
    return [
        Rule(
            pattern=re.compile(
                rb"\barn:aws[a-z\-]*:[a-z0-9\-]*:[a-z0-9\-]*:(?P<account>\d{12})\b|(?i:account[_ ]?id|subscription[_ ]?id|tenant[_ ]?id|client[_ ]?id|project[_ ]?id|/subscriptions/)[\"']?[=: ]{0,3}[\"']?(?P<id>\d{12}|\d{21}|"
                + _UUID
                + rb")(?![A-Za-z0-9])|[\"']private_key_id[\"']:\s*[\"'](?P<key>[0-9a-f]{40})|[\"']project_id[\"']:\s*[\"'](?P<project>[a-z][a-z0-9\-]{4,28}[a-z0-9])[\"']"
            ),
            replace=_account,
            probe=rb"arn:aws|(?:account|subscription|tenant|client|project)[_ ]?id|private_key_id|/subscriptions/",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(
                rb"(?m)(?:^(?:[^\n|]{0,60}\| )?(?:export |declare -x |set )?|(?:\s-e|\s--env)[ =][\"']?|Environment=\"?|\")(?P<name>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)=(?P<value>(?:(?<=\"=)|[^\"'\n\\])[^\"\n\\]*)"
            ),
            replace=_setting,
            probe=rb"[A-Z0-9]_[A-Z0-9]+=",
        ),
        Rule(
            pattern=re.compile(
                rb"(?m)(?:\b(?:export|declare -x|ENV|ARG) "
                + _VARIABLE
                + rb"[= ][\"']?|^[ \t]{2,}(?:- )?[\"']?"
                + _VARIABLE.replace(b"name", b"name2")
                + rb"[\"']?: (?![^\n]* = )[\"']?|[\"']"
                + _VARIABLE.replace(b"name", b"name3")
                + rb"[\"']: ?[\"'](?=[^\"'\n]))(?P<value>[^\s\"'{}\[\]|>][^\"'\n]*)"
            ),
            replace=_setting,
            probe=rb"[A-Z0-9]_[A-Z0-9]+[\"']?[=: ]",
        ),
        Rule(
            pattern=re.compile(
                rb"(?i:name)\\{0,3}[\"']?\s*:\s*\\{0,3}[\"']?"
                + _VARIABLE
                + rb"\\{0,3}[\"']?,?[ \t]*(?:\r?\n[^\n]{0,60}?)?\\{0,3}[\"']?(?i:value)\\{0,3}[\"']?[ \t]*:[ \t]*\\{0,3}[\"']?(?P<value>[^\s\"'{}\[\]|>][^\"'\n{}]*)"
            ),
            replace=_setting,
            probe=rb"name\\{0,3}[\"']?[ \t]*:[ \t]*\\{0,3}[\"']?[A-Z][A-Z0-9]*_[A-Z0-9]",
            lines=2,
        ),
    ]


def _device(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    if not memory.names.is_label(match["uuid"]):
        yield *match.span("uuid"), memory.names.label("device", match["uuid"].lower())


def _named(kind: str, group: str) -> Replace:
    def replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
        name = match[group]
        if (
            name
            and name not in _COMMON_SPACES
            and not name.isdigit()
            and not memory.names.is_label(name)
            and not is_ordinary(name)
        ):
            memory.known.learn(kind, name)
            yield *match.span(group), memory.names.label(kind, name)

    return replace


def _pod(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    for group in ("space", "space2"):
        if match[group]:
            yield from _named("namespace", group)(match, memory)
    for group in ("pod", "pod2", "hashed"):
        name = match[group]
        if name and re.search(rb"[\d\-]", name) and not name.isdigit() and not memory.names.is_label(name):
            memory.known.learn("pod", name)
            yield *match.span(group), memory.names.label("pod", name)


def _container(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    group = "name" if match["name"] else "inspected"
    name = match[group]
    if group == "name" and not match["quote"] and not re.search(rb"[\d\-_]", name):
        return
    if re.fullmatch(rb"vllm[\w.\-]*|[0-9a-f]{12,64}", name):
        return
    yield from _named("container", group)(match, memory)


def _account(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    kinds = {"account": "account", "id": "account", "key": "secret", "project": "project"}
    for group, kind in kinds.items():
        if match[group] and not memory.names.is_label(match[group]):
            yield *match.span(group), memory.names.label(kind, match[group])


def _setting(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    value = match["value"].rstrip(b" \t\r,;")
    groups = match.groupdict()
    name = groups["name"] or groups.get("name2") or groups.get("name3") or b""
    if (
        _HARMLESS_VARIABLES.fullmatch(name)
        or _HARMLESS_VALUE.fullmatch(value)
        or memory.names.holds_label(value)
    ):
        return
    value = first_setting(value)
    yield match.start("value"), match.start("value") + len(value), memory.names.label("env-value", value)
