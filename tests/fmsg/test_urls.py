"""Where a credential may go."""

from __future__ import annotations

import pytest

from fmsg.errors import BadInput
from fmsg.urls import base_url, is_loopback, proxy_for


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
        ("https://a.test/fmsg", "ends in /fmsg"),
        ("https://a.test/base/fmsg/", "ends in /fmsg"),
        ("${FMSG_API_URL}", r"contains \$\{FMSG_API_URL\}, which was to be replaced"),
        ("https://${HOST}/", r"contains \$\{HOST\}, which"),
        ("$FMSG_API_URL", r"contains \$FMSG_API_URL, which"),
        ("%FMSG_API_URL%", r"contains %FMSG_API_URL%, which"),
        ("${env:FMSG_API_URL}", r"contains \$\{env:FMSG_API_URL\}, which"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadInput, match=f"^FMSG_API_URL: .*{reason}.*Write it like https://"):
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


PROXY = "http://proxy.corp:3128"


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://a.test", {}, None),
        ("https://a.test", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://a.test", {"https_proxy": PROXY, "HTTPS_PROXY": "http://other"}, PROXY),
        ("https://a.test", {"HTTPS_PROXY": "proxy.corp:3128"}, PROXY),
        ("https://a.test", {"HTTPS_PROXY": ""}, None),
        ("https://a.test", {"HTTP_PROXY": PROXY}, None),
        ("http://a.test", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://a.test", {"ALL_PROXY": PROXY}, PROXY),
        ("https://a.test", {"HTTPS_PROXY": PROXY, "NO_PROXY": "b.test, a.test"}, None),
        ("https://api.a.test", {"HTTPS_PROXY": PROXY, "no_proxy": ".a.test"}, None),
        ("https://api.a.test", {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, None),
        ("https://api.a.test", {"HTTPS_PROXY": PROXY, "NO_PROXY": "api.b.test"}, PROXY),
        ("https://a.test:8443", {"HTTPS_PROXY": PROXY, "NO_PROXY": "a.test:8443"}, None),
        ("https://10.1.2.3", {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, None),
        ("https://11.1.2.3", {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8,::1/128"}, PROXY),
        ("https://localhost:8443", {"HTTPS_PROXY": PROXY}, None),
        ("http://127.0.0.1:8000", {"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, None),
        ("http://[::1]:8000", {"HTTP_PROXY": PROXY}, None),
    ],
)
def test_a_proxy_is_used_where_the_environment_names_one(
    url: str, environment: dict[str, str], proxy: str | None
) -> None:
    assert proxy_for(url, environment) == proxy


@pytest.mark.parametrize("proxy", ["socks5://ann:hunter2@proxy.corp", "http://", "http://[::1", "file:///hunter2"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(proxy: str) -> None:
    with pytest.raises(BadInput, match=r"^HTTPS_PROXY: .* Write it like http://") as caught:
        proxy_for("https://a.test", {"HTTPS_PROXY": proxy})
    assert "hunter2" not in str(caught.value)
