"""Signing in: what is asked for is given once, and everything else gets its RFC's error."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlencode

import pytest

from ledger.port import LedgerUnavailable
from ledger.seal import SealKeys
from mcp_front.oauth.sealed import Access
from tests.mcp_front.oauth.visitor import (
    ADDRESS,
    ISSUER,
    KEY,
    REDIRECT,
    RESOURCE,
    SEAL_KEY,
    Fixture,
    consented,
    fields,
    pkce,
    query,
    question,
    redemption,
    registered,
    renewal,
    signed_in,
)


@pytest.fixture
def fixture() -> Fixture:
    """An authorization server with one key that the host accepts."""
    return Fixture()


async def access(fixture: Fixture, token: str) -> Access | None:
    """What a fresh replica makes of an access token: nothing is remembered there."""
    return await fixture.replica().access(token)


@pytest.mark.parametrize("path", ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"])
async def test_the_resource_says_who_issues_its_tokens(fixture: Fixture, path: str) -> None:
    async with fixture.browser() as http:
        document = (await http.get(path, headers={"origin": "https://inspector.example"})).json()
    assert document["resource"] == RESOURCE
    assert document["authorization_servers"] == [ISSUER]
    assert document["scopes_supported"] == ["fmsg:read", "fmsg:write"]


async def test_the_server_says_what_it_takes(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        answer = await http.get(
            "/.well-known/oauth-authorization-server", headers={"origin": "https://inspector.example"}
        )
    document = answer.json()
    assert answer.headers["access-control-allow-origin"] == "*"
    assert document["issuer"] == ISSUER
    assert document["code_challenge_methods_supported"] == ["S256"]
    assert document["authorization_response_iss_parameter_supported"] is True
    assert document["client_id_metadata_document_supported"] is True
    for name in ("authorization", "token", "registration", "revocation"):
        assert document[f"{name}_endpoint"].startswith(f"{ISSUER}/oauth/")


def test_the_challenge_leads_to_the_metadata(fixture: Fixture) -> None:
    challenge = fixture.sign_in.challenge().decode()
    assert f'resource_metadata="{ISSUER}/.well-known/oauth-protected-resource/mcp"' in challenge
    assert 'scope="fmsg:read fmsg:write"' in challenge
    told = fixture.sign_in.challenge("invalid_token", 'a "quote" and\nmore').decode()
    assert 'error="invalid_token"' in told
    assert "\n" not in told


async def test_a_person_signs_a_client_in(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        verifier, challenge = pkce()
        page = await http.get("/oauth/authorize", params=question(client_id, challenge))
        assert "Helper" in page.text
        assert "app.example.net" in page.text
        page = await http.post("/oauth/sign-in", data={**fields(page.text), "key": f" {KEY}\n"})
        assert ADDRESS in page.text
        done = await http.post(
            "/oauth/consent", data={**fields(page.text), "rights": "fmsg:write", "decision": "allow"}
        )
        location = done.headers["location"]
        assert location.startswith(f"{REDIRECT}&code=")
        found = query(location)
        assert found["state"] == "st&te"
        assert found["iss"] == ISSUER
        answer = await http.post("/oauth/token", data=redemption(client_id, found["code"], verifier))
    tokens = answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert tokens["token_type"] == "Bearer"
    assert tokens["expires_in"] == 3600
    assert tokens["scope"] == "fmsg:read fmsg:write"
    held = await access(fixture, tokens["access_token"])
    assert held is not None
    assert held.api_key == KEY
    for text in (location, tokens["access_token"], tokens["refresh_token"]):
        assert KEY not in text


async def test_any_replica_serves_any_step(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        verifier, challenge = pkce()
        page = await http.get("/oauth/authorize", params=question(client_id, challenge))
        cookies = http.cookies
    for step, more in (("sign-in", {"key": KEY}), ("consent", {"rights": "fmsg:write", "decision": "allow"})):
        async with fixture.browser(fixture.replica()) as http:
            http.cookies = cookies
            page = await http.post(f"/oauth/{step}", data={**fields(page.text), **more})
    async with fixture.browser(fixture.replica()) as http:
        code = query(page.headers["location"])["code"]
        assert (await http.post("/oauth/token", data=redemption(client_id, code, verifier))).status_code == 200


async def test_a_person_may_give_less_than_was_asked_for(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id, tokens = await signed_in(http, rights="fmsg:read")
        assert tokens["scope"] == "fmsg:read"
        more = await http.post(
            "/oauth/token", data=renewal(client_id, tokens["refresh_token"], scope="fmsg:read fmsg:write")
        )
        assert more.json()["scope"] == "fmsg:read"


async def test_a_client_that_asks_to_read_cannot_be_given_more(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        verifier, challenge = pkce()
        found = await consented(http, question(client_id, challenge, scope="fmsg:read"), rights="fmsg:write")
        answer = await http.post("/oauth/token", data=redemption(client_id, found["code"], verifier))
    assert answer.json()["scope"] == "fmsg:read"


async def test_a_person_may_say_no(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        found = await consented(http, question(client_id, pkce()[1]), decision="deny")
    assert found["error"] == "access_denied"
    assert found["iss"] == ISSUER
    assert "code" not in found


async def test_a_wrong_key_is_told_on_the_page(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        page = await http.get("/oauth/authorize", params=question(client_id, pkce()[1]))
        again = await http.post("/oauth/sign-in", data={**fields(page.text), "key": "fmsgk_d3Jvbmc_d3Jvbmc"})
        assert again.status_code == 403
        assert "does not accept" in again.text
        assert "d3Jvbmc" not in again.text
        assert (await http.post("/oauth/sign-in", data={**fields(again.text), "key": KEY})).status_code == 200


async def test_the_pages_cannot_be_framed_scripted_or_cached(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        page = await http.get("/oauth/authorize", params=question(client_id, pkce()[1]))
        shown = await http.post("/oauth/sign-in", data={**fields(page.text), "key": KEY})
        style = await http.get("/oauth/style.css")
    for answer in (page, shown):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "form-action 'self' https://app.example.net;" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "<script" not in answer.text
        assert "style=" not in answer.text
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "secure" in cookie
        assert "samesite=strict" in cookie
        assert KEY not in answer.text
    assert style.headers["content-type"].startswith("text/css")


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\u202egnirts", "a\nb", "", "x" * 500])
async def test_a_clients_name_is_shown_as_text(fixture: Fixture, name: str) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http, client_name=name))["client_id"]
        page = await http.get("/oauth/authorize", params=question(client_id, pkce()[1]))
    assert "<script" not in page.text
    assert "\u202e" not in page.text
    assert "x" * 81 not in page.text


@pytest.mark.parametrize("lost", ["proof", "request", "cookie"])
@pytest.mark.parametrize("step", ["sign-in", "consent"])
async def test_a_form_that_was_not_served_to_this_visitor_is_refused(fixture: Fixture, lost: str, step: str) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        page = await http.get("/oauth/authorize", params=question(client_id, pkce()[1]))
        more = {"key": KEY}
        if step == "consent":
            page = await http.post("/oauth/sign-in", data={**fields(page.text), "key": KEY})
            more = {"rights": "fmsg:write", "decision": "allow"}
        form = {**fields(page.text), **more}
        if lost == "cookie":
            http.cookies.clear()
        else:
            form[lost] = form[lost][:-4] + "AAAA"
        fixture.looked_up.clear()
        answer = await http.post(f"/oauth/{step}", data=form)
    assert answer.status_code == 400
    assert fixture.looked_up == []
    assert "location" not in answer.headers


async def test_consent_to_one_request_is_none_to_another(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        first = await http.get("/oauth/authorize", params=question(client_id, pkce()[1]))
        shown = await http.post("/oauth/sign-in", data={**fields(first.text), "key": KEY})
        other = await http.get("/oauth/authorize", params=question(client_id, pkce()[1], scope="fmsg:read"))
        form = {
            **fields(other.text),
            "signed": fields(shown.text)["signed"],
            "rights": "fmsg:write",
            "decision": "allow",
        }
        assert (await http.post("/oauth/consent", data=form)).status_code == 400


async def test_a_page_left_open_expires(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        page = await http.get("/oauth/authorize", params=question(client_id, pkce()[1]))
        fixture.clock.now_s += 901
        answer = await http.post("/oauth/sign-in", data={**fields(page.text), "key": KEY})
    assert answer.status_code == 400
    assert "expired" in answer.text


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"scope": "fmsg:read admin"}, "invalid_scope"),
        ({"state": "s" * 3000}, "invalid_request"),
    ],
)
async def test_a_faulty_request_is_told_to_the_client(fixture: Fixture, change: dict[str, str], error: str) -> None:
    here = "http://127.0.0.1:9/callback?kind=fmsg"
    async with fixture.browser() as http:
        client_id = (await registered(http, redirect_uris=[here]))["client_id"]
        asked = {**question(client_id, pkce()[1]), "redirect_uri": here, **change}
        answer = await http.get("/oauth/authorize", params=asked)
    assert answer.status_code == 303
    found = query(answer.headers["location"])
    assert found["error"] == error
    assert found["iss"] == ISSUER
    assert answer.headers["location"].startswith(here)


async def test_a_link_alone_sends_nobody_to_a_site_that_registered_itself(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http, redirect_uris=["https://evil.example/"]))["client_id"]
        asked = {**question(client_id, "short"), "redirect_uri": "https://evil.example/"}
        answer = await http.get("/oauth/authorize", params=asked)
    assert answer.status_code == 400
    assert "location" not in answer.headers
    assert "PKCE is required" in answer.text


@pytest.mark.parametrize("host", ["a;frame-ancestors", "a,b", "*", "a'b"])
async def test_a_redirect_uri_cannot_change_what_a_page_may_do(fixture: Fixture, host: str) -> None:
    async with fixture.browser() as http:
        asked = {"redirect_uris": [f"https://{host}/"], "token_endpoint_auth_method": "none"}
        assert (await http.post("/oauth/register", json=asked)).status_code == 400


@pytest.mark.parametrize("visitor", ["known", "a" * 4000, "x; path=/"])
async def test_a_visitor_is_named_by_the_server(fixture: Fixture, visitor: str) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        cookie = {"cookie": f"fmsg-sign-in={visitor}"}
        answer = await http.get("/oauth/authorize", params=question(client_id, pkce()[1]), headers=cookie)
    assert answer.status_code == 200
    assert f"fmsg-sign-in={visitor}" not in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"a&" * 32_000, "application/x-www-form-urlencoded"),
        (b"&".join(b"%x=1" % n for n in range(100)), "application/x-www-form-urlencoded"),
        (
            b'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\nx\r\n--b--\r\n',
            "multipart/form-data; boundary=b",
        ),
    ],
)
async def test_a_form_that_takes_long_to_read_is_not_read(fixture: Fixture, body: bytes, kind: str) -> None:
    async with fixture.browser() as http:
        for path in ("/oauth/token", "/oauth/revoke"):
            answer = await http.post(path, content=body, headers={"content-type": kind})
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    "change",
    [
        {"client_id": "fmsgc_AAAA"},
        {"client_id": "guess"},
        {"client_id": ""},
        {"redirect_uri": "https://evil.example/callback"},
        {"redirect_uri": REDIRECT + "&more=1"},
        {"redirect_uri": REDIRECT.replace("https", "http")},
    ],
)
async def test_nobody_is_sent_where_the_client_did_not_register(fixture: Fixture, change: dict[str, str]) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        answer = await http.get("/oauth/authorize", params={**question(client_id, pkce()[1]), **change})
    assert answer.status_code == 400
    assert "location" not in answer.headers
    assert answer.headers["content-type"].startswith("text/html")


async def test_a_parameter_given_twice_is_refused(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id = (await registered(http))["client_id"]
        asked = urlencode([*question(client_id, pkce()[1]).items(), ("scope", "fmsg:read"), ("scope", "fmsg:write")])
        assert (await http.get(f"/oauth/authorize?{asked}")).status_code == 400


async def code_for(fixture: Fixture, http: Any) -> tuple[str, str, str]:
    """A client's id, its code and its verifier."""
    client_id = (await registered(http))["client_id"]
    verifier, challenge = pkce()
    return client_id, (await consented(http, question(client_id, challenge)))["code"], verifier


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"code_verifier": "w" * 50}, 400, "invalid_grant"),
        ({"redirect_uri": "https://app.example.net/other"}, 400, "invalid_grant"),
        ({"redirect_uri": ""}, 400, "invalid_grant"),
        ({"resource": "https://other.example/mcp"}, 400, "invalid_grant"),
        ({"code": "made-up"}, 400, "invalid_grant"),
        ({"code": ""}, 400, "invalid_request"),
        ({"code_verifier": ""}, 400, "invalid_request"),
        ({"client_id": "fmsgc_AAAA"}, 401, "invalid_client"),
        ({"client_id": ""}, 401, "invalid_client"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"grant_type": ""}, 400, "unsupported_grant_type"),
    ],
)
async def test_a_code_is_redeemed_as_it_was_asked_for_or_not(
    fixture: Fixture, change: dict[str, str], status: int, error: str
) -> None:
    async with fixture.browser() as http:
        client_id, code, verifier = await code_for(fixture, http)
        answer = await http.post("/oauth/token", data={**redemption(client_id, code, verifier), **change})
    assert answer.status_code == status
    assert answer.json()["error"] == error
    assert KEY not in answer.text


