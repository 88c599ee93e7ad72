"""The one way to call a tool, and what clients are told of all of them."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import hypothesis
import jsonschema
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from mcp_front.settings import FrontSettings
from mcp_front.tools.registry import call_tool, tools_for
from tests.mcp_front.agents import Agent, World, check_result, running_world

HTTP = FrontSettings()
STDIO = FrontSettings(transport="stdio")
LOCAL = FrontSettings(transport="stdio", download_dir=Path("/"), upload_dir=Path("/"))
PROFILES = pytest.mark.parametrize("settings", [HTTP, STDIO, LOCAL], ids=["http", "stdio", "local"])

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.sampled_from(["0", "1", "2", str(2**63), "@ann@here.test", "../x", "QQ==", "👍", "main", "list", "delete"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["filename", "data_base64", "path", "content_type", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


VALID: dict[str, dict[str, Any]] = {
    "get_message": {"id": "1"},
    "get_thread": {"id": "1"},
    "send_message": {"to": ["@ann@here.test"], "body": "b", "attachments": [{"filename": "a", "data_base64": "QQ=="}]},
    "reply": {"id": "1", "body": "b", "recipients": ["@ann@here.test"]},
    "react": {"id": "1", "emoji": "👍"},
    "add_recipients": {"id": "1", "add_to": ["@ann@here.test"]},
    "mark_read": {"ids": ["1"]},
    "delivery_status": {"id": "1"},
    "download_attachment": {"id": "1", "filename": "a"},
    "resolve_address": {"name": "@ann@here.test"},
    "wait_subscriptions": {"action": "list"},
}
"""Arguments that fit, for the fuzz to break one by one."""


def properties(name: str) -> list[str]:
    return [*tools_for(LOCAL)[name].definition.input_schema["properties"], "surprise"]


def wire(settings: FrontSettings) -> list[dict[str, Any]]:
    definitions = [tool.definition for tool in tools_for(settings).values()]
    return [definition.model_dump(by_alias=True, exclude_none=True, mode="json") for definition in definitions]


@PROFILES
def test_all_the_tools_cost_a_client_less_than_20_kb(settings: FrontSettings) -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"tools": wire(settings), "ttlMs": 300000, "cacheScope": "public"}}
    assert len(json.dumps(answer, separators=(",", ":")).encode()) < 20_000


@PROFILES
def test_schemas_are_valid_closed_described_and_bounded(settings: FrontSettings) -> None:
    for tool in (tool.definition for tool in tools_for(settings).values()):
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema or {})
        assert (tool.output_schema or {}).get("type") == "object"
        for schema in _objects(tool.input_schema):
            assert schema["additionalProperties"] is False, tool.name
            for name, value in schema["properties"].items():
                described = "description" in value or "description" in value.get("items", {}) or "enum" in value
                assert described or value.get("type") == "array", f"{tool.name}.{name}"
                branches = value.get("anyOf", [value])
                # Clients that translate schemas for a model may refuse all tools for a list of types.
                assert all(isinstance(branch["type"], str) for branch in branches), f"{tool.name}.{name}"
                if value.get("type") == "integer":
                    assert "minimum" in value, f"{tool.name}.{name}"
                    assert "maximum" in value, f"{tool.name}.{name}"


def _objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in schema for found in _objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for value in schema.values() for found in _objects(value)]


@PROFILES
def test_schemas_of_results_survive_an_upgrade_and_a_translation(settings: FrontSettings) -> None:
    """Clients remember an ``enum``, and those that translate schemas may refuse a list of types or an empty schema."""
    for tool in tools_for(settings).values():
        assert tool.definition.title
        shown = json.dumps(tool.definition.output_schema)
        assert '"enum"' not in shown, tool.name
        assert '"type": [' not in shown, tool.name
        assert "{}" not in shown, tool.name
        assert '"type": [' not in json.dumps(tool.definition.input_schema), tool.name


def test_files_are_read_and_written_only_where_the_operator_named_a_directory() -> None:
    for settings, files in ((HTTP, False), (STDIO, False), (LOCAL, True)):
        tools = tools_for(settings)
        download = tools["download_attachment"].definition
        assert download.annotations is not None
        assert download.annotations.read_only_hint is not files
        assert ("save_to" in download.input_schema["properties"]) is files
        for name in ("send_message", "reply"):
            items = tools[name].definition.input_schema["properties"]["attachments"]["items"]
            assert ("path" in items["properties"]) is files


def test_definitions_need_no_configuration_and_are_the_same_every_time() -> None:
    assert wire(HTTP) == wire(HTTP)
    assert [tool["name"] for tool in wire(STDIO)] == [tool["name"] for tool in wire(HTTP)]


async def test_an_argument_that_does_not_fit_is_an_error_of_the_domain(ann: Agent) -> None:
    got = await ann.call_with("get_message", {"id": 5})
    assert got.error["kind"] == "bad_argument"
    assert got.text.startswith("id: ")


async def test_a_fault_of_ours_is_a_result_that_tells_nothing_and_a_line_in_the_log(
    ann: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(message_id: int) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(ann.context.caller.api, "message", broken)
    got = await ann.call("get_message", id="5")
    assert got.error["kind"] == "internal"
    assert "secret detail" not in got.result.model_dump_json()
    assert "secret detail" in caplog.text


async def test_what_others_wrote_is_scrubbed_of_credentials_in_every_form(world: World, ann: Agent) -> None:
    key = "fmsgk_abc_" + "A+/b" * 8 + "="
    message_id = world.here.deliver("@x@there.test", [ann.address], topic=key, body=f"take {key}!", type_="text/plain")
    for got in (
        await ann.call("get_message", id=str(message_id)),
        await ann.call("get_thread", id=str(message_id)),
        await ann.call("list_messages"),
        await ann.call("wait_for_message", after_id="0", timeout_seconds=0),
    ):
        assert "A+/b" not in got.result.model_dump_json()
        assert "[redacted fmsg key]" in got.text


@pytest.mark.parametrize("name", sorted(tools_for(HTTP)))
def test_arguments_that_break_the_schema_never_get_further_than_a_result(name: str) -> None:
    """No exception, no hang, no half-sent message, whatever is given."""
    with asyncio.Runner() as runner:
        stack, tool = AsyncExitStack(), tools_for(HTTP)[name]
        world = runner.run(stack.enter_async_context(running_world()))
        ann = world.agent("ann")
        runner.run(ann.send(ann, "first"))

        @hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            arguments=st.dictionaries(st.sampled_from(properties(name)), JSON, max_size=3) | st.none(),
            missing=st.sets(st.sampled_from(properties(name)), max_size=1),
        )
        def fuzz(arguments: dict[str, Any] | None, missing: set[str]) -> None:
            if arguments is not None:
                kept = {key: value for key, value in VALID.get(name, {}).items() if key not in missing}
                arguments = {**kept, **arguments}
            if name == "wait_for_message":
                arguments = {**(arguments or {}), "timeout_seconds": 0, "settle_seconds": 0}
            check_result(tool, runner.run(call_tool(ann.context, tool, arguments)))

        fuzz()
        page = runner.run(ann.context.caller.api.list_sent(limit=100))
        assert not [message for message in page.messages if message.is_draft]
        assert runner.run(world.store.deferred.depth()) == 0
        runner.run(stack.aclose())
