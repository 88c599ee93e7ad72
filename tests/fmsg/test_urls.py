"""Where a credential may go."""

from __future__ import annotations

import pytest

from fmsg.errors import BadInput
from fmsg.urls import base_url, is_loopback


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://api.a.test", "https://api.a.test"),
        (" https://api.a.test/ ", "https://api.a.test"),
        ("https://api.a.test:8443/base/", "https://api.a.test:8443/base"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://127.9.9.9:1", "http://127.9.9.9:1"),
        ("http://[::1]:80/", "http://[::1]:80"),
    ],
)
def test_https_anywhere_and_cleartext_to_this_machine(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://api.a.test", "cleartext"),
        ("http://192.168.0.5", "cleartext"),
        ("http://localhost.a.test", "cleartext"),
        ("http://127.0.0.1.a.test", "cleartext"),
        ("http://0.0.0.0", "cleartext"),
        ("ftp://a.test", "neither https"),
        ("api.a.test", "neither https"),
        ("", "neither https"),
        ("https://", "no host"),
        ("https:///path", "no host"),
        ("https://a.test:port", "not a URL"),
        ("https://[::1", "not a URL"),
        ("https://user:pw@a.test", "user name"),
        ("https://user@a.test", "user name"),
        ("https://a.test?x=1", "more than"),
        ("https://a.test#x", "more than"),
        ("https://a.test/a b", "more than"),
        ("https://a.test/\x00", "more than"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=f"^API URL: .*{reason}.*Write it like https://"):
        base_url(text)


def test_cleartext_elsewhere_takes_an_operator_s_word() -> None:
    assert base_url("http://api.a.test", allow_insecure=True) == "http://api.a.test"


def test_a_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(BadInput) as caught:
        base_url("https://user:hunter2@a.test")
    assert "hunter2" not in str(caught.value)


def test_loopback() -> None:
    assert is_loopback("LOCALHOST")
    assert not is_loopback("a.test")
