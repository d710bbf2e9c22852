# Each target sets up what it needs: a fresh machine has Python and pip, nothing more.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.current
PYTEST = $(BIN)/python -m pytest
# Programs that tests start import compiled modules, as they do where Flightlog is installed.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test unit explore test-system lint types bench docs screenshots format clean
.DEFAULT_GOAL := test

# The environment is made anew only when what it is made from has changed.
$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

$(VENV)/.bench: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	@touch $@

$(VENV)/.system: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group system
	@touch $@

# Programs that take what Flightlog sends; `make test-system` starts them. Azurite comes from npm.
.servers/.current: pyproject.toml
	@test -x .servers/bin/python || $(PYTHON) -m venv .servers
	@.servers/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@.servers/bin/python -m pip install --quiet --disable-pip-version-check --group servers
	@npm install --silent --no-audit --no-fund --no-save --prefix .servers azurite@3
	@touch $@

demo: $(STAMP)  ## Record a small simulation sweep and show its report.
	@$(BIN)/flightlog demo

test: $(STAMP)  ## Lint, types and the whole test suite, side by side: types take one of two cores.
	@$(MAKE) --no-print-directory --jobs 2 lint types unit

unit: $(STAMP)
	@$(PYTEST) -n 2 --dist worksteal -m "not system"

explore: $(STAMP)  ## Property tests on examples that nobody has tried yet.
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "hypothesis and not system" --hypothesis-profile exploring

test-system: $(VENV)/.system .servers/.current  ## Tests against real components, started by the suite.
	@$(PYTEST) -n 2 --dist loadgroup -m system

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy

bench: $(VENV)/.bench  ## The budgets, each a ratio measured in one run.
	@$(BIN)/python -m bench

docs: $(STAMP)  ## The generated event and command references.
	@$(BIN)/python -m flightlog.cli.reference docs

screenshots: $(VENV)/.system  ## Pictures of every page, in a real browser; two of them stand in the README.
	@$(BIN)/python -m tests.screenshots

format: $(STAMP)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .servers .pytest_cache .mypy_cache .ruff_cache
