"""Which machines: addresses, and names of hosts, where something says that it is one."""

import ipaddress
import re
from collections.abc import Iterator

from fitserve.report.redact.known import is_ordinary
from fitserve.report.redact.paths import private_path
from fitserve.report.redact.rule import BEFORE, Edit, Memory, Replace, Rule, hidden

_PUBLIC = frozenset(
    b"""huggingface.co hf.co hf.space github.com githubusercontent.com github.io gitlab.com vllm.ai pytorch.org nvidia.com nvcr.io amd.com intel.com
    python.org pypi.org pythonhosted.org readthedocs.io readthedocs.org docker.io docker.com ghcr.io quay.io gcr.io k8s.io kubernetes.io ray.io
    anyscale.com openai.com anthropic.com mistral.ai modelscope.cn modelscope.ai kaggle.com wandb.ai arxiv.org google.com googleapis.com
    microsoft.com apache.org gnu.org kernel.org debian.org ubuntu.com redhat.com anaconda.org anaconda.com conda.io tensorflow.org numpy.org
    scipy.org pydantic.dev fastapi.tiangolo.com tiangolo.com starlette.io uvicorn.org json-schema.org w3.org wikipedia.org stackoverflow.com
    example.com example.org example.net opentelemetry.io prometheus.io grafana.com slurm.schedmd.com deepseek.com qwen.ai meta.com llama.com
    developer.mozilla.org mozilla.org cloudflare.com aka.ms medium.com run.ai xformers.ai outlines.dev astral.sh docs.rs rust-lang.org
    openapis.org ietf.org rfc-editor.org spdx.org opensource.org creativecommons.org perfetto.dev triton-lang.org""".split()
)
_LOCAL = frozenset(
    b"localhost localhost.localdomain ip6-localhost host.docker.internal host.containers.internal vllm hostname host server none broadcasthost".split()
)
_HOST = rb"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.\-]{0,251}[A-Za-z0-9])?)"
_NO_HOST = re.compile(
    rb"(?i)[\d.\-]+|.*\.(?:py|so|cu|cuh|cpp|h|json|yaml|yml|toml|txt|log|safetensors|bin|md|html|whl|sh|pt|gguf|model|service|sock)|v?\d+(?:\.\d+)+\S*|0x[0-9a-f]+"
)
_IP6 = re.compile(
    rb"(?:(?<![A-Za-z0-9_:.])|(?<=[A-Za-z]\d:)|(?<=[A-Za-z]\d\d:))(?P<ip>(?:[0-9A-Fa-f]{1,4}:){2,7}(?::?[0-9A-Fa-f]{1,4}){1,7}(?::\d{1,5})?|(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6}|(?:[0-9A-Fa-f]{1,4}:){1,7}:)(?![A-Za-z0-9_]|:[A-Za-z0-9_:])"
)


def network_rules() -> list[Rule]:
    """Addresses but those of IPv4, and names of hosts."""
    return [*_address_rules(), *_named_host_rules(), *_said_host_rules(), *_domain_rules()]


def _address_rules() -> list[Rule]:
    """IPv6, MAC and URLs."""
    return [
        Rule(
            pattern=re.compile(
                BEFORE + rb"(?<!:)(?P<mac>[0-9A-Fa-f]{2}(?:[:\-][0-9A-Fa-f]{2}){5})(?![:\-]?[0-9A-Fa-f])"
            ),
            replace=_mac,
            probe=rb"(?:[0-9A-Fa-f]{2}[:\-]){5}[0-9A-Fa-f]{2}",
        ),
        Rule(pattern=_IP6, replace=_ip6, probe=rb"[0-9A-Fa-f]::|(?:[0-9A-Fa-f]{1,4}:){4}"),
        Rule(
            pattern=re.compile(
                rb"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.\-]{1,20})://(?:[^\s/\"'<>]*@)?"
                + _HOST
                + rb"(?=$|[^A-Za-z0-9.\-]|[.\-]+(?:$|[^A-Za-z0-9]))"
            ),
            replace=_url,
            probe=rb"://[A-Za-z0-9]|://[^ \t\n/]+@[A-Za-z0-9]",
        ),
    ]


