"""In processes of their own: this one has imported the SDK whole."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = "import sys\nfrom mcp_front.stdio.lazy_imports import import_lazily\nimport_lazily()\n"


def run(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_what_stdio_serves_with_leaves_the_heavy_half_out() -> None:
    modules = run("import mcp_front.stdio.serve\nprint(*sys.modules)\n").split()
    assert "mcp.server.lowlevel.server" in modules
    for heavy in (
        "mcp.client",
        "mcp.server.mcpserver",
        "httpx2",
        "aiohttp",
        "redis",
        "cryptography",
        "jsonschema",
        "uvloop",
    ):
        assert heavy not in modules, heavy


def test_a_validator_is_built_when_its_model_is_first_used() -> None:
    out = run(
        "import mcp_types\n"
        "print(mcp_types.Tool.__pydantic_complete__, mcp_types.client_request_adapter.pydantic_complete)\n"
        "print(mcp_types.Tool(name='a', input_schema={}).name, mcp_types.Tool.__pydantic_complete__)\n"
        "ping = mcp_types.client_request_adapter.validate_python({'method': 'ping'})\n"
        "print(type(ping).__name__, mcp_types.client_request_adapter.pydantic_complete)\n"
    )
    assert out.split() == ["False", "False", "a", "True", "PingRequest", "True"]


def test_names_of_the_packages_are_there_for_who_asks() -> None:
    out = run(
        "import mcp, mcp.server.runner\n"
        "from mcp import Client\n"
        "from mcp.server import MCPServer\n"
        "print(Client.__name__, MCPServer.__name__, mcp.server.lowlevel.Server.__name__, mcp.Client is Client)\n"
    )
    assert out.split() == ["Client", "MCPServer", "Server", "True"]


def test_names_that_are_nowhere_are_missing_as_usual() -> None:
    out = run(
        "import mcp\n"
        "print(hasattr(mcp, '__no_such__'), hasattr(mcp, 'no_such'), mcp.__spec__.name)\n"
        "try:\n    from mcp import nothing\nexcept ImportError as error:\n    print(error.name)\n"
    )
    assert out.split() == ["False", "False", "mcp", "mcp"]


def test_what_is_imported_already_stays_as_it_is() -> None:
    out = run("import mcp.client\nfrom mcp import Client\nimport_lazily()\nimport mcp\nprint(mcp.Client is Client)\n")
    assert out.strip() == "True"


def test_the_backend_of_stdio_leaves_redis_out() -> None:
    """What a stdio server imports with its first tool call: 6 MB less without the clients of a store it has not."""
    modules = run(
        "import ops.stdio_backend, ops.parts, mcp_front.waiting.wait, mcp_front.callers\n"
        "import daemon.daemon, workers.worker, ledger.memory\n"
        "print(*sys.modules)\n"
    ).split()
    assert "redis" not in modules
    assert "arq" not in modules
