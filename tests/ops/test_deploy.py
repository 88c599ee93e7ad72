"""What all deploy files have in common, and the two files that registries and agents read."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from ops.cli import parser
from ops.settings import variables
from tests.ops.deploy_files import DEPLOY, ROOT, SETTING_NAMES

FILES = sorted(
    path
    for path in (*DEPLOY.rglob("*"), ROOT / "compose.yaml", ROOT / "server.json", ROOT / ".mcp.json")
    if path.is_file()
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_deploy_files_name_only_variables_that_exist(path: Path) -> None:
    named = set(re.findall(r"\bFMSG_[A-Z0-9_]*[A-Z0-9]\b", path.read_text()))
    assert named <= SETTING_NAMES


def test_the_registry_entry_says_what_the_project_is() -> None:
    entry = json.loads((ROOT / "server.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (package,) = entry["packages"]
    assert (entry["version"], package["version"]) == (project["version"], project["version"])
    assert package["identifier"] == project["name"]
    assert entry["name"].endswith(f"/{project['name']}")
    # The registry's own limit.
    assert len(entry["description"]) <= 100


def test_the_registry_entry_has_what_the_schema_allows() -> None:
    """Of the schema of 2025-12-11: the fields there are, how a server is called, what formats there are."""
    entry = json.loads((ROOT / "server.json").read_text())
    assert entry["$schema"].endswith("/schemas/2025-12-11/server.schema.json")
    assert set(entry) <= {
        *("$schema", "name", "title", "description", "version", "websiteUrl", "repository", "icons"),
        *("packages", "remotes", "_meta"),
    }
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    (package,) = entry["packages"]
    assert set(package) <= {
        *("registryType", "registryBaseUrl", "identifier", "version", "fileSha256", "runtimeHint", "transport"),
        *("runtimeArguments", "packageArguments", "environmentVariables"),
    }
    assert package["transport"] == {"type": "stdio"}
    for given in (*package["packageArguments"], *package["environmentVariables"]):
        assert set(given) <= {
            *("type", "name", "value", "valueHint", "description", "isRequired", "isSecret", "isRepeated"),
            *("format", "default", "placeholder", "choices", "variables"),
        }
        assert given.get("format", "string") in ("string", "number", "boolean", "filepath")


def test_the_registry_finds_the_name_of_the_entry_on_the_page_of_the_package() -> None:
    """It takes an entry for a package on PyPI only where the package's description claims the name."""
    name = json.loads((ROOT / "server.json").read_text())["name"]
    assert re.findall(r"mcp-name: *([^\s<]+)", (ROOT / "README.md").read_text()) == [name]


def test_the_registry_entry_starts_stdio_with_the_variables_it_reads() -> None:
    (package,) = json.loads((ROOT / "server.json").read_text())["packages"]
    known = {variable.name: variable for _, variable, _, _ in variables()}
    assert [argument["value"] for argument in package["packageArguments"]] == ["stdio"]
    for offered in package["environmentVariables"]:
        variable = known[offered["name"]]
        assert "stdio" in variable.roles
        assert offered["isSecret"] == variable.secret
    required = [offered["name"] for offered in package["environmentVariables"] if offered["isRequired"]]
    assert required == ["FMSG_API_URL", "FMSG_API_KEY"]


def test_the_example_for_agents_starts_stdio() -> None:
    (server,) = json.loads((ROOT / ".mcp.json").read_text())["mcpServers"].values()
    command = server["args"].index("fmsg-mcpd")
    assert server["args"][command + 1 :] == ["stdio"]
    parser().parse_args(server["args"][command + 1 :])
    # Left empty where the environment does not have them: the server then starts all the same and says what it lacks.
    assert all(value == f"${{{name}:-}}" for name, value in server["env"].items())
