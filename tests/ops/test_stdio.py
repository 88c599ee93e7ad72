"""`fmsg-mcpd stdio` as an agent's host starts it: a process, its pipes, and nothing but the protocol on its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.processes

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def converse(*messages: dict[str, Any], **env: str) -> tuple[dict[Any, dict[str, Any]], str, int]:
    """Send messages, close the pipe; the answers by id, standard error, and the exit status."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FMSG_")}
    done = subprocess.run(
        [sys.executable, "-W", "always", "-m", "fmsg_mcpd", "stdio"],
        input="".join(json.dumps(message) + "\n" for message in messages),
        env={**inherited, "PYTHONUNBUFFERED": "1", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    return {answer.get("id"): answer for answer in answers}, done.stderr, done.returncode


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tools/call request."""
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def test_it_starts_and_lists_its_tools_with_no_configuration() -> None:
    """FMSG-007, stdio Profile: hosts and directories can inspect it; each call then names the missing variables."""
    answers, _, status = converse(
        HELLO,
        READY,
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        call(3, "whoami"),
        call(4, "wait_for_message"),
    )
    assert status == 0
    assert answers[1]["result"]["serverInfo"]["name"] == "fmsg-mcpd"
    assert len(answers[2]["result"]["tools"]) >= 15
    for number in (3, 4):
        assert answers[number]["result"]["isError"] is True
        text = answers[number]["result"]["content"][0]["text"]
        assert "FMSG_API_URL" in text
        assert "FMSG_API_KEY" in text


@pytest.mark.parametrize(("level", "told"), [("", False), ("info", True)])
def test_it_logs_no_calls_unless_asked(level: str, told: bool) -> None:
    """Agent hosts show what a server writes to standard error as errors."""
    _, stderr, status = converse(HELLO, READY, call(2, "whoami"), FMSG_LOG_LEVEL=level)
    assert status == 0
    assert ("tool_call" in stderr) is told


def test_a_host_that_cannot_be_reached_is_an_error_result() -> None:
    """The agent reads what is wrong; the server lives on, and nothing else is on its output."""
    answers, stderr, status = converse(
        HELLO,
        READY,
        call(2, "whoami"),
        call(3, "whoami"),
        FMSG_API_URL="http://127.0.0.1:9",
        FMSG_API_KEY="fmsgk_abcdefgh_c2VjcmV0c2VjcmV0c2VjcmV0",
    )
    assert status == 0
    for number in (2, 3):
        assert answers[number]["result"]["isError"] is True
    assert "c2VjcmV0" not in stderr
    assert "c2VjcmV0" not in json.dumps(list(answers.values()))


def test_a_setting_that_cannot_be_used_is_said_in_the_calls_and_on_standard_error() -> None:
    """The server starts and lists all the same; the agent can tell its user what to correct."""
    answers, stderr, status = converse(
        HELLO, READY, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, call(3, "whoami"),
        FMSG_MCP_WAIT_MAX_SECONDS="soon",
    )  # fmt: skip
    assert status == 0
    assert len(answers[2]["result"]["tools"]) >= 15
    error = answers[3]["result"]["structuredContent"]["error"]
    assert error["kind"] == "not_configured"
    assert "FMSG_MCP_WAIT_MAX_SECONDS" in error["reason"]
    assert "start it again" in error["next"]
    assert "FMSG_MCP_WAIT_MAX_SECONDS" in stderr


def test_on_a_terminal_it_says_that_it_waits_for_a_client_and_how_to_try_it() -> None:
    ours, theirs = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "fmsg_mcpd", "stdio"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.close(theirs)
    assert child.stderr is not None
    assert b"waits for an MCP client" in child.stderr.readline()
    assert b"inspector" in child.stderr.readline()
    os.close(ours)
    out, _ = child.communicate(timeout=60)
    assert out == b""


def test_a_reader_that_is_gone_ends_the_process_although_its_input_stays_open() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "fmsg_mcpd", "stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdin.write(json.dumps(HELLO).encode() + b"\n")
    child.stdin.flush()
    assert child.stdout.readline()
    child.stdout.close()
    assert child.wait(timeout=60) == 0
    child.stdin.close()
    child.stderr.close()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"FMSG_API_URL": "fmsgapi.example.com"}, "FMSG_API_URL: it begins with neither https:// nor http://"),
        ({"FMSG_API_URL": "http://fmsgapi.example.com"}, "FMSG_ALLOW_INSECURE_HTTP=1"),
        ({"FMSG_DEFAULT_DOMAIN": "a b"}, "FMSG_DEFAULT_DOMAIN: 'a b' is not a domain"),
        ({"FMSG_DIRECTORY": "/nowhere/names.json"}, "FMSG_DIRECTORY /nowhere/names.json: "),
        ({"FMSG_REDIS_URL": "localhost"}, "FMSG_REDIS_URL: scheme"),
        ({"FMSG_REDIS_URL": "redis://127.0.0.1:9", "FMSG_REDIS_PREFIX": "a b"}, "FMSG_REDIS_PREFIX"),
        ({"FMSG_REDIS_URL": "redis://127.0.0.1:9", "FMSG_SEAL_KEY": "x"}, "FMSG_SEAL_KEY"),
    ],
)
def test_the_agent_is_told_which_setting_cannot_be_used(wrong: dict[str, str], said: str) -> None:
    """It can pass that on to its user; "internal, see the log" it could not."""
    usable = {"FMSG_API_URL": "http://127.0.0.1:9", "FMSG_API_KEY": "fmsgk_abcdefgh_c2VjcmV0c2VjcmV0c2VjcmV0"}
    answers, stderr, status = converse(HELLO, READY, call(2, "whoami"), **(usable | wrong))
    assert status == 0
    error = answers[2]["result"]["structuredContent"]["error"]
    assert error["kind"] == "not_configured"
    assert said in error["reason"]
    assert "environment" in error["next"]
    assert "Traceback" not in stderr


def test_a_redis_needs_no_seal_key() -> None:
    """One process seals for itself: it makes a key where none is given, and gets as far as the host."""
    answers, _, _ = converse(
        HELLO,
        READY,
        call(2, "whoami"),
        FMSG_API_URL="http://127.0.0.1:9",
        FMSG_API_KEY="fmsgk_abcdefgh_c2VjcmV0c2VjcmV0c2VjcmV0",
        FMSG_REDIS_URL="redis://127.0.0.1:9",
    )
    assert answers[2]["result"]["structuredContent"]["error"]["kind"] == "host_unreachable"


def test_garbage_on_the_wire_is_answered_and_survived() -> None:
    """Not JSON, a batch, an unknown method: errors of the protocol, and the next request is served."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FMSG_")}
    lines = [
        json.dumps(HELLO),
        json.dumps(READY),
        "{not json",
        "[]",
        json.dumps({"jsonrpc": "2.0", "id": 7, "method": "x"}),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "fmsg_mcpd", "stdio"],
        input="\n".join([*lines, json.dumps({"jsonrpc": "2.0", "id": 8, "method": "ping"})]) + "\n",
        env=inherited,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["error"]["code"] for answer in answers if answer.get("id") is None] == [-32700, -32600]
    assert next(answer for answer in answers if answer.get("id") == 7)["error"]["code"] == -32601
    assert next(answer for answer in answers if answer.get("id") == 8)["result"] == {}


