# make train    install into .venv, then learn Pong
# make check    while you work: lint, laws, types, and the tests that are quick; under a minute
# make test     install, tests, lint, laws, strict type check
# make test-long  before a release: rehearsals for GPUs, and runs of Pong that are compared whole
# make fuzz     damaged and hostile files: all kinds, then random ones for some minutes
# make test-cluster   install Ray too; tests that need root, or a cluster of several hosts
# make test-browser   install Chromium too; tests of the live page in it
# make package  wheel and sdist in dist/, tried in an environment without this folder
# make docs     the documentation as a site in build/docs, with all links checked
# make test-gpu   tests that need a GPU with CUDA; fails where there is none
# Needs Python 3.11 or newer and make; everything else is installed into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
comma := ,
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

# Which tests, and how the first time. Many tests stop, freeze and kill processes, and a machine that
# is busy can be too late for one of them. What failed runs once more, one at a time, and has to
# pass; the log names it as flaky. Each target remembers by itself what failed, as two may run at once.
PYTEST = $(BIN)/python -m pytest -o cache_dir=.pytest_cache/$@ --durations=25
TESTS = $(PYTEST) $(1) $(2) || { test $$? = 1 && echo "== once more, alone" && \
  $(PYTEST) $(1) --second-try --last-failed --last-failed-no-failures none; }
PARALLEL = -n logical --maxprocesses 8 --dist worksteal

APART := cluster or browser or package or long

# Tests start many processes, on Ray above all: none of them has to compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-all train check test lint laws types quick tests fuzz test-long test-cluster \
  test-browser test-gpu package docs bench

help:
	@sed -n '/^#/!q;s/^# //p' Makefile

setup: $(STAMP)

# Whatever any target needs, so that several of them may run at once.
setup-all: setup $(VENV)/.cluster $(VENV)/.browser $(VENV)/.package $(VENV)/.docs

train: setup
	$(BIN)/colobus train pong

check: setup
	@$(MAKE) --no-print-directory --jobs=2 lint laws types quick

# Types are checked while tests run: a test waits now and then, and mypy uses one core.
test: setup
	@$(MAKE) --no-print-directory --jobs=2 lint laws types tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

laws: setup
	$(BIN)/python tests/helpers/laws.py
	$(BIN)/lint-imports

# What has not changed since the last time comes from mypy's cache.
types: setup
	$(BIN)/mypy

quick: setup
	$(PYTEST) -m "not ($(APART) or slow or processes)" $(PARALLEL)

tests: setup
	$(call TESTS,-m "not ($(APART))",$(PARALLEL))

test-long: setup
	$(call TESTS,-m long)

fuzz: setup
	$(BIN)/python -m pytest -o timeout=0 tests/runs/test_hostile.py -k "fuzz or no_kind" \
	  --hypothesis-profile fuzz

# These wait for most of their time: two at once, beside other stages too. They begin with the files
# that take longest (LONGEST in tests/helpers/reporting.py), or one would be left alone at the end.
test-cluster: setup $(VENV)/.cluster
	$(call TESTS,-m cluster,-n 2 --dist loadfile --no-loadscope-reorder)

test-browser: setup $(VENV)/.browser
	$(call TESTS,-m browser)

test-gpu: setup
	COLOBUS_TEST_GPU=1 $(BIN)/python -m pytest -m gpu

package: setup $(VENV)/.package
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(call TESTS,-m package tests/project/test_package.py)

# -W: a warning, such as a link that leads nowhere, is an error. -E -a: all pages are made anew. The
# test is of a script of a page; what it needs has 70 MB, so `make setup` does without.
docs: setup $(VENV)/.docs
	rm -rf build/docs
	$(BIN)/sphinx-build -q -E -a -W --keep-going -c docs/site . build/docs
	$(call TESTS,tests/docs/test_examples.py -k weights_and_biases)
	@echo "build/docs/index.html"

bench: setup
	$(BIN)/python -m benchmarks.run

# torch comes first and by itself: it is by far the largest, and a pin that cannot be had is told at
# once. What pip says is in a file, which is shown after a failure; a dot every two seconds shows that
# it goes on.
LOG := $(VENV)/install.log
QUIETLY = @echo "$(1) (log: $(LOG))"; { $(2); } >$(LOG) 2>&1 & job=$$!; \
  while kill -0 $$job 2>/dev/null; do sleep 2; printf .; done; echo; \
  wait $$job || { code=$$?; cat $(LOG); echo "this failed: $(1)"; exit $$code; }

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(call QUIETLY,installing torch into $(VENV); it is large, \
	  $(PIP) --upgrade "pip>=25.1" && $(PIP) torch)
	$(call QUIETLY,installing the other packages, $(PIP) -e ".[page$(comma)onnx]" --group dev)
	@touch $@

$(VENV)/.cluster: $(STAMP)
	@echo "installing Ray"
	$(PIP) --quiet -e ".[cluster,jobs]"
	@if test "$$(id -u)" = 0 && ! { command -v ip && command -v slurmctld; } >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq iproute2 \
	    munge slurm-client slurmctld slurmd; fi
	@touch $@

$(VENV)/.browser: $(STAMP)
	@echo "installing Chromium and its driver"
	$(PIP) --quiet --group browser
	@if test "$$(id -u)" = 0 && ! command -v chromedriver >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; fi
	@command -v chromedriver >/dev/null || { \
	  echo "Chromium is missing. Debian: sudo apt-get install -y chromium chromium-driver"; exit 1; }
	@touch $@

$(VENV)/.package: $(STAMP)
	$(PIP) --quiet --group package
	@touch $@

$(VENV)/.docs: $(STAMP)
	$(PIP) --quiet --group docs
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is missing: apt-get install python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is too old: Python 3.11 or newer is needed; make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(MAKE) --no-print-directory .venv-package
	@$(PYTHON) -m venv $(VENV)

# Debian and Ubuntu split venv from Python.
.PHONY: .venv-package
.venv-package: PACKAGE = $(shell $(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
.venv-package:
	@command -v apt-get >/dev/null && test "$$(id -u)" = 0 || { \
	  echo "Python's venv is missing. Debian and Ubuntu: sudo apt-get install -y $(PACKAGE)"; exit 1; }
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(PACKAGE)
