# Starts from nothing but make and a Python 3.11 or newer: `make test PYTHON=python3.12` names another one.

PYTHON ?= python3
BIN := .venv/bin
# Half a dozen workers would each start a PostgreSQL of their own, so stop at four.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)
ARGS ?=
# npm and uv trust only the certificates they bring, unless told to trust the machine's.
export NODE_USE_SYSTEM_CA := 1
# Where Python is told to keep no bytecode, each process of a test run compiles all it imports, its own and others'.
export PYTHONDONTWRITEBYTECODE :=
MACHINE_CERTS := UV_SYSTEM_CERTS=true

.DEFAULT_GOAL := help
.PHONY: help env test check lint types layers tests slow format page screenshots serve requirements bench lock clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

test: check tests ## everything a commit must pass: lint, types, import rules, all tests

check: lint types layers ## the quick part: lint, format, types, import rules

lint: env
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: env
	$(BIN)/mypy

layers: env
	$(BIN)/lint-imports --no-logo

tests: env ## only the tests; ARGS goes to pytest: make tests ARGS="tests/house -k lock"
	$(BIN)/pytest -n $(JOBS) --dist worksteal $(ARGS)

slow: env ## the tests that take minutes: crashes by the thousand, wider searches
	$(BIN)/pytest --slow $(ARGS)

format: env ## let ruff put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

page: env ## build the page that the service shows, if its sources changed
	@$(BIN)/python tools/page.py

screenshots: page ## take the pictures of the README again
	$(BIN)/python -m tests.page.screenshots

serve: env ## serve on SQLite with the rehearsal agent; prints the address to open
	@$(BIN)/python tools/page.py --or-without
	$(BIN)/threadline serve $(ARGS)

requirements: env ## which promises of docs/requirements.md are proved, and by which tests
	$(BIN)/python tools/requirements.py $(ARGS)

bench: env ## measure against the bare drivers and the peers; results go to bench/results/
	$(MACHINE_CERTS) $(BIN)/python -m bench $(ARGS)

lock: env ## pin again what pyproject.toml asks for; ARGS=--upgrade takes newer versions
	$(MACHINE_CERTS) UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile pyproject.toml --quiet --universal \
		--python-version 3.11 --all-extras --group dev --generate-hashes --no-emit-index-url --output-file requirements-dev.lock $(ARGS)

clean: ## remove everything that was made here
	rm -rf web/node_modules src/threadline/service/page
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis .import_linter_cache .bench .tools build dist
	find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +

env:
	@$(PYTHON) -I tools/bootstrap.py
