"""`examples/pydantic_ai_agent.py` with the framework's own stand-in for a model: every message gets the same answer."""

from __future__ import annotations

import asyncio
import re
import sys

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from examples.pydantic_ai_agent import main


def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Calls ``reply`` once for each message, then says that it did."""
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse(parts=[TextPart("Answered.")])
    (target,) = set(re.findall(r"reply with id \D{1,3}(\d+)", str(messages[-1].parts)))
    return ModelResponse(parts=[ToolCallPart("reply", {"id": target, "body": f"Thank you for {target}."})])


asyncio.run(main(FunctionModel(answer), answers=int(sys.argv[1])))
