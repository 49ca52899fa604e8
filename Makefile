# Two commands: `make run` sets up and does the main job, `make test` sets up and passes every test.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8080
ONCE ?=
UPSTREAM ?=

.PHONY: run test setup lint types unit docs bench clean help

help:            ## what there is to make
	@grep -hE '^[a-z.]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 16

$(BIN)/packhorse: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(BIN)/packhorse
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(BIN)/packhorse    ## create .venv and install

run: setup       ## sample upstream, gateway, a 40-turn meeting through both (ONCE=1, UPSTREAM=URL, PORT=N)
	@ONCE=$(ONCE) UPSTREAM=$(UPSTREAM) PORT=$(PORT) $(BIN)/packhorse tour

test: $(VENV)/.dev lint types unit    ## everything that must pass

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev ctxpack.pyz
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST)

ctxpack.pyz: $(wildcard ctxpack/*.py)    ## the Context Pack tool as one file
	@rm -rf build/pyz && mkdir -p build/pyz/ctxpack && cp ctxpack/*.py build/pyz/ctxpack/ && cp ctxpack/__main__.py build/pyz/
	$(PYTHON) -m zipapp build/pyz --output $@ --python '/usr/bin/env python3' --compress

docs: setup      ## the reference pages that are made from the code
	$(BIN)/python -m config.reference

bench: $(VENV)/.dev    ## latency, throughput, memory and bytes beside nginx and a bare proxy
	$(BIN)/python -m benchmarks $(BENCH)

clean:           ## what was made here
	rm -rf $(VENV) build dist ctxpack.pyz var *.egg-info
