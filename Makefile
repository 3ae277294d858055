# One environment in .venv, made from the lock files; each command makes what it needs.
# ARGS is passed on: make run ARGS=--once, make test ARGS="-k claim", make lock ARGS=--upgrade

PYTHONS := python3.13 python3.12 python3.11 python3
VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALL := $(PYTHON) -m pip install -qq --no-input --disable-pip-version-check
COMPILE := $(VENV)/bin/uv pip compile setup.cfg -q --universal --python-version 3.11 \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links --extra build
UV_VERSION := 0.13.9
# Most tests wait for processes: three at a time on two cores.
TESTS_AT_ONCE := 3

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check format docs bench lock clean

help: ## Show what each command does
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp ## Run the whole stack here, with a sample; ARGS=--once ends after it
	@$(PYTHON) -m service.stack $(ARGS)

test: $(VENV)/test.stamp ## Run all tests, against a real Redis server
	@$(PYTHON) -m pytest -n $(TESTS_AT_ONCE) $(ARGS)

# What failed beside other tests is tried once more alone: some of them measure time.
check: $(VENV)/test.stamp ## Run what CI runs: format, lint, types, imports, tests
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports
	$(MAKE) --no-print-directory test || \
	    $(PYTHON) -m pytest --last-failed --last-failed-no-failures none

format: $(VENV)/test.stamp ## Format the code and mend what the linter can mend
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

docs: $(VENV)/test.stamp ## Write the generated parts of ARCHITECTURE.md anew
	@$(PYTHON) -m tests.architecture.document

bench: $(VENV)/test.stamp ## Measure the figures and print them as one table
	@$(PYTHON) -m tests.bench $(ARGS)

lock: $(PYTHON) ## Write the lock files anew from setup.cfg; ARGS=--upgrade takes newer releases
	$(INSTALL) uv==$(UV_VERSION)
	$(COMPILE) -o requirements.lock $(ARGS)
	$(COMPILE) --extra test -c requirements.lock -o requirements-test.lock $(ARGS)

clean: ## Remove the environment and all caches; the data in var/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf *.egg-info build dist
	find jobs service scheduler tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/run.stamp: requirements.lock setup.cfg $(PYTHON)
	@echo "Installing what genqueue needs into $(VENV) (a minute at the first time)"
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/test.stamp: requirements-test.lock $(VENV)/run.stamp
	@echo "Installing what the tests need into $(VENV)"
	@$(INSTALL) --require-hashes -r requirements-test.lock
	@touch $@

# A name on PATH may be a shim that runs nothing, or a Python without venv: each one is tried.
$(PYTHON):
	@found=; for name in $(PYTHONS); do \
	    version=$$($$name -c 'import platform; print(platform.python_version())' 2>/dev/null) \
	        || continue; \
	    if $$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	        2>/dev/null; then \
	        echo "Making $(VENV) with Python $$version"; \
	        exec $$name -m venv --clear $(VENV); \
	    fi; \
	    found="$$found $$name=$$version"; \
	done; \
	echo "genqueue needs Python 3.11 or newer with its venv module; found:$${found:- no Python}" >&2; \
	exit 1