def _named_host_rules() -> list[Rule]:
    """Hosts behind a name or an option."""
    return [
        Rule(
            pattern=re.compile(
                rb"(?<![A-Za-z0-9_.\-])(?P<name>(?i:hostname|nodename|host_name|node_name|spec\.nodename))(?:\\{0,3}[\"'])?\s{0,3}[=:]\s{0,3}(?:\\{0,3}[\"'])?"
                + _HOST
                + rb"(?![A-Za-z0-9_(])"
            ),
            replace=host("host", any_word=True),
            probe=rb"(?:hostname|nodename|host_name|node_name)[\\\"']{0,4}[ \t]{0,3}[=:]",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(
                rb"(?:(?<![A-Za-z0-9_.\-])|(?<=--))(?:(?i:host|server|node|peer|addr|address|(?:master|local|remote|head|node|bind|data_parallel|dp_master)[_\-](?:addr|address|host|node|ip)|"
                rb"rdzv[_\-]endpoint|rendezvous|endpoint|registry|domain|server_name|dns_name|gateway|nodelist|gcs_address|(?:compute|machine)?[_\-]?hostname|machine)|[A-Z][A-Z0-9_]*_(?:HOST|HOSTNAME|NODE|NODENAME|NODELIST|ADDR|ADDRESS|ENDPOINT)|SLURMD_NODENAME)"
                rb"(?:(?:\\{0,3}[\"'])?[ \t]{0,3}[=:][ \t]{0,3}| (?=[\"']?[A-Za-z]+[0-9.\-]))(?:\\{0,3}[\"'])?"
                + _HOST
                + rb"(?![A-Za-z0-9_(/])"
            ),
            replace=host("host"),
            probe=rb"(?:host|server|node|peer|addr|address|ip|endpoint|rendezvous|registry|domain|server_name|dns_name|gateway|nodelist|hostname|nodename|machine)(?:[\\\"']{0,4}[ \t]{0,3}[=:]| [\"']?[a-z]+[0-9.\-])",
            caseless=True,
        ),
    ]


def _said_host_rules() -> list[Rule]:
    """Hosts where a journal, NCCL, a scheduler or the kernel says its own, and where a program reaches one."""
    return [
        Rule(
            pattern=re.compile(
                rb"(?i:\b(?:connect(?:ed|ing|ion)? to|talk to|resolve|lookup|reach|contact)(?: host| server| node)?:? |"
                rb"\bTCPStore\(|\bclient=\(|\bgaierror: \[Errno -?\d+\] |\b(?:event|killed|ran) on )[\[(\"']{0,2}"
                + _HOST
                + rb"(?![A-Za-z0-9_(/])"
            ),
            replace=host("host"),
            probe=rb"(?:connect(?:ed|ing|ion)?|resolve|lookup|reach|contact|talk)[: ]|TCPStore\(|client=\(|gaierror|(?:event|killed|ran) on ",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(
                rb"(?:^|[\s;&|(])(?:ssh|mosh|sftp|ping6?|telnet|traceroute|pdsh -w|clush -w|pdsh:|mpirun [^\n]{0,400}?(?:--host|-H)|scontrol show node) (?:-[A-Za-z0-9]+ (?:\d+ |[^\s-]*[/=][^\s]* )?)*(?:[A-Za-z_][\w.\-]*@)?"
                + _HOST
                + rb"(?=[\s:\"',]|$)"
            ),
            replace=host("host"),
            probe=rb"(?:ssh|mosh|sftp|ping6?|telnet|traceroute|-w|pdsh:|--host|-H|show node) ",
        ),
        Rule(
            pattern=re.compile(
                rb"^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.+\-Z]+) (?P<syslog>[A-Za-z0-9][A-Za-z0-9.\-]*) (?:[A-Za-z][\w./@\-]*\[\d+\]|kernel):"
            ),
            replace=host("syslog", any_word=True),
            probe=rb"^(?:<[0-9]{1,3}>)?[A-Z0-9][a-z0-9]{2}.{12,40} (?:[A-Za-z][A-Za-z0-9_./@\-]*\[[0-9]+\]|kernel):",
        ),
        Rule(
            pattern=re.compile(
                rb"(?m)(?:^|\s|\| )" + _HOST + rb"(?=:\d+:\d+ \[\d+\] NCCL)|"
                rb"^Linux (?P<uname>[A-Za-z0-9][A-Za-z0-9.\-]*) \d+\.\d+\.\d+|"
                rb"\bsrun: error: (?P<srun>[A-Za-z0-9][A-Za-z0-9.\-]*): |\bJOB \d+ ON (?P<job>[A-Za-z0-9][A-Za-z0-9.\-]*)|"
                rb"\bto (?P<node>[A-Za-z0-9][A-Za-z0-9.\-]*)$"
            ),
            replace=_said,
            probe=rb" NCCL |^Linux |srun: error|JOB [0-9]+ ON |assigned ",
        ),
    ]


