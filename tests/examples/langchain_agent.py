"""`examples/langchain_agent.py` with a model that gives every message the same answer."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from examples.langchain_agent import main


class SameAnswer(BaseChatModel):
    """Calls ``reply`` once for each message, then says that it did."""

    @property
    def _llm_type(self) -> str:
        return "same-answer"

    def bind_tools(self, tools: Any, **more: Any) -> SameAnswer:
        """It knows what to call."""
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **more: Any
    ) -> ChatResult:
        if isinstance(messages[-1], ToolMessage):
            said = AIMessage("Answered.")
        else:
            (target,) = set(re.findall(r"reply with id \D{1,3}(\d+)", str(messages[-1].content)))
            call = {"id": "c", "name": "reply", "args": {"id": target, "body": f"Thank you for {target}."}}
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


asyncio.run(main(SameAnswer(), answers=int(sys.argv[1])))
