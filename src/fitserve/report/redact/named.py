"""Secrets that are known by what stands before them: a name, an option, a header, a URL."""

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from fitserve.report.redact.known import is_ordinary
from fitserve.report.redact.rule import LINE, Edit, Memory, Replace, Rule, first_setting, hidden

_STRONG = (
    rb"pass(?:word|wd|phrase)s?|pwd|[a-z]_pass|[a-z]_pw|secrets?|api[_\-.]?keys?|(?:access|private|auth|signing|encryption|"
    rb"master|account|storage|subscription|service|license|shared|shared[_\-]?access|consumer|admin|write|app|application|client|"
    rb"deploy|root|team|project|ssh|tls|ssl|rsa|hmac|secret|secret[_\-]?access)[_\-]?key|"
    rb"(?:auth|access|refresh|session|hf|hub|hugging_?face|bearer|api|bot|csrf|xsrf|personal_access|security|registration|"
    rb"private|id|oauth|service_account|deploy|git(?:hub|lab)?|registry|slack|npm|pypi|job)[_\-]?token|credentials?|"
    rb"connection[_\-]?string|webhook(?:[_\-]?url)?"
)
_WEAK = rb"token|[A-Z0-9]_KEY|auth|signature|sig|dsn|jwt|sas|key"
NAME = (
    rb"(?<![A-Za-z0-9])(?P<name>[A-Za-z0-9_.\-]{0,60}?(?:(?i:"
    + _STRONG
    + rb")|(?P<weak>(?i:"
    + _WEAK
    + rb")))(?:[_\-](?:data|b64|base64|value|pem))?)"
)
NAME_PROBE = rb"(?:pass(?:word|wd|phrase)?s?|pwd|pw|secrets?|keys?|token|credentials?|string|webhook|url|auth|signature|sig|dsn|jwt|sas)(?:[_\-](?:data|b64|base64|value|pem))?"
QUOTE = rb"\\{0,3}[\"']"
_CLOSED = rb"(?P<quote>\\{0,3}[\"'])(?P<value>(?:(?!(?P=quote))[^\n])*+)"
OPEN = rb"(?P<open>(?![\[({])(?:(?!,\s?[A-Za-z_]+=|[&;][A-Za-z_\-]+=|\\[nrt\"'])[^\s\"'<>])+)"
VALUE = rb"(?:!!?[a-z]+[ \t]+)?(?:" + _CLOSED + rb"|" + OPEN + rb")"
_SEPARATOR = rb"(?:=>|->|:=|=|:|(?<=[\"']),(?=\s*b[\"']|\s*[\"'][^\"'\n]*[\"']\)))"
"""A comma counts between a header's name and its value: (b'x-api-key', b'...')."""

NEXT_ITEM = (
    rb"(?:[ \t]+(?:[\\^`]\r?\n"
    + LINE
    + rb"[ \t]*|(?![\\^`]\r?\n))|"
    + QUOTE
    + rb",\s{0,12}|[\"']?[ \t]*\r?\n[^\n]{0,60}?-[ \t]+)"
)
"""Between an option and its value: on a command line, in the next line of one, in a list in JSON, in a list in YAML."""

_VALUE_FIELD = (
    rb"\\{0,3}[\"']?,?[ \t]*(?:\r?\n[^\n]{0,60}?)?\\{0,3}[\"']?(?i:value)\\{0,3}[\"']?[ \t]*:[ \t]*"
)
"""Between a variable's name and its value where Kubernetes lists variables, in one line or two."""


_PLACEHOLDER = re.compile(
    rb"(?i)none|null|nil|true|false|auto|empty|unset|undefined|default|\*+|x{3,}|\.{2,}|-+|\$[({A-Za-z_].*|%[({A-Za-z].*|"
    rb"\{\{.*|<[^>]*>|\[[A-Z_]*\]|\(.*|str|string|bytes|int|bool|required|missing|invalid|wrong|expired|expected|must|should|cannot|has|not|is|was|the|for|to|or|and|in|on|an?|if|when|by|from|set|(?-i:[A-Z_]*(?:KEY|TOKEN|SECRET|PASSWORD)[A-Z_]*)|"
    rb"(?:optional|list|dict|tuple|set|union|sequence|mapping|iterable)\[.*|(?:self|cls|os|kwargs|args|config|settings|params|request|response)[.\[(].*|redacted|your[_\- ].*|\|.*|/(?:run|var|etc|root|home|opt|app|mnt|data)/.*"
)
_CODE = re.compile(rb"[a-z_]+(?:\.[a-z_]+)*|[A-Za-z_][\w.]*[(\[].*")
"""What a line of a program may have behind a name: hidden there, and not wherever else it stands."""
TRAILING = b",;:)]}."
_SPECIAL = re.compile(
    rb"(?i)(?:bos|eos|pad|unk|sep|cls|mask|image|audio|video|stop|start|end|next|first|last|per|out|in|new|num|max|"
    rb"think|special|placeholder|boi|eoi|mm|draft|prompt|cache|sort|primary|foreign|config|layer|state|dict)"
    rb"[_\-.]?(?:token|key|sig|auth)"
)


