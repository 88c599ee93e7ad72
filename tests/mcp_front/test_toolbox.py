from __future__ import annotations

import pytest

from mcp_front.offer import FmsgToolbox
from mcp_front.toolbox import Profile, Toolbox
from tests.mcp_front.fakes import FakeToolbox


@pytest.mark.parametrize("toolbox", [FmsgToolbox(), FakeToolbox()], ids=["product", "fake"])
@pytest.mark.parametrize("profile", ["stdio", "http"])
def test_definitions_need_nothing_and_do_not_change(toolbox: Toolbox, profile: Profile) -> None:
    names = [tool.name for tool in toolbox.tools(profile)]
    assert names == [tool.name for tool in toolbox.tools(profile)]
    assert len(names) == len(set(names))
    assert toolbox.instructions(None)
    assert toolbox.resources()
    assert toolbox.templates()
    assert toolbox.prompts()
    assert sum(map(toolbox.holds, names)) == 1
