"""The pages a person meets when they sign in: plain forms that work without JavaScript, with a keyboard, on a phone."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from urllib.parse import urlsplit

from mcp_front.oauth.sealed import READ, WRITE, AuthorizationRequest

STYLE_PATH = "/oauth/style.css"
SIGN_IN_PATH = "/oauth/sign-in"
CONSENT_PATH = "/oauth/consent"


def sign_in(
    asked: AuthorizationRequest, hidden: Mapping[str, str], *, verified_host: str | None, problem: str | None = None
) -> str:
    """Asks for the API key, and says who wants it used."""
    complaint = f'<p class="error" role="alert" id="problem">{escape(problem)}</p>' if problem else ""
    described = ' aria-describedby="problem"' if problem else ""
    return _page(
        "Sign in to fmsg",
        f"""\
<p>{_who(asked, verified_host)} asks to use an fmsg address of yours. Prove the address with its API key. The key is
checked with your fmsg host; {escape(asked.client_name)} never gets to see it.</p>
{complaint}
<form method="post" action="{SIGN_IN_PATH}">
{_hidden(hidden)}
<label for="key">fmsg API key</label>
<input id="key" name="key" type="password" required autofocus autocomplete="current-password" spellcheck="false"
 autocapitalize="none" placeholder="fmsgk_…" maxlength="512"{described}>
<div class="actions"><button type="submit">Continue</button></div>
</form>
<p class="muted">You did not ask for this? Close this page: nothing happens without your key.</p>
""",
    )


def consent(asked: AuthorizationRequest, address: str, hidden: Mapping[str, str], *, verified_host: str | None) -> str:
    """Asks whether the client may act as the address, and how far."""
    may_write = WRITE in asked.scopes
    write = (
        f'<label><input type="radio" name="rights" value="{WRITE}" checked> Read, wait, and send as this address. '
        "What is sent cannot be recalled.</label>"
        if may_write
        else ""
    )
    return _page(
        "Allow access?",
        f"""\
<p>{_who(asked, verified_host)} wants to act as</p>
<p class="who">{escape(address)}</p>
<form method="post" action="{CONSENT_PATH}">
{_hidden(hidden)}
<fieldset><legend>It may</legend>
{write}
<label><input type="radio" name="rights" value="{READ}"{"" if may_write else " checked"}> Only read and wait</label>
</fieldset>
<div class="actions">
<button type="submit" name="decision" value="allow">Allow</button>
<button type="submit" name="decision" value="deny" class="quiet" formnovalidate>Deny</button>
</div>
</form>
<p class="muted">To end the access later, disconnect the server in {escape(asked.client_name)}, or revoke the API key at
your fmsg host.</p>
""",
    )


def trouble(title: str, text: str) -> str:
    """Says what went wrong, where nobody can be sent back to the client."""
    return _page(title, f'<p>{escape(text)}</p>\n<p class="muted">You can close this page.</p>\n')


def destination(redirect_uri: str) -> str:
    """Where a redirect leads, as a person reads it."""
    parts = urlsplit(redirect_uri)
    if parts.scheme not in ("https", "http"):
        return f"the {parts.scheme} app on this device"
    if parts.scheme == "http":
        return "a program on this device"
    return parts.hostname or redirect_uri


def _who(asked: AuthorizationRequest, verified_host: str | None) -> str:
    claims = f"<strong>{escape(asked.client_name)}</strong>"
    back = f"You return to <strong>{escape(destination(asked.redirect_uri))}</strong>."
    named = f" (known to {escape(verified_host)})" if verified_host else " (a name it gave itself)"
    return f"{claims}{named}. {back} It"


def _hidden(fields: Mapping[str, str]) -> str:
    return "\n".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields.items()
    )


def _page(title: str, body: str) -> str:
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{escape(title)}</title>
<link rel="stylesheet" href="{STYLE_PATH}">
</head>
<body>
<main>
<div class="card">
<h1>{escape(title)}</h1>
{body}</div>
</main>
</body>
</html>
"""