def named_rules() -> list[Rule]:
    """Names with values, headers, cookies, query strings, passwords in URLs, options of well-known programs."""
    return [*_header_rules(), *_url_rules(), *_value_rules(), *_option_rules()]


def _value_rules() -> list[Rule]:
    """A name and its value behind a sign."""
    return [
        Rule(
            pattern=re.compile(
                NAME + rb"(?:" + QUOTE + rb")?\s{0,3}(?:=>|:=|=|:)\s{0,3}\[(?P<list>[^\]\n]+)\]"
            ),
            replace=_listed,
            probe=NAME_PROBE + rb"[\"'\\ ]{0,4}[=:]",
            caseless=True,
        ),
        Rule(
            # a whole setting in quotes: "DB_PASSWORD=two words"
            pattern=re.compile(
                rb"(?P<quote>[\"'])" + NAME + rb"=(?P<value>(?:(?!(?P=quote))[^\n])+)(?P=quote)"
            ),
            replace=_set,
            probe=NAME_PROBE + rb"=",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(
                NAME
                + rb"(?:"
                + QUOTE
                + rb"\]?)?[ \t]{0,3}"
                + _SEPARATOR
                + rb"[ \t]{0,3}(?:[bru](?=[\"'\\]))?"
                + VALUE
            ),
            replace=valued,
            probe=NAME_PROBE + rb"[\"'\\]{0,4}\]?[ \t]{0,3}(?:[=:,]|->)",
            caseless=True,
        ),
    ]


def _option_rules() -> list[Rule]:
    """Options and their values, fields ``name`` and ``value``, options of well-known programs."""
    return [
        Rule(
            pattern=re.compile(rb"--" + NAME + NEXT_ITEM + rb"(?!\\{0,3}[\"']?-)" + VALUE),
            replace=valued,
            probe=rb"--[a-z_\-]*" + NAME_PROBE,
            caseless=True,
            lines=2,
        ),
        Rule(
            pattern=re.compile(
                rb"(?i:name|key)\\{0,3}[\"']?\s*:\s*\\{0,3}[\"']?" + NAME + _VALUE_FIELD + VALUE
            ),
            replace=valued,
            probe=rb"(?:name|key)\\{0,3}[\"']?[ \t]*:[ \t]*\\{0,3}[\"']?[a-z0-9_.\-]*" + NAME_PROBE,
            caseless=True,
            lines=2,
        ),
        Rule(
            pattern=re.compile(
                rb"(?:\bwandb\s+login\s+(?:--\S+\s+)*|\b(?:curl|wget|http)\b[^\n]{0,400}?\s(?:-u|--user)[ =][\"']?[^\s:\"']+:|\blogin\s+[\w.@\-]+\s+password\s+|\blogin\((?=[\"'])|\becho\s+(?=[^|\n]{1,400}\|[^\n]{0,400}--(?:password-stdin|with-token|token-stdin))|\bmc (?:alias set|config host add) \S+ \S+ \S+ |"
                rb"\bsshpass\s+-p\s*|\b(?:mysql|mysqldump|mariadb)\b[^\n]{0,400}?\s-p(?=\S)|\bredis-cli\b[^\n]{0,400}?\s-a\s+|"
                rb"\b(?:docker|podman|nerdctl|helm|az|oras)\b[^\n]{0,400}?\blogin\b[^\n]{0,400}?\s-p[ =])[\"']?(?P<value>[^\s\"']+)"
            ),
            replace=hidden("password", "value", everywhere=True),
            probe=rb"(?:curl|wget|http|wandb|login|sshpass|mysql|mysqldump|mariadb|redis-cli|echo|mc)[ \t]|login\([\"']",
        ),
    ]


