"""MCP authorization (2025-06-18, 2025-11-25, 2026-07-28) and the RFCs it names: what a server has to do."""

from __future__ import annotations

from tests.contract.requirement import Level
from tests.contract.requirement import Requirement as R

_APP = "tests/mcp_front/oauth/test_app.py::test_"
_CLIENTS = "tests/mcp_front/oauth/test_clients.py::test_"
_WHOLE = "tests/contract/test_sign_in.py::test_"


def _r(key: str, section: str, level: Level, text: str, *proofs: str) -> R:
    return R(f"authorization.{key}", section, level, text, elsewhere=proofs)


AUTHORIZATION: tuple[R, ...] = (
    _r(
        "resource_metadata",
        "Authorization Server Location",
        "MUST",
        "Protected resource metadata (RFC 9728) names the authorization server.",
        _APP + "the_resource_says_who_issues_its_tokens",
    ),
    _r(
        "challenge",
        "Protected Resource Metadata Discovery",
        "MUST",
        "A 401 names the metadata in WWW-Authenticate, and the scopes to ask for.",
        _APP + "the_challenge_leads_to_the_metadata",
        _WHOLE + "a_request_without_a_token_is_told_where_to_sign_in",
    ),
    _r(
        "server_metadata",
        "Authorization Server Metadata Discovery",
        "MUST",
        "The authorization server publishes RFC 8414 metadata.",
        _APP + "the_server_says_what_it_takes",
    ),
    _r(
        "documents",
        "Client ID Metadata Documents",
        "SHOULD",
        "A client id may be the URL of a metadata document, and the metadata says so.",
        _CLIENTS + "a_client_whose_id_is_its_document_signs_in",
    ),
    _r(
        "documents.checked",
        "Client ID Metadata Documents",
        "MUST",
        "The document's client_id is its URL, and the redirect URI is one of the document's.",
        _CLIENTS + "a_document_that_is_none_is_refused",
    ),
    _r(
        "documents.cached",
        "Client ID Metadata Documents",
        "SHOULD",
        "Documents are cached as their HTTP headers say.",
        _CLIENTS + "a_document_is_believed_as_long_as_it_says",
        _CLIENTS + "caching_follows_the_headers",
    ),
    _r(
        "documents.ssrf",
        "Client ID Metadata Document Security",
        "MUST",
        "Fetching a document never reaches into the server's own network.",
        _CLIENTS + "no_other_url_is_ever_fetched",
        _CLIENTS + "a_name_that_leads_inside_is_not_followed",
    ),
    _r(
        "documents.shown",
        "Client ID Metadata Document Security",
        "MUST",
        "The consent page shows where the person is sent, and which host answers for the client's name.",
        _CLIENTS + "a_client_whose_id_is_its_document_signs_in",
        _APP + "a_person_signs_a_client_in",
    ),
    _r(
        "registration",
        "Dynamic Client Registration",
        "MAY",
        "Clients register themselves (RFC 7591); faulty metadata gets the RFC's error.",
        _APP + "a_person_signs_a_client_in",
        _CLIENTS + "redirects_that_are_refused",
    ),
    _r(
        "pkce",
        "Authorization Code Protection",
        "MUST",
        "PKCE with S256 is required, verified, and announced in the metadata.",
        _APP + "a_faulty_request_is_told_to_the_client",
        _APP + "a_code_is_redeemed_as_it_was_asked_for_or_not",
        _APP + "the_server_says_what_it_takes",
    ),
    _r(
        "redirects",
        "Communication Security",
        "MUST",
        "Redirect URIs are HTTPS or loopback, and match a registered one exactly, but for the port on loopback.",
        _CLIENTS + "redirects_that_are_refused",
        _CLIENTS + "only_the_port_of_loopback_is_free",
        _APP + "nobody_is_sent_where_the_client_did_not_register",
    ),
    _r(
        "resource",
        "Resource Parameter Implementation",
        "MUST",
        "A resource indicator (RFC 8707) for another server is refused, at authorization and at the token endpoint.",
        _APP + "a_faulty_request_is_told_to_the_client",
        _APP + "a_code_is_redeemed_as_it_was_asked_for_or_not",
        _APP + "a_refresh_that_asks_for_something_else_costs_nothing",
    ),
    _r(
        "audience",
        "Token Handling",
        "MUST",
        "Only tokens issued for this server are accepted; any other gets 401.",
        _APP + "tokens_of_another_server_or_key_are_none",
        _WHOLE + "a_request_without_a_token_is_told_where_to_sign_in",
    ),
    _r(
        "header",
        "Token Requirements",
        "MUST",
        "Each request carries its token in the Authorization header, never in a URL.",
        _WHOLE + "an_assistant_is_signed_in_and_acts",
    ),
    _r(
        "passthrough",
        "Access Token Privilege Restriction",
        "MUST",
        "The token is not passed upstream: the host sees its own.",
        _WHOLE + "an_assistant_is_signed_in_and_acts",
        _APP + "a_person_signs_a_client_in",
    ),
    _r(
        "scopes",
        "Scope Challenge Handling",
        "SHOULD",
        "A call beyond the grant gets 403 insufficient_scope with the scopes that are needed.",
        _WHOLE + "a_call_beyond_the_grant_is_answered_with_what_to_ask_for",
    ),
    _r(
        "issuer",
        "Authorization Response (RFC 9207)",
        "MUST",
        "Answers and errors at the redirect URI carry iss, and the metadata says so.",
        _APP + "a_person_signs_a_client_in",
        _APP + "a_faulty_request_is_told_to_the_client",
        _APP + "a_person_may_say_no",
    ),
    _r(
        "state",
        "Open Redirection",
        "MUST",
        "State comes back as it was given; nobody is redirected anywhere unregistered.",
        _APP + "a_person_signs_a_client_in",
        _APP + "nobody_is_sent_where_the_client_did_not_register",
    ),
    _r(
        "short_lived",
        "Token Theft",
        "SHOULD",
        "Access tokens are short-lived.",
        _APP + "tokens_expire",
    ),
    _r(
        "rotation",
        "Token Theft",
        "MUST",
        "Refresh tokens of public clients are rotated, and one used twice ends its family.",
        _APP + "a_refresh_token_is_good_once",
    ),
    _r(
        "codes_once",
        "OAuth 2.1, 4.1.3",
        "MUST",
        "A code is good once and for its client; used again it ends what it gave.",
        _APP + "a_code_used_twice_ends_what_it_gave",
        _APP + "a_code_of_another_client_is_refused",
        _APP + "a_code_lives_a_minute",
    ),
    _r(
        "consent",
        "Confused Deputy Problem",
        "MUST",
        "Each client needs the person's own consent; the form cannot be framed, guessed or replayed.",
        _APP + "a_form_that_was_not_served_to_this_visitor_is_refused",
        _APP + "consent_to_one_request_is_none_to_another",
        _APP + "the_pages_cannot_be_framed_scripted_or_cached",
    ),
    _r(
        "revocation",
        "RFC 7009",
        "MAY",
        "A client can revoke its tokens, and nobody else's.",
        _APP + "revoking_either_token_ends_both",
        _APP + "nobody_revokes_anothers_token",
    ),
    _r(
        "client_authentication",
        "OAuth 2.1, 2.4",
        "MUST",
        "A client with a secret has to show it.",
        _APP + "a_client_with_a_secret_has_to_show_it",
    ),
    _r(
        "upstream_revocation",
        "FMSG-003, Token exchange",
        "MUST",
        "What the host revokes ends the sign-in as well.",
        _WHOLE + "what_the_host_revokes_ends_the_sign_in",
    ),
)
