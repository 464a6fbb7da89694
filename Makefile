# Starts from nothing but make and a Python 3.11 or newer: `make test PYTHON=python3.12` names another one.

PYTHON ?= python3
BIN := .venv/bin
# Each worker uses a PostgreSQL; more than four make the run slower, not faster.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)
ARGS ?=
SEEDS ?= 1-200
SEED ?=
# npm and uv trust only their own certificates unless told to use the system's.
export NODE_USE_SYSTEM_CA := 1
# Without bytecode files every test process would compile all its imports again.
export PYTHONDONTWRITEBYTECODE :=
MACHINE_CERTS := UV_SYSTEM_CERTS=true
# Only a whole run is measured: a part of the suite would never reach the floor in pyproject.toml.
COVERAGE := $(if $(ARGS),,--cov=threadline --cov-report=html:build/coverage)

.DEFAULT_GOAL := help
.PHONY: help env test check lint types layers tests lowest slow simulate format page screenshots serve requirements reference bench lock clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

test: check tests ## everything a commit must pass: lint, types, import rules, all tests, coverage

check: lint types layers ## the quick part: lint, format, types, import rules

lint: env
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(BIN)/python tools/page.py --lint

types: env
	$(BIN)/mypy

layers: env
	$(BIN)/lint-imports --no-logo

tests: env ## only the tests; ARGS goes to pytest: make tests ARGS="tests/conventions -k lock"
	$(BIN)/pytest -n $(JOBS) --dist worksteal $(COVERAGE) $(ARGS)

lowest: env ## the tests with the lowest versions that pyproject.toml allows
	$(MACHINE_CERTS) $(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-lowest
	$(MACHINE_CERTS) $(BIN)/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct \
		--editable '.[all,testing]' --group dev
	.venv-lowest/bin/pytest -n $(JOBS) --dist worksteal $(ARGS)

slow: env ## the tests that take minutes: crashes by the thousand, wider searches
	$(BIN)/pytest --slow $(ARGS)

simulate: env ## seeded runs with crashes, faults and clock jumps: SEEDS=1-1000, or SEED=17 for the trace of one
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --jobs $(JOBS)) $(ARGS)

format: env ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	@$(BIN)/python tools/page.py --format

page: env ## build the page that the service shows, if its sources changed
	@$(BIN)/python tools/page.py

screenshots: page ## take the screenshots of the README
	$(BIN)/python -m tests.page.screenshots

serve: ## serve on SQLite with the rehearsal agent; prints the address to open
	@$(PYTHON) -I tools/bootstrap.py serve
	@$(BIN)/python tools/page.py --or-without
	$(BIN)/threadline serve $(ARGS)

requirements: env ## which requirements of docs/requirements.md have a test, and which tests
	$(BIN)/python tools/requirements.py $(ARGS)

reference: env ## the reference of the library from its docstrings, in build/reference
	$(BIN)/python -m tools.reference build/reference

bench: env ## benchmarks against the bare drivers and peers; results go to bench/results/
	$(MACHINE_CERTS) $(BIN)/python -m bench $(ARGS)

COMPILE := $(MACHINE_CERTS) UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile pyproject.toml --quiet --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url
lock: env ## update requirements-*.lock from pyproject.toml; ARGS=--upgrade takes newer versions
	$(COMPILE) --extra all --extra local --extra testing --extra vault --group dev --output-file requirements-dev.lock $(ARGS)
	$(COMPILE) --extra serve --group serve --constraint requirements-dev.lock --output-file requirements-serve.lock
	$(COMPILE) tests/frameworks/packages.in --output-file tests/frameworks/packages.lock $(ARGS)

clean: ## remove everything that make creates
	rm -rf web/node_modules src/threadline/service/page
	rm -rf .venv .venv-lowest .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis .import_linter_cache .bench .tools build dist
	find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +

env:
	@$(PYTHON) -I tools/bootstrap.py
