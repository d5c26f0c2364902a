# The README's two commands are `make demo` and `make test`; each sets up .venv first, once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
PYTEST ?= $(BIN)/python -m pytest -q
# Tests run in two processes; each steals what the other has not begun. Short ones are handed out a few at a time.
PARALLEL ?= -n 2 --dist worksteal

.PHONY: help install demo test fast coverage check docs format bench-quick clean

help:
	@echo "make demo    tune, export and predict on handwritten digits, about a minute after the install"
	@echo "make test    every test (make fast: without the slow ones and those that read real data)"
	@echo "make coverage   every test, and which lines and branches they reach"
	@echo "make check   ruff, ruff format, mypy"
	@echo "make docs    the API reference, into build/docs, and a check of every link"
	@echo "make bench-quick   the benchmarks' short arms"
	@echo "make clean   remove what make, the tests and the demo wrote here"

# torch first: asked for by another package it might come as a build with gigabytes of CUDA libraries.
# hatchling builds the editable package in .venv itself, at its pinned version, instead of in an environment of its own.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("tuner needs Python 3.11 or newer: make PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), once; a few minutes" >&2
	@$(PIP) torch==2.13.0 hatchling
	@$(PIP) --no-build-isolation --editable ".[test]"
	@touch $@

install: $(STAMP)

demo: $(STAMP)
	@$(BIN)/tuner demo

test: $(STAMP)
	@$(PYTEST) $(PARALLEL)

fast: $(STAMP)
	@$(PYTEST) -n 2 --dist load -m "not slow and not data"

coverage: $(STAMP)
	@$(PYTEST) $(PARALLEL) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(STAMP)
	@$(BIN)/python docs/build.py

format: $(STAMP)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench-quick: $(STAMP)
	@set -e; for file in benchmarks/*.py; do \
		grep -q '__main__' $$file || continue; \
		name=$$(basename $$file .py); echo "== $$name"; $(BIN)/python -m benchmarks.$$name --quick; \
	done

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis tuner-demo-*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
