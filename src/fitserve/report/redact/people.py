"""Who: addresses of people and names of users, where something says that it is one."""

import re
from collections.abc import Iterator

from fitserve.report.redact.known import is_ordinary
from fitserve.report.redact.rule import BEFORE, Edit, Memory, Replace, Rule

_USER = rb"(?P<user>[A-Za-z_][A-Za-z0-9_.\-]{0,63})"
_MORE_ORDINARY = frozenset(
    b"at by of in on to or and with has was is name names id role agent type input".split()
)


def people_rules() -> list[Rule]:
    """E-mail addresses, prompts of a shell, and names of users."""
    return [*_addressed_rules(), *_listed_user_rules()]


def _addressed_rules() -> list[Rule]:
    """Addresses, and names behind a word that says so."""
    return [
        Rule(
            pattern=re.compile(
                BEFORE
                + rb"(?P<mail>[A-Za-z0-9][A-Za-z0-9._%+\-]{0,63}@(?:[A-Za-z0-9\-]{1,63}\.)+[A-Za-z]{2,24})(?![A-Za-z0-9@])(?!:[A-Za-z0-9_\-]+/)"
            ),
            replace=_mail,
            probe=rb"[A-Za-z0-9_%+\-]@[A-Za-z0-9\-]{1,63}\.",
        ),
        Rule(
            pattern=re.compile(
                rb"(?m)(?:^|[\s(\[])"
                + _USER
                + rb"@(?P<host>[A-Za-z0-9][A-Za-z0-9.\-]*)(?=:[~/][^\s$#]*\s?[$#]|[ ~][^\n$#]{0,80}\][$#]|[\s'\")\]]|$|:)"
            ),
            replace=_at,
            probe=rb"[A-Za-z0-9_.\-]@[A-Za-z0-9]",
        ),
        Rule(
            pattern=re.compile(
                rb"(?<![A-Za-z0-9_.\-])(?:(?i:user(?:[_\- ]?name)?|logname|sudo_user|owner|login|created_by|author)|[A-Z_]+_USER)"
                rb"(?:\\{0,3}[\"'])?\s{0,3}[=:]\s{0,3}(?:[bu](?=[\"'\\]))?(?:\\{0,3}[\"'])?"
                + _USER
                + rb"(?![A-Za-z0-9(/])"
            ),
            replace=user("user"),
            probe=rb"(?:user(?:[_\- ]?name)?|logname|owner|login|created_by|author)[\\\"']{0,4}[ \t]{0,3}[=:]",
            caseless=True,
        ),
    ]


def _listed_user_rules() -> list[Rule]:
    """Users in the answers of programs, and in folders named after them."""
    return [
        Rule(
            pattern=re.compile(
                rb"\b[ug]id=\d+\(" + _USER + rb"\)|(?<=,)\d+\((?P<group>[A-Za-z_][A-Za-z0-9_.\-]*)\)"
            ),
            replace=_ids,
            probe=rb"[ug]id=[0-9]{1,10}\(",
        ),
        Rule(
            pattern=re.compile(
                rb"\b(?:sudo -u|(?=login \S+ password )login|su -|su|runuser -u|chown(?: -R)?|ssh -l|[Uu]ser) [\"']?"
                + _USER
                + rb"(?=[\s\"':.]|$)"
            ),
            replace=_told,
            probe=rb"(?:sudo -u|login|su -|su|runuser -u|chown|chown -R|ssh -l) [\"']?[A-Za-z_]",
        ),
        Rule(
            pattern=re.compile(
                rb"(?:\bsudo: +|\b(?:Accepted \S+|Failed \S+|session (?:opened|closed)|authentication failure) for (?:invalid )?(?:user )?|\blogin as: |"
                rb"\bgetpw[a-z]+[^\n:]{0,20}:[^\n:]{0,40}: '?|--as[= ]|\brunAsUserName: )"
                + _USER
                + rb"(?=[\s(:'\"]|$)"
            ),
            replace=user("user"),
            probe=rb"sudo: |session (?:opened|closed)|(?:Accepted|Failed) [a-z]+ for |failure for |login as: |getpw|--as[= ]|runAsUserName: ",
        ),
        Rule(
            pattern=re.compile(rb"(?m)^" + _USER + rb"\+?\s+\d+\s+\d+\.\d\s+\d+\.\d\s+\d+\s+\d+\s"),
            replace=user("user"),
            probe=rb"[0-9][ \t]+[0-9]{1,3}\.[0-9][ \t]+[0-9]{1,3}\.[0-9][ \t]+[0-9]+[ \t]",
        ),
        Rule(
            pattern=re.compile(
                rb"(?m)(?:^|\s)[dlbcps\-](?:[r\-][w\-][xsStT\-]){3}[.+@]?\s+\d+\s+" + _USER + rb"\s"
            ),
            replace=user("user"),
            probe=rb"(?:[r\-][w\-][xsStT\-]){3}[.+@]?[ \t]+[0-9]",
        ),
        Rule(
            pattern=re.compile(
                rb"(?:/tmp/(?:torchinductor_|triton_|ray_|vllm_)|[A-Za-z]:\\{1,4}Users\\{1,4}|/mnt/[a-z]/Users/|~)(?P<user>[A-Za-z_][A-Za-z0-9_.\-]{0,63})(?=[\\/\s:\"',)]|$)"
            ),
            replace=user("user"),
            probe=rb"(?:/tmp/(?:torchinductor|triton|ray|vllm)_|:\\{1,4}Users\\|/Users/|~[a-z])",
        ),
    ]


def user(group: str) -> Replace:
    """Replace the name of a user, and hide it from now on; ordinary names stay."""

    def replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
        name = match[group]
        if not name or memory.names.is_label(name) or is_ordinary(name) or name.lower() in _MORE_ORDINARY:
            return
        memory.known.learn("user", name)
        yield *match.span(group), memory.names.label("user", name)

    return replace


def _mail(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    address = match["mail"]
    before = match.string[max(0, match.start() - 200) : match.start()]
    url = before[max(before.rfind(b" "), before.rfind(b"\n")) + 1 :].partition(b"://")
    is_in_url = bool(url[1]) and not re.search(rb"[/?#]", url[2])  # a user of the host, not an address
    if (
        is_in_url
        or address.startswith(b"git@")
        or address.rpartition(b".")[2].lower() in (b"py", b"so", b"whl", b"git")
    ):
        return
    memory.known.learn("email", address)
    yield *match.span("mail"), memory.names.label("email", address)


def _at(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    """``alice@node7:~/work$``: a user and a host, where a prompt or a plain word ends behind it."""
    host = match["host"]
    behind = match.string[match.end() : match.end() + 90]
    is_prompt = behind[:1] in (b":", b" ", b"~") and (b"$" in behind or b"#" in behind)
    if not is_prompt and not re.search(rb"[0-9\-]", host):
        return
    is_address = re.fullmatch(rb"\d{1,3}(?:\.\d{1,3}){3}", host) is not None
    if re.fullmatch(rb"v?\d[\w.\-]*|[0-9a-f]{7,64}", host) and not is_prompt and not is_address:
        return
    yield from user("user")(match, memory)
    if (
        not is_address
        and not memory.names.is_label(host)
        and host.lower() != b"localhost"
        and not is_ordinary(host)
    ):
        memory.known.learn("host", host)
        yield *match.span("host"), memory.names.label("host", host)


def _ids(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    yield from user("user" if match["user"] else "group")(match, memory)


def _told(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    if match[0].startswith((b"User", b"user")) and not re.search(rb"[\d.\-_]", match["user"]):
        return
    yield from user("user")(match, memory)
