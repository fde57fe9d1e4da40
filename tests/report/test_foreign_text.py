"""Text from logs, commands and other people's records is shown, and obeyed nowhere."""

import re
from collections import Counter

import msgspec
import pytest

from fitserve.report.markdown_text import code, in_html, inline, paragraph
from fitserve.report.record_markdown import render_record_markdown
from fitserve.report.record_text import render_record
from tests.report.html.whole import whole_record

CASES = [
    ("a | b", r"a \| b"),
    ("```", r"\`\`\`"),
    ("![](http://x.example/p.png)", r"!\[](http://x.example/p.png)"),
    ("[docs](javascript:x)", r"\[docs](javascript:x)"),
    ("@someone and team/@someone", "@<!-- -->someone and team/@<!-- -->someone"),
    ("see #12, org/repo#3 and a@b.example", "see #<!-- -->12, org/repo#<!-- -->3 and a@b.example"),
    ("<script> &lt;b>", "&lt;script> &amp;lt;b>"),
    (r"\<b> \|", r"\\&lt;b> \\\|"),
    ("**bold**", r"\*\*bold\*\*"),
    ("131072 -> 76304 & layers.0.self_attn", "131072 -> 76304 & layers.0.self_attn"),
    ("two\n\n# lines\r\n", "two # lines"),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_markdown_of_a_text(text: str, expected: str) -> None:
    """Nothing of it is markup, a picture, a call or a link to an issue; what is none of these stays readable."""
    assert expected == inline(text)


@pytest.mark.parametrize("start", ["# ", "- ", "+ ", "> ", "=== ", "~~~ ", "1. ", "12) ", "---"])
def test_a_paragraph_begins_no_block(start: str) -> None:
    """A list, a heading, a quote, a fence and a rule begin with a sign that is escaped."""
    digits = re.match(r"\d*", start)

    assert digits is not None
    assert f"{digits[0]}\\{(start + 'x').removeprefix(digits[0])}" == paragraph(f"{start}x")


def test_markdown_in_a_tag_and_as_code() -> None:
    """Within a tag no Markdown is read, and code ends where it should."""
    assert ("a &lt;b> -> @<!-- -->c", "``a ` b``", "`` ` ``") == (
        in_html("a <b> -> @c"),
        code("a ` b"),
        code("`"),
    )


HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "```\n# big @octocat\n```",
    "| a |\n\n| x |\n|---|\n| <b> |",
    "<!--",
    "![](http://x.example/p.png)",
    "</details></style></title>",
    "\n- item\n> quote",
    "\x1b[31m\x00",
]


def outside_of_fences(text: str) -> str:
    """Markdown without its blocks of code."""
    return re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)


def signs(text: str) -> Counter[str]:
    """What is obeyed in Markdown, each as often as it stands there."""
    found = re.findall(
        r"(?m)(?<!\\)`+|<(?!!-- -->)[^>]*>?|(?<!\\)\[|^(?:#+|[-+>]|\d+[.)]|\|)|@\w|(?<!\\)\|", text
    )
    return Counter(sign.replace("summary>", "summary").partition(" ")[0] for sign in found)


@pytest.mark.parametrize("words", HOSTILE)
def test_no_text_breaks_out_of_the_markdown(words: str) -> None:
    """Beside its blocks of code, the issue text of a hostile run has the marks of a harmless one."""
    harmless, hostile = (
        signs(outside_of_fences(render_record_markdown(whole_record(text)))) for text in (" words", words)
    )

    assert harmless == hostile


@pytest.mark.parametrize("url", ["http://[x", "http://h:80 x", "http://h:99999999", "", "::"])
def test_an_odd_address_is_no_defect(url: str) -> None:
    """A record that somebody has sent may say any address."""
    record = whole_record()
    assert record.verification is not None
    refused = [
        msgspec.structs.replace(check, passed=False, error_type="connection-refused")
        for check in record.verification.checks
    ]
    verification = msgspec.structs.replace(record.verification, url=url, checks=refused)

    text = render_record(msgspec.structs.replace(record, verification=verification))

    assert "served" in text
