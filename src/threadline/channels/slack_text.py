"""Slack's text format, in both directions.

Incoming `<@U1>`, `<#C1|general>`, `<!channel>`, `<https://a.example|label>` and the three escaped characters become the
text that a person sees. In outgoing text those three characters are escaped, so that a reply cannot mention people:
`<!channel>` in a reply is plain text.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from threadline.channels.text_marks import Marks

_REFERENCE = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_PERSON = re.compile(r"<(@|!(channel|here|everyone|subteam))")
_FIRST_MENTION = re.compile(r"\s*<@([A-Z0-9]+)(?:\|[^<>]*)?>[\s,:]*")


def names_a_person(text: str) -> bool:
    """Whether it is addressed to a person or to everybody."""
    return _PERSON.search(text) is not None


def unescape(text: str, bots: Collection[str], *, any_mention: bool) -> str:
    """Plain text without a mention of the bot at the start. With `any_mention`, any mention there counts as the bot's,
    because Slack does not always name the bot."""
    first = _FIRST_MENTION.match(text)
    if first is not None and (first[1] in bots or (any_mention and not bots)):
        text = text[first.end() :]
    plain = _REFERENCE.sub(_reference_text, text)
    # &amp; comes last, or an escaped "&lt;" would be unescaped twice.
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _reference_text(reference: re.Match[str]) -> str:
    what, label = reference[1], reference[2]
    match what[:1]:
        case "@":
            return f"@{label or what[1:]}"
        case "#":
            return f"#{label or what[1:]}"
        case "!":
            return label or f"@{what[1:].partition('^')[0]}"
    if not label or label == what.removeprefix("mailto:"):
        return what.removeprefix("mailto:")
    return f"{label} ({what})"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _link(text: str, href: str) -> str:
    where = _escape(href).replace("|", "%7C")
    return f"<{where}>" if text in (href, href.removeprefix("mailto:")) else f"<{where}|{_escape(text)}>"


MARKS = Marks(styles={"code": "`", "strike": "~", "italic": "_", "bold": "*"}, escape=_escape, link=_link)
