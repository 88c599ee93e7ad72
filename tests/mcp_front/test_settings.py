from __future__ import annotations

import msgspec

from mcp_front.settings import Budgets, FrontSettings, budget_name


def test_a_budget_is_named_by_its_variable() -> None:
    assert budget_name("max_body_bytes") == "FMSG_MCP_MAX_BODY_BYTES"
    assert budget_name("body_s") == "FMSG_MCP_BODY_SECONDS"


def test_one_caller_alone_cannot_use_up_what_all_share() -> None:
    budgets = Budgets()
    assert budgets.max_waits_per_caller < budgets.max_waits
    assert budgets.max_body_bytes <= budgets.upload_bytes_per_caller < budgets.upload_bytes


def test_waits_end_before_clients_and_proxies_cut_them() -> None:
    settings = FrontSettings()
    assert settings.wait_default_s < 60 < settings.wait_max_s <= 230
    assert settings.http.ping_s < 30
    assert msgspec.structs.replace(settings, api_url="https://x").api_url == "https://x"
