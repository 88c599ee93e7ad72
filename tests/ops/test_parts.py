from __future__ import annotations

import pytest

from ops.parts import front_settings
from ops.settings import SettingError, load

HOST = {"FMSG_API_URL": "http://127.0.0.1:8080"}


def test_the_front_is_told_where_it_is_and_what_to_show() -> None:
    environ = {
        **HOST,
        "FMSG_MCP_PATH": "/fmsg/mcp/",
        "FMSG_API_PUBLIC_URL": "https://fmsgapi.example.com/",
        "FMSG_DEFAULT_DOMAIN": "caller",
        "FMSG_MCP_ANSWER_BYTES": "1000000",
    }
    settings = front_settings(load(environ))
    assert settings.http.path == "/fmsg/mcp"
    assert settings.api_public_url == "https://fmsgapi.example.com"
    assert settings.default_domain == "caller"
    assert settings.budgets.answer_bytes == 1_000_000
    plain = front_settings(load(HOST))
    assert (plain.http.path, plain.api_public_url) == ("/mcp", None)


@pytest.mark.parametrize("url", ["fmsg.example.com", "https://user:secret@fmsg.example.com", "ftp://x", "https://a b"])
def test_a_public_url_that_is_none_is_told_by_name(url: str) -> None:
    with pytest.raises(SettingError, match=r"^FMSG_API_PUBLIC_URL: ") as refused:
        front_settings(load({**HOST, "FMSG_API_PUBLIC_URL": url}))
    assert "secret" not in str(refused.value)
