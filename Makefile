# Everything a newcomer needs: `make demo` and `make test`. `make` alone lists the targets.
# On the command line: PYTHON (makes the environment), VENV, TORCH, TORCH_INDEX_URL, TORCH_ALLOW_CUDA.

PYTHON ?= python3
VENV ?= .venv
TORCH ?=
TORCH_INDEX_URL ?=
TORCH_ALLOW_CUDA ?=
export TORCH TORCH_INDEX_URL TORCH_ALLOW_CUDA

# pytest's: `make test PYTEST_ARGS='tests/resiliency -k journal'`
PYTEST_ARGS ?=
WORKERS ?= 2

override BIN := $(abspath $(VENV))/bin
override SETUP := $(PYTHON) scripts/setup-env --venv $(VENV)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench score chaos clean dev-setup slurm

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## create .venv and install; quick once it is done, and keeps a torch that is there
	@$(SETUP) --extra train

demo: setup ## text -> pre-training -> evaluation on this machine, no Slurm needed
	@export TRAINMASTER_HOME=$(CURDIR)/.trainmaster; \
	$(BIN)/python -m orchestrator submit examples/quickstart.yaml --cluster local --wait; \
	$(BIN)/python -m orchestrator status

test: dev-setup slurm ## run all tests, on a Slurm of their own where this is root
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

lint: dev-setup ## ruff, mypy, import-linter, shellcheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@# templates are no shell yet, and golden job scripts have a shellcheck test of their own
	git ls-files -z -- ':!*.j2' ':!scripts/devcluster/data' ':!tests/*/golden/*' \
	  | xargs -0 awk 'FNR == 1 && /^#!.*[\/ ](ba)?sh$$/ { print FILENAME } { nextfile }' | xargs shellcheck

chaos: dev-setup slurm ## short runs through random faults: N of them (20), from SEED on
	@TRAINMASTER_CHAOS=$(or $(N),20) $(if $(SEED),TRAINMASTER_CHAOS_SEED=$(SEED)) \
	  $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS) \
	  tests/chaos/test_bad_days.py tests/chaos/test_bad_training.py tests/slurm/test_bad_days.py

bench: dev-setup ## print the measured figures (BENCH='cold-start journal' for some)
	@$(BIN)/python scripts/bench/run $(BENCH)

score: dev-setup ## triage against the labelled cases, each miss (SCORE_ARGS='--all DIR')
	@$(BIN)/python scripts/score-triage.py $(SCORE_ARGS)

clean: ## remove caches and builds; .venv and .trainmaster stay
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

dev-setup:
	@$(SETUP) --extra train --extra dev

# Root without Slurm gets it from Debian's packages, but not where sbatch stands without a
# controller: that is a node of somebody's cluster. Who goes without is told what was skipped.
slurm:
	@PATH="$$PATH:/usr/sbin:/sbin"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && { command -v slurmctld || ! command -v sbatch; } >/dev/null; then \
	  $(PYTHON) scripts/dev-cluster install; \
	fi
