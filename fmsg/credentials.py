"""The credential formats that `fmsg.redact` takes out, each with the literal that it begins with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A credential that begins with ``marker``, goes on with ``rest`` and with as many units of ``tail`` as there are.

    ``marker`` is a literal; ``rest`` and ``tail`` are regular expressions. Whether something is a credential is decided
    by the marker and ``rest``, which read at most `MAX_DECISION_CHARS`. Where ``rest`` is ``grouped``, what its one
    group matches is the secret, and what stands around it stays; a group that matches the empty string says that this
    is no credential, and where to look on.
    """

    label: str
    marker: str
    rest: str
    tail: str = ""
    grouped: bool = False


ALNUM = "[A-Za-z0-9]"
WORD = "[A-Za-z0-9_-]"
HEX = "[a-f0-9]"

MAX_DECISION_CHARS = 16 * 1024
"""How far a pattern reads at most before it is certain. The longest is an encrypted JWT with certificates in it."""

MAX_UNIT_CHARS = 16
"""The longest unit of a tail, an HTML reference like ``&#x00002F;``, is shorter than this."""


def _edged(label: str, marker: str, rest: str, tail: str = "") -> Kind:
    """A kind that is none inside a longer word: there it is part of a hash, or of base64 of an image."""
    return Kind(label=label, marker=marker, rest=rf"(?<![A-Za-z0-9]{re.escape(marker)})" + rest, tail=tail)


FMSG_KEY = Kind(
    label="fmsg key",
    marker="fmsgk",
    rest=r"(?:\\?_|%5[Ff]|\\u005[Ff]|&#95;|&#[Xx]5[Ff];)"
    r"(?:[A-Za-z0-9+/=_.~-]|%[0-9A-Fa-f]{2}|\\[+/=_.~-]|\\u00[0-9A-Fa-f]{2}|&#[Xx]?[0-9A-Fa-f]{1,6};)",
    tail=r"(?:[A-Za-z0-9+/=_.~-]++|%[0-9A-Fa-f]{2}|\\[+/=_.~-]|\\u00[0-9A-Fa-f]{2}|&#[Xx]?[0-9A-Fa-f]{1,6};)",
)
"""The whole of a key in any spelling in which a host, a proxy or a model may give it back: plain (standard base64 with
``+ / =``), percent-encoded, JSON-escaped, HTML-escaped or with Markdown's backslashes. Stopping at ``+`` would leave
half a secret."""

JWT = Kind(
    label="JWT",
    marker="eyJ",
    rest=rf"{WORD}{{7,8192}}+"
    rf"(?:\.eyJ{WORD}{{7}}|\.{WORD}{{0,4096}}+\.{WORD}{{0,256}}+\.{WORD}{{10}}|())",
    tail=rf"(?:{WORD}++|\.(?={WORD}))",
    grouped=True,
)
"""``header.payload.signature``, or the parts of an encrypted token. A header is JSON, so it begins with ``eyJ``, and
the shortest, ``{"alg":""}``, has 14 characters. A longer word without the other parts is passed over whole."""