def _domain_rules() -> list[Rule]:
    """Names that are a host by their ending, and projects of public services."""
    return [
        Rule(
            pattern=re.compile(
                BEFORE
                + rb"(?<![/@.\-])(?P<host>ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[A-Za-z0-9.\-]*[A-Za-z0-9])?|"
                rb"(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,62})\.)+(?:com|net|org|edu|gov|mil|cloud|corp|lan|intranet|localdomain|svc|internal|local|consul|arpa|intra|intern|private|priv|home|office|lab))(?![A-Za-z0-9_\-(\[])(?!\.[A-Za-z0-9_])"
            ),
            replace=_domain,
            probe=rb"ip-[0-9]{1,3}-[0-9]{1,3}-|[A-Za-z0-9]\.(?:com|net|org|edu|gov|mil|cloud|corp|lan|intranet|localdomain|svc|internal|local|consul|arpa|intra|intern|private|priv|home|office|lab)",
        ),
        Rule(
            pattern=re.compile(
                BEFORE
                + rb"(?<![/@.\-])(?P<host>(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,62})\.){1,6}(?:ai|de|fr|uk|cn|jp|eu|ch|nl|kr|br|pl|cz|tech)|"
                rb"(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,62})\.){2,6}(?:io|dev|app))(?![A-Za-z0-9_\-(\[])(?!\.[A-Za-z0-9_])"
            ),
            replace=_national,
            probe=rb"[A-Za-z0-9]\.(?:ai|de|fr|uk|cn|jp|eu|ch|nl|kr|br|pl|cz|tech|io|dev|app)\b",
        ),
        Rule(
            pattern=re.compile(
                rb"(?i)nodelist[\"']?\s{0,3}[=:(]\s{0,3}[\"']?(?P<host>[A-Za-z][\w.\-]*\[[\d,\-]+\])"
            ),
            replace=hidden("host", "host"),
            probe=rb"nodelist[\"']?[ ]{0,3}[=:(]",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(
                rb"(?:wandb\.ai|comet\.com)/(?P<owner>[A-Za-z0-9][\w.\-]*)(?:/(?P<project>[A-Za-z0-9][\w.\-]*))?"
            ),
            replace=_projects,
            probe=rb"(?:wandb\.ai|comet\.com)/",
        ),
    ]


def host(group: str, *, any_word: bool = False) -> Replace:
    """Replace the name of a host, and hide it from now on.

    Args:
        group: the group with the name.
        any_word: a plain word is a name here; elsewhere a name has a digit, a point or a hyphen.
    """

    def replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
        name = match[group]
        if name and is_private(name, memory) and (any_word or re.search(rb"[0-9.\-]", name)):
            yield *match.span(group), _label(name, memory)

    return replace


def is_private(name: bytes, memory: Memory) -> bool:
    """True for a host's name that is neither everyone's nor something else."""
    lowered = name.lower().rstrip(b".")
    if lowered in _LOCAL or memory.names.is_label(name) or _NO_HOST.fullmatch(name) or is_public(lowered):
        return False
    return b"." in name or b"-" in name or not is_ordinary(name)


def is_public(lowered: bytes) -> bool:
    """True for hosts that everyone's log names, and their subdomains."""
    labels = lowered.split(b".")
    return any(b".".join(labels[at:]) in _PUBLIC for at in range(len(labels) - 1))


def _label(name: bytes, memory: Memory) -> bytes:
    lowered = name.lower()
    memory.known.learn("host", name)
    first = lowered.partition(b".")[0]
    if re.search(rb"\d", first) and len(first) >= 5 and first != lowered:
        memory.known.learn("host", first)
    return memory.names.label("host", lowered)


