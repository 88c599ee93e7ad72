"""What goes, what stays, and how long it takes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import random
import time
import urllib.parse
import uuid
from collections.abc import Generator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmsg.redact
from fmsg.credentials import MARKERS, MAX_DECISION_CHARS
from fmsg.pieces import at_once, in_pieces
from fmsg.redact import PIECE_CHARS, _find, _redacting, quoted, redact, redact_long, scrub, scrub_beginning, suspicious
from tests.fmsg.fakehost import KEY, jwt

FMSG = "[redacted fmsg key]"

material = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_.~", min_size=1, max_size=60)
outside = st.text(st.characters(exclude_characters="+/=-_.~%\\&", exclude_categories=["L", "N", "Cs"]), max_size=40)


@given(before=outside, material=material, after=outside)
def test_a_key_goes_whole_and_nothing_else_does(before: str, material: str, after: str) -> None:
    assert redact(f"{before}fmsgk_{material}{after}") == (f"{before}{FMSG}{after}", 1)


@given(st.lists(material, min_size=1, max_size=5))
def test_every_key_is_counted(materials: list[str]) -> None:
    text = " and ".join(f"fmsgk_{one}" for one in materials)
    assert redact(text) == (" and ".join([FMSG] * len(materials)), len(materials))


@given(st.text(max_size=300))
def test_redacting_again_changes_nothing(text: str) -> None:
    once = scrub(f"{text} {KEY} {text}")
    assert redact(once) == (once, 0)
    assert KEY not in once


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="-:_.="), max_size=300))
def test_a_text_without_any_token_s_punctuation_stays(text: str) -> None:
    assert text.startswith(("AKIA", "ASIA", "AIza", "dapi", "SK")) or redact(text) == (text, 0)


@pytest.mark.parametrize(
    "encode",
    [
        str,
        urllib.parse.quote,
        urllib.parse.quote_plus,
        json.dumps,
        lambda key: json.dumps(key).replace("/", "\\/").replace("+", "\\u002b").replace("=", "\\u003d"),
        html.escape,
        lambda key: key.replace("+", "&#43;").replace("/", "&#x2F;").replace("=", "&#61;"),
    ],
    ids=["plain", "percent", "percent-plus", "json", "json-escaped", "html", "html-escaped"],
)
def test_no_half_of_a_key_survives_in_any_encoding(encode: type[str]) -> None:
    text = scrub(f"https://h.test/?key={encode(KEY)}")
    assert not any(part in text for part in ("5dQ1kZ", "aB3", "cD", "eF9gHi", "345678"))


def test_a_key_glued_to_other_words_goes_too() -> None:
    assert redact(f"API_KEY={KEY},x{KEY}")[1] == 2


@pytest.mark.parametrize(
    "text", ["keys begin with fmsgk_", "`fmsgk_…`", "fmsgk_<key id>_<secret>", "fmsgk", "FMSG_API_KEY"]
)
def test_talking_about_keys_is_no_key(text: str) -> None:
    assert redact(text) == (text, 0)


@pytest.mark.parametrize(
    "token",
    [
        jwt(),
        jwt().rsplit(".", 1)[0] + ".",
        jwt().rsplit(".", 1)[0],
        "eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.OKOawDo13gRp2ojaHV7LFp.48V1_ALb6US04U3b.5eym8TW_c8SuK0ltJ3.XFBoMYUZod",
        "eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0..48V1_ALb6US04U3b.5eym8TW_c8SuK0ltJ3.XFBoMYUZodl",
    ],
    ids=["signed", "unsigned", "cut", "encrypted", "encrypted-direct"],
)
@pytest.mark.parametrize("frame", ["{}", "Bearer {}", '"access_token":"{}"', "token={}&x=1", "x_{},"])
def test_a_jwt_goes(token: str, frame: str) -> None:
    text, count = redact(frame.format(token))
    assert count == 1
    assert "[redacted JWT]" in text
    assert not any(part in text for part in token.split(".") if part)


def _pem(kind: str, body: str) -> str:
    lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


BODY = base64.b64encode(random.Random(1).randbytes(600)).decode()


@pytest.mark.parametrize(
    "kind",
    [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ],
)
def test_a_private_key_block_goes_whole(kind: str) -> None:
    assert redact(f"before\n{_pem(kind, BODY)}\nafter") == ("before\n[redacted private key]\nafter", 1)


def test_a_private_key_with_headers_goes_whole() -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n" + BODY
    assert redact(f"{block}\n-----END RSA PRIVATE KEY-----") == ("[redacted private key]", 1)


def test_a_private_key_in_json_goes_whole() -> None:
    assert redact(json.dumps({"key": _pem("PRIVATE KEY", BODY)})) == ('{"key": "[redacted private key]"}', 1)


def test_a_private_key_that_is_cut_off_goes_as_far_as_it_goes() -> None:
    text = scrub(f"{_pem('PRIVATE KEY', BODY)[:500]}\n")
    assert text == "[redacted private key]\n"


def test_two_private_keys_are_two() -> None:
    assert redact(f"{_pem('PRIVATE KEY', BODY)}\n{_pem('EC PRIVATE KEY', BODY)}")[1] == 2


def test_certificates_public_keys_and_the_bare_marker_stay() -> None:
    for text in (
        _pem("CERTIFICATE", BODY),
        _pem("PUBLIC KEY", BODY),
        "a file that begins with -----BEGIN PRIVATE KEY----- is a private key",
        "-----BEGIN PRIVATE KEY-----",
    ):
        assert redact(text) == (text, 0)


def test_a_telegram_token_goes_with_its_bot_id() -> None:
    secret = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1"
    assert redact(f"https://api.telegram.org/bot123456789:{secret}/getMe") == (
        "https://api.telegram.org/bot[redacted Telegram token]/getMe",
        1,
    )
    assert redact(f"1234567:{secret} 12345678901:{secret} x:{secret}")[1] == 0


def test_one_credential_inside_another_is_one() -> None:
    assert redact(f"fmsgk_{'a' * 8}.{jwt()}") == (FMSG, 1)


ORDINARY = [
    "Thursday at noon? I'll bring the sketches; see the glossary in section 4.",
    "The single globe glides; skip the task, ask Risk-averse people, sk-learn and disk-based storage.",
    "Ein Satz mit Umlauten: Größe, Straße, Übermut. 日本語の文章です。 Привет, мир!",
    "👩‍👩‍👧 ok 👍🏽",
    hashlib.sha256(b"x").hexdigest(),
    hashlib.sha512(b"x").hexdigest(),
    hashlib.md5(b"x", usedforsecurity=False).hexdigest(),
    "sha256:" + hashlib.sha256(b"y").hexdigest(),
    "commit 9a35d58e0b2f4c1d7a6e5f4c3b2a1908f7e6d5c4",
    str(uuid.UUID(int=2**127 + 12345)),
    "https://example.com/a/b?x=1&y=%20z#frag",
    "https://github.com/python/cpython/blob/main/Lib/asyncio/timeouts.py#L12-L40",
    "https://user.example.com:8443/~alice/index.html?session=abc-def_ghi",
    "mail alice@example.com or @alice@example.com",
    "arn:aws:s3:::bucket/key-with-dashes and key-value stores",
    "data:image/png;base64," + base64.b64encode(random.Random(2).randbytes(50_000)).decode(),
    base64.urlsafe_b64encode(random.Random(3).randbytes(50_000)).decode(),
    '{"id": "9223372036854775807", "time": 1788484503.512}',
    "def f(x):\n    return x.hf_model(sk_test, npm_config, xoxo)\n",
    "pk_live_aB3dE6gH9jK2mN5pQ8sT1vW4 is published on purpose",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ" + "x" * 30 + " me@host",
    "eyJ is how base64 of JSON begins: eyJhIjoxfQ==",
    "version 1.2.3-rc.1+build.5, SG.1 and SK-II",
    "1234567890:AB is 10:AM",
]


@pytest.mark.parametrize("text", ORDINARY, ids=[text[:30] for text in ORDINARY])
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == (text, 0)


HOSTILE = {
    "jwt heads": "eyJ" * 100_000,
    "jwt dots": "eyJ." * 75_000,
    "jwt long heads": "eyJaaaaaaaaaa." * 20_000,
    "one long head": "eyJ" + "a" * 300_000,
    "dots": "." * 300_000,
    "key marks": "fmsgk" * 60_000,
    "key percents": "fmsgk_" + "%2" * 150_000,
    "key backslashes": "fmsgk_a" + "\\" * 300_000,
    "pem heads": "-----BEGIN PRIVATE KEY-----" * 11_000,
    "pem dashes": "-" * 300_000,
    "pem blanks": "-----BEGIN PRIVATE KEY-----" + "\n" * 300_000,
    "pem half lines": ("-----BEGIN PRIVATE KEY-----" + "a" * 15 + "\n") * 7_000,
    "pem ends": "-----BEGIN PRIVATE KEY-----" + "-----END " * 33_000,
    "telegram": "123456789:AA" * 25_000,
    "prefixes": "ghp_sk-ant-sk-proj-xoxb-AKIA" * 10_000,
    "aws": "aws_secret_access_key        " * 10_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_takes_time_in_proportion_to_its_length(text: str) -> None:
    """A third of a megabyte takes a fraction of a second; in quadratic time it would be minutes."""
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 3.0


UNSEEN = ["\u00ad", "\u200b", "\u200c\u200d", "\u2060", "\ufeff"]


@pytest.mark.parametrize("where", [2, 5, 6, 8, 20])
@pytest.mark.parametrize("unseen", UNSEEN)
def test_a_key_with_characters_in_it_that_nobody_sees_goes_whole(unseen: str, where: int) -> None:
    """What is copied off a web page holds them; half a key was left standing behind the first."""
    text = f"a{unseen}b {KEY[:where]}{unseen}{KEY[where:]}{unseen} c{unseen}"
    assert suspicious(text)
    assert redact(text) == (f"a{unseen}b {FMSG}{unseen} c{unseen}", 1)


def test_other_credentials_with_unseen_characters_go_too_and_a_joined_word_hides_none() -> None:
    token = "ghp_" + "a1" * 18
    assert redact(f"x {token[:3]}\u200b{token[3:]}.") == ("x [redacted GitHub token].", 1)
    assert redact(f"x\u200b{token}") == ("x\u200b[redacted GitHub token]", 1)


@pytest.mark.parametrize("underscore", ["_", "\\_", "%5F", "%5f", "&#95;", "&#x5f;", "&#X5F;", "\\u005f"])
def test_a_key_goes_however_its_underscore_is_escaped(underscore: str) -> None:
    assert redact(f"it is {KEY.replace('_', underscore)}.") == (f"it is {FMSG}", 1)


def test_a_quoted_value_is_cut_after_it_was_scrubbed() -> None:
    assert quoted("x" * 70 + KEY) == repr("x" * 70 + "[redact...")
    assert quoted("short") == "'short'"
    assert len(quoted("y" * 1000, 40)) == 42


@pytest.mark.parametrize("around", ["plain words ", "_-" * 20, ""], ids=["sparse", "dense", "alone"])
@pytest.mark.parametrize("marker", MARKERS)
def test_every_marker_makes_a_text_suspicious_also_within_json(marker: str, around: str) -> None:
    assert suspicious(around + marker + around)
    assert suspicious(msgspec.json.encode({"a": ['"', f"{around}{marker}{around}"]}).decode())


@pytest.mark.parametrize("marker", [min(MARKERS, key=len), max(MARKERS, key=len)])
def test_a_marker_is_found_wherever_it_stands_in_a_long_text(marker: str) -> None:
    for before in range(4096 - len(marker) - 1, 4096 + 2):
        assert suspicious("é" + "x" * before + marker + "x" * 5000)


def test_half_a_surrogate_pair_hides_no_key_and_is_no_trouble() -> None:
    assert not suspicious("half \ud83d a pair")
    assert redact(f"\ud83d{KEY} \ud83d") == (f"\ud83d{FMSG} \ud83d", 1)


def test_ordinary_words_are_not_suspicious() -> None:
    assert not suspicious("a no_reply of 2026-11-30, well-known and not_a_secret, an id 2502, an address @ann@a.test")


SPOKEN = st.sampled_from(
    [
        *("fmsgk_", "fmsgk", "eyJ", "eyJhbGciOi", ".", " ", "\n", "x", "é", "\u200b", "sk-", "ghp_", "SK", "%41"),
        *("-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqh", "-----END PRIVATE KEY-----", "a1" * 20, "\\u0041"),
        *("123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1", "aws_secret_access_key = ", "AIza" + "b" * 33, jwt(), KEY),
    ]
)


@given(parts=st.lists(SPOKEN, max_size=30), piece_chars=st.integers(min_value=40, max_value=200))
def test_a_text_in_pieces_gives_what_the_whole_text_gives(parts: list[str], piece_chars: int) -> None:
    text = "".join(parts)
    assert at_once(_redacting(text, piece_chars)) == redact(text)


@pytest.mark.parametrize("kind", [0, 1, -1, 40, 200])
def test_a_key_across_a_border_goes_whole(kind: int) -> None:
    text = "w " * (PIECE_CHARS // 2)
    text = f"{text[: PIECE_CHARS - kind]} {KEY} {text}"
    assert redact(text) == (text.replace(KEY, FMSG), 1)


@pytest.mark.parametrize("unit", ["a", "%41", "&#43;", "\\u002b"])
def test_a_key_longer_than_several_pieces_goes_whole(unit: str) -> None:
    assert redact(f"x fmsgk_{unit * PIECE_CHARS}!") == (f"x {FMSG}!", 1)


@pytest.mark.parametrize("text", ["eyJ.", "SK", "fmsgk_a ", "sk-", "ghp_", ":AA", "-----BEGIN PRIVATE KEY-----", "eyJ",
    "eyJ" + "a" * 50_000, "123456789", "\u200b", "fmsgk_a\u200b ", "plain words ", "-"])  # fmt: skip
def test_no_step_reads_more_than_a_piece_and_what_a_decision_needs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The means that bounds how long the event loop is held: what one call into C may read, whatever the text."""
    read: list[int] = []

    def find(text: str, position: int, end: int) -> object:
        read.append(end - position)
        return _find(text, position, end)

    monkeypatch.setattr(fmsg.redact, "_find", find)
    whole = (text * (4 * PIECE_CHARS // len(text) + 1))[: 4 * PIECE_CHARS]
    steps = _redacting(whole)
    assert sum(1 for _ in steps) >= 4
    assert max(read) <= PIECE_CHARS + MAX_DECISION_CHARS


async def test_a_long_text_lets_others_work_in_between() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    text = f"words {KEY} " * 20_000
    async with asyncio.TaskGroup() as group:
        counting = group.create_task(others())
        assert await redact_long(text) == redact(text)
        assert await redact_long("short") == ("short", 0)
        counting.cancel()
    assert turns >= len(text) // PIECE_CHARS


async def test_of_several_long_texts_one_step_is_done_per_turn_of_the_loop() -> None:
    order: list[str] = []

    def work(name: str) -> Generator[None, None, str]:
        for _ in range(3):
            order.append(name)
            yield
        return name

    assert list(await asyncio.gather(in_pieces(work("a")), in_pieces(work("b")))) == ["a", "b"]
    assert order == ["a", "b"] * 3


def test_the_beginning_of_a_text_is_scrubbed_without_reading_the_rest() -> None:
    assert scrub_beginning("x" * 70 + KEY + "y" * 10_000_000, 100) == "x" * 70 + FMSG
    assert scrub_beginning("x" * 99 + " " + KEY + "y", 100) == "x" * 99 + " "
    assert scrub_beginning(KEY, 10) == FMSG
    assert quoted(KEY + " " * 10_000_000) == repr(FMSG + " " * (80 - len(KEY)) + "...")