def _header_rules() -> list[Rule]:
    return [
        Rule(
            pattern=re.compile(
                rb"(?i)(?<![a-z0-9])(?:proxy-)?authorization[\"'\\]{0,4}\s{0,3}[:=,]\s{0,3}(?:[bru](?=[\"'\\]))?[\"'\\]{0,4}"
                rb"(?:(?:bearer|basic|token|negotiate|apikey|bot|key)\s+(?P<value>[^\s\"'\\]{4,})|(?P<rest>[^\"'\\\r\n]{4,}))"
            ),
            replace=_authorization,
            probe=rb"authorization[\"'\\]{0,4}[ \t]{0,3}[:=,]",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(rb"(?i)\bbearer(?:\s+|%20)(?P<value>[a-z0-9._~+/=\-]{8,})"),
            replace=_scheme("bearer-token"),
            probe=rb"bearer(?:[ \t]|%20)",
            caseless=True,
        ),
        Rule(
            pattern=re.compile(rb"\b[Bb]asic\s+(?P<value>[A-Za-z0-9+/]{6,}={0,2})"),
            replace=_basic,
            probe=rb"[Bb]asic[ \t]",
        ),
        Rule(
            pattern=re.compile(
                rb"(?i)(?:set-)?cookie2?[\"'\\]{0,4}\s{0,3}[:=,]\s{0,3}(?:[bru](?=[\"'\\]))?[\"'\\]{0,4}(?P<value>[^\"'\\\r\n]+)"
            ),
            replace=_cookies,
            probe=rb"cookie2?[\"'\\]{0,4}[ \t]{0,3}[:=,]",
            caseless=True,
        ),
    ]


def _url_rules() -> list[Rule]:
    return [
        Rule(
            pattern=re.compile(
                rb"[a-zA-Z][a-zA-Z0-9+.\-]{1,20}://(?P<user>[^\s:/@\"'?#<>]*)(?::(?P<value>[^\s\"'<>/]+))?@(?=[A-Za-z0-9\[])"
            ),
            replace=_userinfo,
            probe=rb"://[^ \t\n/]+@",
        ),
        Rule(
            pattern=re.compile(
                rb"(?i)(?:[?&;]|%(?:26|3f))(?:amp;)?(?P<name>[a-z0-9_.\-\[\]]{0,40}?(?:token|key|sig|signature|secret|password|passwd|pwd|auth|code|credential|"
                rb"session|session[_\-]?id|sid|jwt|ticket|assertion|hmac|policy|awsaccesskeyid))(?:=|%3d)(?P<value>(?:(?!%26)[^&;\s\"'#<>\\])+)"
            ),
            replace=_query,
            probe=rb"(?:[?&;]|%26|%3f)[a-z0-9_.\-\[\]]{0,50}(?:=|%3d)",
            caseless=True,
        ),
    ]


