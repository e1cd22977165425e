# `make` prints what there is. Everything is installed below this folder: .venv,
# node_modules and a stamp file in .make for each step that is worth skipping.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
# Arguments for JupyterLab: make lab LAB_ARGS="--no-browser"
LAB_ARGS ?=
# Arguments for pytest: make pytest PYTEST_ARGS="-k journal"
PYTEST_ARGS ?=

BIN := $(abspath $(VENV))/bin
STAMPS := .make
export PATH := $(BIN):$(PATH)

EXTENSION_SOURCES := $(shell find labextension/src labextension/style labextension/schema -type f -not -path '*/__tests__/*') \
	labextension/tsconfig.json labextension/package.json labextension/install.json

##@ Use

.PHONY: lab
lab: install ## set up what is missing, then start JupyterLab with the extension
	exec jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS)

.PHONY: install
install: $(STAMPS)/extension ## the same set-up, without the start

##@ Test

.PHONY: test
test: dev lint jest build ## everything that CI runs, set-up included
	$(MAKE) pytest OWNEDKERNELS_DIST=$(abspath dist)
	$(MAKE) ui-test

.PHONY: lint
lint: dev ## ruff, mypy, eslint, prettier, stylelint
	ruff check .
	ruff format --check .
	mypy
	cd labextension && jlpm lint:check

# Most tests wait for processes, so two at a time take half as long. What fails beside another is
# run once more by itself: a defect fails again, and the first output is there to be read.
.PHONY: pytest
pytest: dev ## Python tests
	python -m pytest -n 3 --dist loadfile $(PYTEST_ARGS) || \
	python -m pytest --last-failed --last-failed-no-failures none $(PYTEST_ARGS)

.PHONY: jest
jest: $(STAMPS)/node ## unit tests of the JupyterLab extension
	cd labextension && jlpm test

.PHONY: ui-test
ui-test: dev $(STAMPS)/ui-node chromium ## browser tests
	rm -rf ui-tests/.jupyter
	cd ui-tests && \
	export CHROMIUM_PATH="$${CHROMIUM_PATH:-$$($(find_chromium))}" && \
	export UI_TEST_PORT="$${UI_TEST_PORT:-$$(python -c '$(free_port)')}" && \
	jlpm test

.PHONY: soak
soak: dev ## the rounds of the soak tests by the hundred
	OWNEDKERNELS_SOAK=1 python -m pytest -m soak --timeout 3600 $(PYTEST_ARGS)

.PHONY: bench
bench: dev $(STAMPS)/bench ## benchmarks, each against the stock stack (takes a while)
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; python "$$file"; done

.PHONY: coverage
coverage: dev ## Python tests with a report of the lines that they reach
	python -m coverage run -m pytest $(PYTEST_ARGS)
	python -m coverage report

##@ Build

.PHONY: build
build: dev ## sdist and wheel in dist/, from scratch
	rm -rf dist
	cd labextension && jlpm clean:all
	python -m build --no-isolation

.PHONY: dev
dev: $(STAMPS)/dev $(STAMPS)/extension ## set-up for development

.PHONY: clean
clean: ## remove everything that the other targets made
	rm -rf $(VENV) $(STAMPS) dist jupyter_ownedkernels/labextension jupyter_ownedkernels/_version.py \
		labextension/{lib,node_modules,.yarn,coverage,tsconfig.tsbuildinfo,.eslintcache,.stylelintcache} \
		ui-tests/{node_modules,.yarn,.jupyter,test-results,playwright-report}

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Steps of the set-up.

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "Python 3.10 or newer is needed; choose one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(call apt_install,python3-venv)
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# The extension is built by the steps below, so that each of them can be skipped.
$(STAMPS)/lab: pyproject.toml labextension/package.json $(wildcard jupyter-config/server-config/*) $(STAMPS)/venv
	SKIP_JUPYTER_BUILDER=1 python -m pip install -q -e . "jupyterlab>=4,<5" "jupyter-builder>=1.2,<2"
	@touch $@

$(STAMPS)/dev: $(STAMPS)/lab
	SKIP_JUPYTER_BUILDER=1 python -m pip install -q -e ".[dev]"
	@touch $@

$(STAMPS)/bench: $(STAMPS)/dev
	SKIP_JUPYTER_BUILDER=1 python -m pip install -q -e ".[bench]"
	@touch $@

$(STAMPS)/node: labextension/package.json labextension/yarn.lock $(STAMPS)/lab
	@$(need_node)
	@cd labextension && $(call quietly,jlpm install --immutable,: a minute or two)
	@touch $@

$(STAMPS)/ui-node: ui-tests/package.json ui-tests/yarn.lock $(STAMPS)/lab
	@$(need_node)
	@cd ui-tests && $(call quietly,jlpm install --immutable,: a minute or two)
	@touch $@

$(STAMPS)/extension: $(EXTENSION_SOURCES) $(STAMPS)/node
	cd labextension && jlpm build:prod
	jupyter-builder develop . --overwrite
	@touch $@

.PHONY: chromium
chromium:
	@[[ -n "$${CHROMIUM_PATH:-}" || -n "$$($(find_chromium))" ]] || $(call apt_install,chromium)

find_chromium = command -v chromium || command -v chromium-browser || command -v google-chrome || true
free_port = import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])

# Show what a talkative command said only when it fails.
quietly = log=$$(mktemp); echo "$(1)"; $(1) > "$$log" 2>&1 || { cat "$$log"; rm "$$log"; exit 1; }; rm "$$log"

define need_node
node -e 'const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)' 2> /dev/null || { \
	echo "The JupyterLab extension is built with Node.js 20.19 or newer; here it is: $$(node --version 2> /dev/null || echo missing)." \
		"Install it with your package manager, with conda, or from its website." >&2; exit 1; }
endef

define apt_install
{ if [[ $$(id -u) == 0 ]] && command -v apt-get > /dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(1); \
	else echo "$(1) is needed: install it with your package manager." >&2; exit 1; fi; }
endef