async def test_a_code_of_another_client_is_refused(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        _client_id, code, verifier = await code_for(fixture, http)
        other = (await registered(http, client_name="Other"))["client_id"]
        answer = await http.post("/oauth/token", data=redemption(other, code, verifier))
    assert answer.json()["error"] == "invalid_grant"


async def test_a_code_used_twice_ends_what_it_gave(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id, code, verifier = await code_for(fixture, http)
        first = (await http.post("/oauth/token", data=redemption(client_id, code, verifier))).json()
        again = await http.post("/oauth/token", data=redemption(client_id, code, verifier))
        assert again.json()["error"] == "invalid_grant"
        assert await access(fixture, first["access_token"]) is None
        renewed = await http.post("/oauth/token", data=renewal(client_id, first["refresh_token"]))
        assert renewed.json()["error"] == "invalid_grant"


async def test_a_code_lives_a_minute(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id, code, verifier = await code_for(fixture, http)
        fixture.clock.now_s += 61
        answer = await http.post("/oauth/token", data=redemption(client_id, code, verifier))
    assert answer.json()["error"] == "invalid_grant"


async def test_a_refresh_token_is_good_once(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id, tokens = await signed_in(http)
        second = (await http.post("/oauth/token", data=renewal(client_id, tokens["refresh_token"]))).json()
        assert await access(fixture, second["access_token"]) is not None
        reused = await http.post("/oauth/token", data=renewal(client_id, tokens["refresh_token"]))
        assert reused.json()["error"] == "invalid_grant"
        # Somebody else has the token: everything that goes back to the same consent ends.
        assert await access(fixture, second["access_token"]) is None
        assert (await http.post("/oauth/token", data=renewal(client_id, second["refresh_token"]))).status_code == 400


async def test_tokens_expire(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        client_id, tokens = await signed_in(http)
        fixture.clock.now_s += 3601
        assert await access(fixture, tokens["access_token"]) is None
        fixture.clock.now_s += 30 * 86_400
        answer = await http.post("/oauth/token", data=renewal(client_id, tokens["refresh_token"]))
    assert answer.json()["error"] == "invalid_grant"


@pytest.mark.parametrize("change", [{"resource": "https://other.example"}, {"scope": "admin"}])
async def test_a_refresh_that_asks_for_something_else_costs_nothing(fixture: Fixture, change: dict[str, str]) -> None:
    async with fixture.browser() as http:
        client_id, tokens = await signed_in(http)
        refused = await http.post("/oauth/token", data=renewal(client_id, tokens["refresh_token"], **change))
        assert refused.json()["error"] in ("invalid_target", "invalid_scope")
        assert (await http.post("/oauth/token", data=renewal(client_id, tokens["refresh_token"]))).status_code == 200


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
async def test_revoking_either_token_ends_both(fixture: Fixture, which: str) -> None:
    async with fixture.browser() as http:
        client_id, tokens = await signed_in(http)
        answer = await http.post("/oauth/revoke", data={"token": tokens[which], "client_id": client_id})
        assert answer.status_code == 200
        assert await access(fixture, tokens["access_token"]) is None
        assert (await http.post("/oauth/token", data=renewal(client_id, tokens["refresh_token"]))).status_code == 400


async def test_a_revoked_token_ends_within_a_minute_where_it_was_in_use(fixture: Fixture) -> None:
    other = fixture.replica()
    async with fixture.browser() as http:
        client_id, tokens = await signed_in(http)
        assert await other.access(tokens["access_token"]) is not None
        await http.post("/oauth/revoke", data={"token": tokens["access_token"], "client_id": client_id})
    fixture.clock.now_s += 61
    assert await other.access(tokens["access_token"]) is None


async def test_nobody_revokes_anothers_token(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        _client_id, tokens = await signed_in(http)
        other = (await registered(http, client_name="Other"))["client_id"]
        answer = await http.post("/oauth/revoke", data={"token": tokens["access_token"], "client_id": other})
        assert answer.status_code == 200
        assert (await http.post("/oauth/revoke", data={"token": "nothing", "client_id": other})).status_code == 200
        assert (await http.post("/oauth/revoke", data={"client_id": other})).json()["error"] == "invalid_request"
    assert await access(fixture, tokens["access_token"]) is not None


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
async def test_a_client_with_a_secret_has_to_show_it(fixture: Fixture, method: str) -> None:
    async with fixture.browser() as http:
        client = await registered(http, token_endpoint_auth_method=method)
        verifier, challenge = pkce()
        code = (await consented(http, question(client["client_id"], challenge)))["code"]
        form = redemption(client["client_id"], code, verifier)
        assert (await http.post("/oauth/token", data=form)).status_code == 401
        headers = {}
        if method == "client_secret_post":
            form["client_secret"] = client["client_secret"]
        else:
            pair = f"{client['client_id']}:{client['client_secret']}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        assert (await http.post("/oauth/token", data=form, headers=headers)).status_code == 200


async def test_tokens_of_another_server_or_key_are_none(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        _client_id, tokens = await signed_in(http)
    token = tokens["access_token"]
    assert await fixture.replica(issuer="https://mcp.other.example").access(token) is None
    assert await fixture.replica(seal_key=SealKeys.generate()).access(token) is None
    assert await fixture.replica(seal_key=f"{SealKeys.generate()},{SEAL_KEY}").access(token) is not None
    assert await fixture.sign_in.access(token[:-3] + "AAA") is None
    assert await fixture.sign_in.access(f"fmsgo_{tokens['refresh_token']}") is None
    assert await fixture.sign_in.access("fmsgo_") is None
    assert await fixture.sign_in.access(f"fmsgo_{'A' * 100_000}") is None


async def test_a_store_that_is_away_issues_nothing_and_ends_nothing(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fixture.browser() as http:
        client_id, tokens = await signed_in(http)
        _client, code, verifier = await code_for(fixture, http)

        async def away(*given: Any, **more: Any) -> Any:
            raise LedgerUnavailable("connection refused")

        with monkeypatch.context() as patched:
            patched.setattr(fixture.documents, "load", away)
            patched.setattr(fixture.documents, "store", away)
            for form in (renewal(client_id, tokens["refresh_token"]), redemption(_client, code, verifier)):
                answer = await http.post("/oauth/token", data=form)
                assert answer.status_code == 503
                assert answer.headers["retry-after"]
            found = await consented(http, question(client_id, pkce()[1]))
            assert found["error"] == "temporarily_unavailable"
            # The host still decides about the key inside.
            assert await access(fixture, tokens["access_token"]) is not None
        assert (await http.post("/oauth/token", data=renewal(client_id, tokens["refresh_token"]))).status_code == 200


async def test_a_thousand_registrations_leave_nothing_behind(fixture: Fixture) -> None:
    async with fixture.browser() as http:
        for number in range(1000):
            await registered(http, client_name=f"OAuthClient {number}")
    assert not fixture.documents._kept


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'"x"',
        b"\xff\xfe",
        b'{"redirect_uris": "x"}',
        b"[" * 30_000,
        b'{"redirect_uris": [' + b"9" * 9000,
    ],
)
async def test_garbage_gets_the_rfcs_error(fixture: Fixture, body: bytes) -> None:
    async with fixture.browser() as http:
        for path in ("/oauth/register", "/oauth/token", "/oauth/revoke", "/oauth/sign-in", "/oauth/consent"):
            for kind in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
                answer = await http.post(path, content=body, headers={"content-type": kind})
                assert 400 <= answer.status_code < 500, (path, kind)
