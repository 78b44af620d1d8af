# Everything runs from .venv, which the first target that needs it makes: Python 3.11+, make and a
# package index are all that a machine must bring.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTO_OUT := clients/python
SEEDS ?= 10
# gRPC's handlers for a fork can abort a child before it has become the server that it was to be.
export GRPC_ENABLE_FORK_SUPPORT := false
LOCKS := client cli runtime storage agent local dev

.DEFAULT_GOAL := help
.PHONY: help run demo may-run may-demo test history history-planted bench lint format types imports proto proto-check lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-z-]*:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use it
run: may-run $(VENV)/.local ## Run the whole system here, in the foreground; Ctrl-C stops it
	@$(BIN)/python -m services.local run
demo: may-demo $(VENV)/.local ## One conversation on a private copy of the system, printed as it streams
	@$(BIN)/python -m services.local demo

##@ Work on it
test: $(VENV)/.dev ## Run every test
	$(BIN)/python -m pytest
history: $(VENV)/.dev ## Random histories over two storages, with faults: SEEDS=100 for the long run
	$(BIN)/python -m tests.history --seeds $(SEEDS)
history-planted: $(VENV)/.dev ## Bugs planted one at a time, each of which the histories must catch
	$(BIN)/python -m tests.history --planted
bench: $(VENV)/.local ## Measure storage beside its limits and its peers: ARGS=--quick for the short run
	@$(BIN)/python -m benchmarks $(ARGS)
lint: $(VENV)/.dev ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
format: $(VENV)/.dev ## Mend style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
types: $(VENV)/.dev ## Check types, strictly
	$(BIN)/mypy
imports: $(VENV)/.dev ## Check who imports whom
	$(BIN)/lint-imports
proto: $(VENV)/.dev ## Generate the Python code of protos/ into clients/python
	$(BIN)/python tools/proto.py
proto-check: $(VENV)/.dev ## Check that the generated code is fresh, and that the API breaks no one
	$(BIN)/python tools/proto.py --check
lock: $(VENV)/.dev ## Lock every dependency group anew in requirements/
	@for group in $(LOCKS); do \
	  $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	    --group pyproject.toml:$$group -o requirements/$$group.txt || exit 1; \
	done
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  benchmarks/requirements.in -o benchmarks/requirements.txt

##@ Tidy
clean: ## Remove the environment and caches; data in .askback stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# What would stop the start is told before the minute that the installation takes.
may-run may-demo: may-%: | $(VENV)/bin/python
	@$(BIN)/python -m services.local.before_setup $*

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.local: requirements/local.txt clients/python/pyproject.toml | $(VENV)/bin/python
	@echo "Setting up $(VENV): about a minute, some 370 MB"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/local.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e clients/python
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.local
	@echo "Adding the tools of development to $(VENV): some 230 MB more"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@
