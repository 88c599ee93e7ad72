"""`examples/openai_agents_sdk.py` with a model that gives every message the same answer."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import ModelResponse, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from examples.openai_agents_sdk import main


class SameAnswer(Model):
    """Calls ``reply`` once for each message, then says that it did."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        """The framework's one entry point for a model."""
        if any(isinstance(item, dict) and item.get("type") == "function_call_output" for item in input):
            said = ResponseOutputText(type="output_text", text="Answered.", annotations=[])
            output: Any = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[said]
            )
        else:
            (target,) = set(re.findall(r"reply with id \D{1,3}(\d+)", json.dumps(input)))
            arguments = json.dumps({"id": target, "body": f"Thank you for {target}."})
            output = ResponseFunctionToolCall(type="function_call", call_id="c", name="reply", arguments=arguments)
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *rest: Any, **more: Any) -> AsyncIterator[Any]:
        """Not used: nothing is streamed."""
        raise NotImplementedError


set_tracing_disabled(True)
asyncio.run(main(SameAnswer(), answers=int(sys.argv[1])))
