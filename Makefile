PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help setup demo test test-slow lint docs bench soak clean
.DEFAULT_GOAL := help

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/' | expand -t 12

setup: $(READY) ## .venv, with everything for development

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "spellonce needs Python 3.11 or later: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(READY)

demo: setup ## train on Python's help topics for a minute, and show what came of it
	$(BIN)/spellonce demo

# Two processes, one thread each: the same losses on any number of cores.
test: setup ## the tests, but for the slow ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

test-slow: setup ## the tests that take minutes each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow

lint: setup ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup ## the documentation, into site/
	$(BIN)/python scripts/command_line_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: setup ## speed and memory; writes docs/performance.*
	$(BIN)/python benchmarks/run.py

soak: setup ## faults, load and growth, for hours; writes docs/reliability.*
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[soak]'
	$(BIN)/python benchmarks/run.py --soak

clean: ## remove what was made, .venv too
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
