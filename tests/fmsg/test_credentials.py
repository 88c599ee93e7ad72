"""One real-looking sample per kind, and what is nearly one but is not."""

from __future__ import annotations

import time

import pytest

from fmsg.credentials import KINDS
from fmsg.redact import redact

ALNUM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 6
HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9" * 4
UPPER = "ABCDEFGHIJKLMNOP" * 4

SAMPLES = {
    "GitHub classic": ("ghp_" + ALNUM[:36], "GitHub token"),
    "GitHub OAuth": ("gho_" + ALNUM[:36], "GitHub token"),
    "GitHub app": ("ghs_" + ALNUM[:36], "GitHub token"),
    "GitHub fine-grained": ("github_pat_" + ALNUM[:22] + "_" + ALNUM[:59], "GitHub token"),
    "GitLab": ("glpat-" + ALNUM[:20], "GitLab token"),
    "GitLab routable": ("glpat-" + ALNUM[:27] + ".01." + ALNUM[:9], "GitLab token"),
    "AWS access key id": ("AKIA" + UPPER[:16], "AWS key"),
    "AWS temporary key id": ("ASIA" + UPPER[:16], "AWS key"),
    "Google API key": ("AIza" + ALNUM[:35], "Google key"),
    "Google access token": ("ya29." + ALNUM[:60], "Google token"),
    "Google client secret": ("GOCSPX-" + ALNUM[:28], "Google secret"),
    "Slack bot": ("xoxb-123456789012-123456789012-" + ALNUM[:24], "Slack token"),
    "Slack rotating": ("xoxe.xoxp-1-" + ALNUM[:60], "Slack token"),
    "Slack app": ("xapp-1-A0123456789-1234567890123-" + HEX[:64], "Slack token"),
    "Slack webhook": ("https://hooks.slack.com/services/T0AAAAAAA/B0AAAAAAA/" + ALNUM[:24], "Slack webhook"),
    "Stripe live": ("sk_live_" + ALNUM[:24], "Stripe key"),
    "Stripe restricted": ("rk_test_" + ALNUM[:99], "Stripe key"),
    "Stripe webhook": ("whsec_" + ALNUM[:32], "webhook secret"),
    "Anthropic": ("sk-ant-api03-" + ALNUM[:93] + "-_AA", "Anthropic key"),
    "OpenRouter": ("sk-or-v1-" + HEX[:64], "OpenRouter key"),
    "OpenAI": ("sk-" + ALNUM[:48], "OpenAI key"),
    "OpenAI project": ("sk-proj-" + ALNUM[:60] + "_-" + ALNUM[:60], "OpenAI key"),
    "npm": ("npm_" + ALNUM[:36], "npm token"),
    "PyPI": ("pypi-AgEIcHlwaS5vcmc" + ALNUM[:100], "PyPI token"),
    "RubyGems": ("rubygems_" + HEX[:48], "RubyGems key"),
    "Hugging Face": ("hf_" + ALNUM[:34], "Hugging Face token"),
    "DigitalOcean": ("dop_v1_" + HEX[:64], "DigitalOcean token"),
    "SendGrid": ("SG." + ALNUM[:22] + "." + ALNUM[:43], "SendGrid key"),
    "Twilio": ("SK" + HEX[:32], "Twilio key"),
    "Mailgun": ("key-" + HEX[:32], "Mailgun key"),
    "Databricks": ("dapi" + HEX[:32], "Databricks token"),
    "Shopify": ("shpat_" + HEX[:32], "Shopify token"),
    "Square": ("sq0atp-" + ALNUM[:22], "Square token"),
    "Docker": ("dckr_pat_" + ALNUM[:27], "Docker token"),
    "Vault": ("hvs." + ALNUM[:90], "Vault token"),
    "Linear": ("lin_api_" + ALNUM[:40], "Linear key"),
    "Groq": ("gsk_" + ALNUM[:52], "Groq key"),
    "xAI": ("xai-" + ALNUM[:80], "xAI key"),
    "Replicate": ("r8_" + ALNUM[:37], "Replicate token"),
    "Notion": ("ntn_" + ALNUM[:46], "Notion token"),
    "Grafana": ("glsa_" + ALNUM[:32] + "_" + HEX[:8], "Grafana token"),
    "Sentry": ("sntrys_" + ALNUM[:60] + "=_" + ALNUM[:43], "Sentry token"),
    "Supabase": ("sbp_" + HEX[:40], "Supabase token"),
    "Tailscale": ("tskey-auth-" + ALNUM[:12] + "CNTRL-" + ALNUM[:32], "Tailscale key"),
    "Atlassian": ("ATATT3" + ALNUM[:160] + "=" + HEX[:8].upper(), "Atlassian token"),
    "age": ("AGE-SECRET-KEY-1" + UPPER[:58], "age key"),
}


@pytest.mark.parametrize(("secret", "label"), SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize(
    "frame", ["{}", "token={}", "use {} now", '{{"key": "{}"}}', "https://x.test/?k={}&z=1", "({})."]
)
def test_a_credential_is_replaced_wherever_it_stands(secret: str, label: str, frame: str) -> None:
    expected = frame.format(f"[redacted {label}]")
    text, count = redact(frame.format(secret))
    assert count == 1
    assert text.rstrip(".)") == expected.rstrip(".)")


@pytest.mark.parametrize(("secret", "label"), SAMPLES.values(), ids=SAMPLES)
def test_inside_a_longer_word_or_cut_short_it_is_none(secret: str, label: str) -> None:
    assert redact(f"x{secret[: len(secret) // 4]} {secret[:8]}…")[1] == 0


def test_every_kind_has_a_sample() -> None:
    sampled = {label for _, label in SAMPLES.values()} | {
        "Azure key",
        "fmsg key",
        "JWT",
        "private key",
        "Telegram token",
    }
    assert {kind.label for kind in KINDS} == sampled


@pytest.mark.parametrize(
    "frame",
    ["aws_secret_access_key = {}", 'AWS_SECRET_ACCESS_KEY="{}"', '"SecretAccessKey": "{}"', "AWS_SECRET_ACCESS_KEY={}"],
)
def test_of_an_aws_secret_only_the_value_goes(frame: str) -> None:
    assert redact(frame.format(ALNUM[:40])) == (frame.format("[redacted AWS key]"), 1)


def test_of_an_azure_connection_string_only_the_key_goes() -> None:
    text = f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={ALNUM[:86]}==;EndpointSuffix=core.windows.net"
    assert redact(text)[0] == (
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=[redacted Azure key];EndpointSuffix=core.windows.net"
    )


def test_no_kind_is_slow_on_text_full_of_its_beginnings() -> None:
    for kind in KINDS:
        for text in (kind.marker * 3_000, f" {kind.marker}aA1" * 3_000, f" {kind.marker}" + "a-A1" * 10_000 + "!"):
            started = time.process_time()
            redact(text)
            assert time.process_time() - started < 1.0, kind.marker
