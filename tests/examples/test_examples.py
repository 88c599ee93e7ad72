"""The programs of `examples/` wait, answer and go on, against a sandbox host, each in its framework's own way."""

from __future__ import annotations

import asyncio
import compileall
import os
import sys
from pathlib import Path

import pytest

from ops.agent import over_stdio
from sandbox.host import SandboxHost, serve

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.prefix) / "examples" / "bin" / "python"
"""The frameworks need another MCP SDK than the product, so they have an environment of their own from `make setup`."""


def test_every_example_compiles() -> None:
    assert compileall.compile_dir(ROOT / "examples", quiet=1, force=True)


async def first_wait(host: SandboxHost) -> None:
    """Return once the program waits: its first wait begins at what is there then."""
    async with asyncio.timeout(60):
        while not host.control.stats()["sockets"]:  # noqa: ASYNC110 - another process's doing has no event here
            await asyncio.sleep(0.05)


@pytest.mark.processes
@pytest.mark.parametrize("name", ["openai_agents_sdk", "langchain_agent", "pydantic_ai_agent"])
async def test_an_example_answers_and_goes_on(name: str) -> None:
    assert PYTHON.exists(), "there are no frameworks: run `make setup` once more"
    host = SandboxHost("here.test")
    async with serve(host) as api_url:
        keys = {}
        for who in ("ann", "ben"):
            host.control.create_address(f"@{who}@here.test")
            keys[who] = host.control.create_key(f"@{who}@here.test")
        command = (sys.executable, "-m", "fmsg_mcpd", "stdio")
        env = {"FMSG_API_URL": api_url, "FMSG_API_KEY": keys["ben"]}
        bin_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        program = await asyncio.create_subprocess_exec(
            str(PYTHON),
            "-m",
            f"tests.examples.{name}",
            "2",
            cwd=ROOT,
            env={**os.environ, "PATH": bin_path, "FMSG_API_URL": api_url, "FMSG_API_KEY": keys["ann"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with over_stdio(command[0], *command[1:], env=env) as ben:
                await first_wait(host)
                for text in ("first", "second"):
                    sent = await ben.call("send_message", to=["@ann@here.test"], topic=text, body=text)
                    waited = await ben.call(
                        "wait_for_message", after_id=sent["id"], thread_of=sent["id"], timeout_seconds=60
                    )
                    assert waited["status"] == "message"
                    assert waited["messages"][0]["body"].startswith("Thank you for ")
            async with asyncio.timeout(30):
                await program.wait()
        finally:
            if program.returncode is None:
                program.kill()
            output, _ = await program.communicate()
        assert program.returncode == 0, output.decode()
