"""The credential formats of well-known providers that `fmsg.redact` takes out. Each begins with its own literal."""

from __future__ import annotations

import re

import msgspec


class Prefixed(msgspec.Struct, frozen=True):
    """A credential that begins with ``marker`` and is read by ``pattern`` from there.

    Only the group ``secret`` is replaced where the pattern has one. A pattern reads a bounded stretch before it can
    fail (``{n}``, or ``{n,}`` at its end), so that hostile text costs no more than its length.
    """

    marker: str
    label: str
    pattern: re.Pattern[str]


_EDGE = r"(?<![A-Za-z0-9])"
"""A token inside a longer word is part of something else: a hash, base64 of an image."""


def _kind(label: str, marker: str, rest: str) -> Prefixed:
    return Prefixed(marker, label, re.compile(_EDGE + re.escape(marker) + rest))


PREFIXED: tuple[Prefixed, ...] = (
    *(_kind("GitHub token", f"gh{letter}_", r"[A-Za-z0-9]{30,}") for letter in "pousr"),
    _kind("GitHub token", "github_pat_", r"[A-Za-z0-9_]{22,}"),
    *(
        # Each with its dash: "gl" alone is in too many words.
        _kind("GitLab token", f"gl{kind}-", r"[A-Za-z0-9_.-]{20,}")
        for kind in ("pat", "dt", "rt", "cbt", "ptt", "ft", "imt", "agent", "oas", "soat", "ffct", "wt")
    ),
    _kind("AWS key", "AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _kind("AWS key", "ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    *(
        Prefixed(
            name,
            "AWS key",
            re.compile(re.escape(name) + r"[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?(?P<secret>[A-Za-z0-9/+]{40})"),
        )
        for name in ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey")
    ),
    _kind("Google key", "AIza", r"[A-Za-z0-9_-]{35}"),
    _kind("Google token", "ya29.", r"[A-Za-z0-9_-]{20,}"),
    _kind("Google secret", "GOCSPX-", r"[A-Za-z0-9_-]{28}"),
    _kind("Slack token", "xox", r"[abceoprs][.-][A-Za-z0-9.-]{10,}"),
    _kind("Slack token", "xapp-", r"[0-9]-[A-Za-z0-9-]{10,}"),
    _kind("Slack webhook", "https://hooks.slack.com/services/", r"[A-Za-z0-9_/]{20,}"),
    *(
        _kind("Stripe key", f"{kind}_{mode}_", r"[A-Za-z0-9]{16,}")
        for kind in ("sk", "rk")
        for mode in ("live", "test")
    ),
    _kind("webhook secret", "whsec_", r"[A-Za-z0-9+/=]{24,}"),
    _kind("Anthropic key", "sk-ant-", r"[A-Za-z0-9_-]{20,}"),
    _kind("OpenRouter key", "sk-or-", r"[A-Za-z0-9_-]{20,}"),
    _kind("OpenAI key", "sk-", r"(?:(?:proj|svcacct|admin|service|None)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})"),
    _kind("npm token", "npm_", r"[A-Za-z0-9]{36}"),
    _kind("PyPI token", "pypi-", r"Ag[A-Za-z0-9_-]{50,}"),
    _kind("RubyGems key", "rubygems_", r"[a-f0-9]{48}"),
    _kind("Hugging Face token", "hf_", r"[A-Za-z0-9]{30,}"),
    *(_kind("DigitalOcean token", f"do{letter}_v1_", r"[a-f0-9]{64}") for letter in "opr"),
    _kind("SendGrid key", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,}"),
    _kind("Twilio key", "SK", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    _kind("Mailgun key", "key-", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    _kind("Databricks token", "dapi", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    *(_kind("Shopify token", f"shp{kind}_", r"[A-Fa-f0-9]{32}") for kind in ("at", "ca", "pa", "ss")),
    _kind("Square token", "sq0", r"(?:atp|csp)-[A-Za-z0-9_-]{22,}"),
    _kind("Docker token", "dckr_pat_", r"[A-Za-z0-9_-]{20,}"),
    _kind("Vault token", "hvs.", r"[A-Za-z0-9_-]{24,}"),
    _kind("Linear key", "lin_api_", r"[A-Za-z0-9]{32,}"),
    _kind("Groq key", "gsk_", r"[A-Za-z0-9]{48,}"),
    _kind("xAI key", "xai-", r"[A-Za-z0-9]{64,}"),
    _kind("Replicate token", "r8_", r"[A-Za-z0-9]{37}"),
    _kind("Notion token", "ntn_", r"[A-Za-z0-9]{40,}"),
    _kind("Grafana token", "glsa_", r"[A-Za-z0-9_]{32,}"),
    _kind("Sentry token", "sntrys_", r"[A-Za-z0-9+/=_]{40,}"),
    _kind("Supabase token", "sbp_", r"[a-f0-9]{40}"),
    _kind("Tailscale key", "tskey-", r"[a-z]{2,12}-[A-Za-z0-9-]{16,}"),
    _kind("Atlassian token", "ATATT3", r"[A-Za-z0-9_=-]{60,}"),
    _kind("age key", "AGE-SECRET-KEY-1", r"[A-Z0-9]{58}"),
    Prefixed("AccountKey=", "Azure key", re.compile(r"AccountKey=(?P<secret>[A-Za-z0-9+/]{86}==)")),
)
"""Every kind with the shape its provider documents; lengths are lower bounds where providers have changed them."""