def test_the_first_questions_are_answered_before_the_sdk_is_imported() -> None:
    """A client sits before a silent process otherwise. What is imported when the thread answers is what counts."""
    program = (
        "import sys\n"
        "from mcp_front.stdio import opening\n"
        "answer = opening.Prepared.answer\n"
        "def told(self, request):\n"
        "    heavy = {'mcp', 'mcp_types', 'pydantic', 'aiohttp', 'asyncio', 'mcp_front.tools'} & set(sys.modules)\n"
        "    print(request.method, *heavy, file=sys.stderr)\n"
        "    return answer(self, request)\n"
        "opening.Prepared.answer = told\n"
        "start = opening.Opening.start\n"
        "def start_and_wait(self):\n"
        "    start(self)\n"
        "    self._thread.join()\n"
        "opening.Opening.start = start_and_wait\n"
        "from ops.stdio import run\n"
        "sys.exit(run())\n"
    )
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="".join(json.dumps(message) + "\n" for message in (HELLO, READY, listing, call(3, "whoami"))),
        env={key: value for key, value in os.environ.items() if not key.startswith("FMSG_")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "/" in line or "init" in line][:3] == [
        "initialize",
        "tools/list",
        "tools/call",
    ]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    assert len(answers[1]["result"]["tools"]) >= 15
    assert answers[2]["result"]["isError"]