PRIVATE_KEY = Kind(label="private key", marker="-----BEGIN ", rest=r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
"""The first line of a block; `fmsg.redact` looks for its end."""

TELEGRAM = Kind(
    label="Telegram token",
    marker=":AA",
    rest=rf"(?<=[0-9]{{8}}:AA){WORD}{{33}}(?!{WORD})",
)
"""``<bot id>:AA…``: the only kind whose literal stands in its middle; `fmsg.redact` looks for its beginning."""

KINDS: tuple[Kind, ...] = (
    FMSG_KEY,
    JWT,
    PRIVATE_KEY,
    TELEGRAM,
    *(_edged("GitHub token", f"gh{letter}_", ALNUM + "{30}", ALNUM) for letter in "pousr"),
    _edged("GitHub token", "github_pat_", "[A-Za-z0-9_]{22}", "[A-Za-z0-9_]"),
    *(
        # Each with its dash: "gl" alone is in too many words.
        _edged("GitLab token", f"gl{kind}-", "[A-Za-z0-9_.-]{20}", "[A-Za-z0-9_.-]")
        for kind in ("pat", "dt", "rt", "cbt", "ptt", "ft", "imt", "agent", "oas", "soat", "ffct", "wt")
    ),
    _edged("AWS key", "AKIA", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _edged("AWS key", "ASIA", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    *(
        Kind(
            label="AWS key",
            marker=name,
            rest=r"[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?([A-Za-z0-9/+]{40})",
            grouped=True,
        )
        for name in ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey")
    ),
    _edged("Google key", "AIza", WORD + "{35}", WORD),
    _edged("Google token", "ya29.", WORD + "{20}", WORD),
    _edged("Google secret", "GOCSPX-", WORD + "{28}", WORD),
    _edged("Slack token", "xox", "[abceoprs][.-][A-Za-z0-9.-]{10}", "[A-Za-z0-9.-]"),
    _edged("Slack token", "xapp-", "[0-9]-[A-Za-z0-9-]{10}", "[A-Za-z0-9-]"),
    _edged("Slack webhook", "https://hooks.slack.com/services/", "[A-Za-z0-9_/]{20}", "[A-Za-z0-9_/]"),
    *(
        _edged("Stripe key", f"{kind}_{mode}_", ALNUM + "{16}", ALNUM)
        for kind in ("sk", "rk")
        for mode in ("live", "test")
    ),
    _edged("webhook secret", "whsec_", "[A-Za-z0-9+/=]{24}", "[A-Za-z0-9+/=]"),
    _edged("Anthropic key", "sk-ant-", WORD + "{20}", WORD),
    _edged("OpenRouter key", "sk-or-", WORD + "{20}", WORD),
    *(
        _edged("OpenAI key", f"sk-{kind}-", WORD + "{20}", WORD)
        for kind in ("proj", "svcacct", "admin", "service", "None")
    ),
    _edged("OpenAI key", "sk-", ALNUM + "{32}", ALNUM),
    _edged("npm token", "npm_", ALNUM + "{36}", ALNUM),
    _edged("PyPI token", "pypi-", f"Ag{WORD}{{50}}", WORD),
    _edged("RubyGems key", "rubygems_", HEX + "{48}", HEX),
    _edged("Hugging Face token", "hf_", ALNUM + "{30}", ALNUM),
    *(_edged("DigitalOcean token", f"do{letter}_v1_", HEX + "{64}", HEX) for letter in "opr"),
    _edged("SendGrid key", "SG.", rf"{WORD}{{16,32}}\.{WORD}{{16}}", WORD),
    _edged("Twilio key", "SK", HEX + "{32}(?![A-Za-z0-9])"),
    _edged("Mailgun key", "key-", HEX + "{32}(?![A-Za-z0-9])"),
    _edged("Databricks token", "dapi", HEX + "{32}(?![A-Za-z0-9])"),
    *(_edged("Shopify token", f"shp{kind}_", "[A-Fa-f0-9]{32}", "[A-Fa-f0-9]") for kind in ("at", "ca", "pa", "ss")),
    _edged("Square token", "sq0", f"(?:atp|csp)-{WORD}{{22}}", WORD),
    _edged("Docker token", "dckr_pat_", WORD + "{20}", WORD),
    _edged("Vault token", "hvs.", WORD + "{24}", WORD),
    _edged("Linear key", "lin_api_", ALNUM + "{32}", ALNUM),
    _edged("Groq key", "gsk_", ALNUM + "{48}", ALNUM),
    _edged("xAI key", "xai-", ALNUM + "{64}", ALNUM),
    _edged("Replicate token", "r8_", ALNUM + "{37}", ALNUM),
    _edged("Notion token", "ntn_", ALNUM + "{40}", ALNUM),
    _edged("Grafana token", "glsa_", "[A-Za-z0-9_]{32}", "[A-Za-z0-9_]"),
    _edged("Sentry token", "sntrys_", "[A-Za-z0-9+/=_]{40}", "[A-Za-z0-9+/=_]"),
    _edged("Supabase token", "sbp_", HEX + "{40}", HEX),
    _edged("Tailscale key", "tskey-", "[a-z]{2,12}-[A-Za-z0-9-]{16}", "[A-Za-z0-9-]"),
    _edged("Atlassian token", "ATATT3", "[A-Za-z0-9_=-]{60}", "[A-Za-z0-9_=-]"),
    _edged("age key", "AGE-SECRET-KEY-1", "[A-Z0-9]{58}", "[A-Z0-9]"),
    Kind(label="Azure key", marker="AccountKey=", rest="([A-Za-z0-9+/]{86}==)", grouped=True),
)
"""Every kind with the shape its provider documents. Lengths are lower bounds where providers have changed them."""


MARKERS: tuple[str, ...] = tuple(dict.fromkeys(kind.marker for kind in KINDS))
"""Every literal that a credential has in it."""


def alternation(branches: Iterable[tuple[str, str]]) -> str:
    """A regular expression for any of the literals, each with what follows it. A longer literal is tried first.

    Equal beginnings are written once, so that the engine compares each character with few others.
    """
    by_first: dict[str, list[tuple[str, str]]] = {}
    here: list[str] = []
    for literal, rest in branches:
        if literal:
            by_first.setdefault(literal[0], []).append((literal[1:], rest))
        else:
            here.append(rest)
    found = [re.escape(first) + alternation(further) for first, further in by_first.items()]
    return _any_of([*found, *here])


def _any_of(expressions: Sequence[str]) -> str:
    return expressions[0] if len(expressions) == 1 else f"(?:{'|'.join(expressions)})"
