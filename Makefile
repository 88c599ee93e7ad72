# Two commands matter: `make demo` shows the main job, `make test` proves it. Both set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cksum requirements-dev.lock pyproject.toml 2>/dev/null | cksum | cut -d' ' -f1)
BESIDE := $(VENV)/.beside-$(shell cksum tests/fmsg_mcpd/neighbours.lock examples/requirements.lock 2>/dev/null | cksum | cut -d' ' -f1)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types check format lock clean bench bench-compare chaos fleet dashboard waits model conformance picture examples attack skill

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## make the virtual environment

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("fmsg-mcpd needs Python 3.11 or later, this is " + sys.version.split()[0] + "; say PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.installed-*
	@touch $@

# What tests alone need, the agent frameworks of examples/ among it: more than everything else together.
$(BESIDE): $(STAMP) tests/fmsg_mcpd/neighbours.lock examples/requirements.lock
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r tests/fmsg_mcpd/neighbours.lock -d $(VENV)/neighbours
	$(PYTHON) -m venv $(VENV)/examples
	$(VENV)/examples/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r examples/requirements.lock
	@rm -f $(VENV)/.beside-*
	@touch $@

demo: setup ## two agents converse through a real front, daemon, Redis and two federated sandbox hosts
	@$(BIN)/fmsg-mcpd demo $(ARGS) || [ $$? -eq 130 ] # Ctrl-C is no error

test: setup $(BESIDE) ## the whole test suite
	$(BIN)/python -m pytest -n auto $(ARGS)

waits: setup ## the rules of waiting by example, against real processes
	$(BIN)/python -m tests.chaos.waits_live

model: setup ## random cases against a plain oracle, for as long as asked: ARGS="--seconds 600 --seed 1"
	$(BIN)/python -m tests.chaos.model $(ARGS)

conformance: setup ## the official MCP conformance scenarios against the front (needs npm)
	$(BIN)/python -m ops.conformance.run $(ARGS)

chaos: setup ## five minutes of random faults under 200 callers: nothing lost, nothing twice
	$(BIN)/python -m tests.chaos.run $(ARGS)

attack: setup ## five minutes of hostile clients and a hostile host beside 200 waiting callers: what they notice of it
	$(BIN)/python -m tests.attack.run $(ARGS)

fleet: setup ## restarts, kills and failovers under 2,000 callers behind a real proxy (haproxy or nginx)
	$(BIN)/python -m tests.fleet.run $(ARGS)

dashboard: setup ## draw docs/dashboard.svg: the dashboard of a fleet under load and faults (haproxy or nginx, prometheus)
	$(BIN)/python -m tests.fleet.dashboard $(ARGS)

picture: setup ## draw docs/page.jpg, the page of the demo (needs Chromium)
	$(BIN)/python -m pytest -q -k first_picture tests/ops/test_page.py
	cp .screenshots/page.jpg docs/page.jpg

skill: ## write skills/fmsg/SKILL.md anew from docs/agents.md, below the front matter that it has
	@awk '{ print } /^---$$/ && ++marks == 2 { exit }' skills/fmsg/SKILL.md > skills/fmsg/SKILL.new
	@{ echo; sed 3,4d docs/agents.md; } >> skills/fmsg/SKILL.new && mv skills/fmsg/SKILL.new skills/fmsg/SKILL.md

examples: setup $(BESIDE) ## the programs of examples/, with a model that always gives the same answer
	$(BIN)/python -m pytest tests/examples $(ARGS)

lint: setup ## ruff, both halves
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## strict type check, tests included
	$(BIN)/mypy

bench: setup ## measure everything, about 30 minutes; ARGS=--quick: two. Writes docs/performance.md
	$(BIN)/fmsg-mcpd bench --report docs $(ARGS)

bench-compare: setup ## this tree against a commit, measured in turn: ARGS="main~1 --only tools --rounds 3"
	$(BIN)/python -m tests.ops.bench.compare $(ARGS)

check: lint types test ## everything CI runs

format: setup ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup ## resolve the development dependencies anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --group dev --extra embedded --extra tracing pyproject.toml build-requirements.in -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header examples/requirements.in -o examples/requirements.lock

clean: ## remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
