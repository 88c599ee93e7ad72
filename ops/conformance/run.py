"""The official MCP conformance runner against the front: ``python -m ops.conformance.run``.

Needs npm for the first run: the runner and a Node of its own go below ``.tools/``. The listener is
`tests.contract.conformance_server`: the product, open to everybody, with the runner's fixtures beside its tools. Exit
status 0 if every scenario did what the ``expected-*.yaml`` files beside this one say.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RUNNER = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
"""The first release that knows 2026-07-28. Later ones may have more scenarios, so it is raised on purpose only."""
NODE = "node@22"
"""The runner needs Node 20 or later, also where the machine has an older one."""
VERSIONS = ("2026-07-28", "2025-11-25")
"""One revision of each era. The runner has no scenarios of its own for the older ones."""
TIMEOUT_S = 600
"""For all scenarios of one revision; they take half a minute."""

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TOOLS = ROOT / ".tools" / "conformance"


def main() -> int:
    """Run all scenarios of both revisions."""
    _install()
    worst = 0
    with _listening() as url:
        for version in VERSIONS:
            print(f"MCP {version}", flush=True)
            worst = max(worst, _run(url, version))
    print("Authorization server", flush=True)
    return max(worst, _sign_in())


def _install() -> None:
    if not (TOOLS / "node_modules" / "@modelcontextprotocol").exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        (TOOLS / "package.json").write_text('{"private": true}\n')
        install = ["npm", "install", "--no-audit", "--no-fund", NODE, RUNNER]
        subprocess.run(install, cwd=TOOLS, check=True)  # noqa: S603 - constants


def _run(url: str, version: str) -> int:
    runner = TOOLS / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    arguments = [
        "--url", url, "--suite", "all", "--spec-version", version,
        "--expected-failures", str(HERE / f"expected-{version}.yaml"), "-o", str(TOOLS / f"results-{version}"),
    ]  # fmt: skip
    ended = subprocess.run(  # noqa: S603 - our own tools
        [TOOLS / "node_modules" / ".bin" / "node", runner, "server", *arguments],
        cwd=TOOLS,
        check=False,
        timeout=TIMEOUT_S,
    )
    return ended.returncode


def _sign_in() -> int:
    runner = TOOLS / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    node = TOOLS / "node_modules" / ".bin" / "node"
    ended = subprocess.run(  # noqa: S603 - our own tools
        [sys.executable, "-m", "tests.contract.conformance_sign_in", node, runner, TOOLS / "results-authorization"],
        cwd=ROOT,
        check=False,
        timeout=TIMEOUT_S,
    )
    return ended.returncode


@contextmanager
def _listening() -> Iterator[str]:
    """The URL of a listener, which ends with its standard input."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.contract.conformance_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("pipes were asked for")
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("the listener did not start; see above")
        try:
            yield url
        finally:
            process.stdin.close()


if __name__ == "__main__":
    sys.exit(main())