def _ip6(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    text = match["ip"]
    address = _ip6_address(text)
    if address is None and text.count(b":") == 8:  # all eight groups, and a port
        text = text.rpartition(b":")[0]
        address = _ip6_address(text)
    if address is None:
        return
    is_short = len(text) < 6 and not text.lower().startswith((b"fe8", b"fd", b"fc", b"20"))
    if (
        address.is_loopback
        or address.is_unspecified
        or is_short
        or text.lower() in (b"2001:4860:4860::8888", b"2001:4860:4860::8844")
    ):
        return
    start = match.start("ip")
    yield start, start + len(text), memory.names.label("ip6", str(address).encode())


def _ip6_address(text: bytes) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(text.decode())
    except ValueError:
        return None


def _mac(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    text = match["mac"].lower().replace(b"-", b":")
    if text not in (b"00:00:00:00:00:00", b"ff:ff:ff:ff:ff:ff"):
        yield *match.span("mac"), memory.names.label("mac", text)


_BUCKETS = frozenset(
    (
        b"s3",
        b"s3a",
        b"gs",
        b"gcs",
        b"az",
        b"abfs",
        b"abfss",
        b"wasb",
        b"wasbs",
        b"oss",
        b"cos",
        b"r2",
        b"obs",
        b"hdfs",
    )
)
_KEY = re.compile(rb"/[^\s\"'?#<>,;)\]}\\]+")
"""The name of an object in a bucket: folders, as in a path."""
_NOT_HOSTS = frozenset(
    (
        b"file",
        b"docker",
        b"containerd",
        b"cri-o",
        b"dockershim",
        b"unix",
        b"ipc",
        b"inproc",
        b"tls",
        b"pod",
        b"memory",
        b"redacted",
    )
)


def _url(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    name, scheme = match["host"], match["scheme"].lower()
    if scheme in _NOT_HOSTS:
        return
    if scheme in _BUCKETS:
        yield from _object(match, memory)
        return
    if is_private(name, memory):
        yield *match.span("host"), _label(name, memory)


def _object(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    bucket = match["host"]
    if memory.names.is_label(bucket):
        return
    memory.known.learn("bucket", bucket)
    yield *match.span("host"), memory.names.label("bucket", bucket)
    if key := _KEY.match(match.string, match.end("host")):
        yield *key.span(), private_path(b"/" + bucket + key[0], memory)[len(bucket) + 1 :]


def _said(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    for group in ("host", "uname", "srun", "job", "node"):
        if match[group]:
            if group == "node" and b"assigned" not in match.string[: match.start()]:
                continue
            yield from host(group, any_word=True)(match, memory)


_PACKAGES = frozenset(
    b"torch vllm tensorflow transformers numpy pandas scipy google ray fastapi starlette skimage jax triton flashinfer python os sys self".split()
)


def _national(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    """Endings that modules and attributes have as well: no known package, no line that imports."""
    name = match["host"]
    before = match.string[max(0, match.start() - 12) : match.start()]
    if name.lower().partition(b".")[0] in _PACKAGES or re.search(
        rb"(?:import|from|module|class) '?$", before
    ):
        return
    if is_private(name, memory):
        yield *match.span("host"), _label(name, memory)


def _projects(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    for group in ("owner", "project"):
        name = match[group]
        if (
            name
            and name not in (b"authorize", b"site", b"settings", b"docs")
            and not memory.names.is_label(name)
        ):
            memory.known.learn("project", name)
            yield *match.span(group), memory.names.label("project", name)


def _domain(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    name = match["host"]
    labels = name.lower().split(b".")
    needs_more = labels[-1] in (
        b"internal", b"local", b"svc", b"consul", b"arpa", b"intra", b"intern", b"private", b"priv", b"home", b"office", b"lab",
    )  # fmt: skip
    if (
        needs_more
        and not re.search(rb"[0-9\-]", name)
        and labels[-2:] not in ([b"cluster", b"local"], [b"compute", b"internal"])
    ):
        return
    if needs_more and labels[0] in (b"torch", b"google", b"jax", b"numpy", b"vllm", b"python", b"threading"):
        return
    if is_private(name, memory):
        yield *match.span("host"), _label(name, memory)