def valued(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    """Hide the value of a match with ``name`` and ``weak``, in quotes (``value``) or without (``open``)."""
    groups = match.groupdict()
    group = "value" if groups.get("value") else "open"
    value = groups.get(group)
    if not value:
        return
    if group == "open":
        value = value.rstrip(TRAILING) or value
    yield from secret(match["name"], bool(match["weak"]), value, match.start(group), memory)


def _set(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    value = first_setting(match["value"])
    yield from secret(match["name"], bool(match["weak"]), value, match.start("value"), memory)


def _listed(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    for item in re.finditer(rb"[^\s\"',\\]+", match["list"]):
        yield from secret(
            match["name"], bool(match["weak"]), item[0], match.start("list") + item.start(), memory
        )


def secret(name: bytes, is_weak: bool, value: bytes, start: int, memory: Memory) -> Iterator[Edit]:
    """Hide a value behind a name, unless it is a placeholder; behind a weak name only one that looks drawn.

    Args:
        name: says whether it is a password.
        is_weak: the name is also that of harmless things.
        value: what stands there.
        start: where.
        memory: the pseudonyms.
    """
    if memory.names.is_label(value) or _PLACEHOLDER.fullmatch(value) or memory.names.holds_label(value):
        return
    if is_weak and (_SPECIAL.search(name) or not (is_random(value) or _is_credentials(value))):
        return
    if name in (b"PWD", b"OLDPWD") and value.startswith(b"/"):
        return  # a shell's folder
    kind = "password" if re.search(rb"(?i)pass|pwd", name) else "secret"
    if len(value) >= 8 and not is_ordinary(value) and not _CODE.fullmatch(value):
        memory.known.learn(kind, value)
    yield start, start + len(value), memory.names.label(kind, value)


_WRITTEN = re.compile(
    rb"[0-9.:\-]+|[a-z_./\-]+|v?\d+(?:\.\d+)+\S*|(?:[a-z]{1,20}\d{0,3}|\d{1,4})(?:[._/:\-](?:[a-z]{1,20}\d{0,3}|\d{1,4}))+"
)
"""Numbers, paths, versions, and names of layers such as ``layers.0.self_attn``."""
_MIXED = re.compile(
    rb"(?=\S*[A-Za-z])(?=\S*\d|\S*[a-z][A-Z]\S*[a-z][A-Z])(?=\S*[!#$^&*@%])[A-Za-z0-9!#$^&*@%+~._/\-]{8,}"
)
"""Letters, digits or changes of case, and signs, as in a password."""


def is_random(value: bytes) -> bool:
    """True for what looks drawn rather than written: long, of letters and digits, with little that repeats."""
    if _MIXED.fullmatch(value):
        return True
    if len(value) < 12 or not re.fullmatch(rb"[A-Za-z0-9+/=_.~:\-]+", value):
        return False
    if _WRITTEN.fullmatch(value):
        return False
    if not re.search(rb"[0-9]", value) and not (re.search(rb"[a-z][A-Z]", value) and len(value) >= 20):
        return False
    return entropy(value) >= (3.0 if len(value) < 24 else 2.6)


def entropy(value: bytes) -> float:
    """Shannon's entropy of the characters, in bits."""
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())


def _is_credentials(value: bytes) -> bool:
    """True for a user and a password in base 64."""
    return b":" in decoded(value)


def decoded(value: bytes) -> bytes:
    """The printable text that a value stands for in base 64; nothing where it stands for none."""
    try:
        plain = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return plain if all(32 <= letter < 127 or letter in b"\t\r\n" for letter in plain) else b""


def _authorization(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    group = "value" if match["value"] else "rest"
    value = match[group].rstrip(b" ,;)]}")
    if not memory.names.holds_label(value) and not _PLACEHOLDER.fullmatch(value):
        if len(value) >= 8 and b" " not in value:
            memory.known.learn("bearer-token", value)
        yield (
            match.start(group),
            match.start(group) + len(value),
            memory.names.label("bearer-token", value),
        )


def _scheme(kind: str) -> Replace:
    def replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
        value = match["value"].rstrip(b".,")
        if memory.names.is_label(value) or not (is_random(value) or re.search(rb"\d", value)):
            return
        memory.known.learn(kind, value)
        yield match.start("value"), match.start("value") + len(value), memory.names.label(kind, value)

    return replace


def _basic(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    if _is_credentials(match["value"]):
        memory.known.learn("basic-auth", match["value"])
        yield *match.span("value"), memory.names.label("basic-auth", match["value"])


_COOKIE = re.compile(rb"(?P<name>[^\s=;,]+)=(?P<value>[^;\s,]+)")
_ATTRIBUTES = frozenset({b"path", b"domain", b"expires", b"max-age", b"samesite", b"version", b"priority"})


def _cookies(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    for cookie in _COOKIE.finditer(match["value"]):
        if cookie["name"].lower() not in _ATTRIBUTES and not memory.names.is_label(cookie["value"]):
            at = match.start("value")
            yield (
                at + cookie.start("value"),
                at + cookie.end("value"),
                memory.names.label("cookie", cookie["value"]),
            )


def _userinfo(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    user, password = match["user"], match["value"]
    if password is not None and not memory.names.is_label(password) and not _PLACEHOLDER.fullmatch(password):
        if len(password) >= 8:
            memory.known.learn("url-password", password)
        yield *match.span("value"), memory.names.label("url-password", password)
    if user and not is_ordinary(user) and user != b"git":
        kind = "url-password" if password is None and len(user) >= 12 else "user"
        yield *match.span("user"), memory.names.label(kind, user)


def _query(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    value = match["value"].rstrip(b").,;]}")
    is_key = match["name"].lower() in (b"key", b"code", b"policy", b"sid", b"auth", b"session")
    if (
        len(value) < 4
        or memory.names.is_label(value)
        or _PLACEHOLDER.fullmatch(value)
        or (is_key and not is_random(unquote_to_bytes(value)))
    ):
        return
    if len(value) >= 12:
        memory.known.learn("query-secret", value)
    yield match.start("value"), match.start("value") + len(value), memory.names.label("query-secret", value)
