# Every target does its own set-up: Python 3.11 or newer with its venv module, and make, are all it needs.
# Only relative paths: the folder of the clone may have spaces in its name.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
MINISTACK := .venv-ministack
MINISTACK_STAMP := $(MINISTACK)/.installed
DEPLOY := .venv-deploy
DEPLOY_STAMP := $(DEPLOY)/.installed
NODE := tests/servers/node
NODE_STAMP := $(NODE)/node_modules/.installed

# A machine may say that Python keeps nothing that it compiled: each of the hundreds of processes of the tests would
# compile the product, and pytest all tests, anew.
unexport PYTHONDONTWRITEBYTECODE

# Remedies, each one line.
NO_PYTHON = $(PYTHON) was not found: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)
OLD_PYTHON = $(PYTHON) is older than Python 3.11: install a newer one, or name it with `make PYTHON=python3.12`
NO_VENV = $(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv)
NO_PROMETHEUS = prometheus or promtool was not found: install it (Debian: apt-get install --no-install-recommends prometheus)
NO_SYSTEMD = systemd-analyze was not found: install it (Debian: apt-get install systemd)
NO_CHROMIUM = chromium was not found: install it (Debian: apt-get install chromium)
NO_NODE = node or npm was not found: install Node.js 18 or newer (Debian: apt-get install nodejs npm)

# True, as text, where the shell command succeeds.
succeeds = $(shell $(1) >/dev/null 2>&1 && echo yes)

# The environment names the folder it was made in: a clone that was moved or copied gets a new one, and so does
# one whose Python is gone.
ifneq ($(shell cat $(STAMP) 2>/dev/null && $(RUN) -c '' 2>&1),$(CURDIR))
.PHONY: $(STAMP)
endif

# These work wherever the clone is, unless their Python is gone.
ifneq ($(call succeeds,$(MINISTACK)/bin/python -c ''),yes)
.PHONY: $(MINISTACK_STAMP)
endif

ifneq ($(call succeeds,$(DEPLOY)/bin/python -c ''),yes)
.PHONY: $(DEPLOY_STAMP)
endif

# Every client of AWS that the tests make, in any process, notes its calls there; `make policy` compares.
CALLS := .aws-calls
NOTED := test test-virtual test-simulation test-essential test-processes test-contention test-side-by-side test-servers test-others \
	test-kills test-hosts-on-servers
$(NOTED): export AWS_CALLS_FOLDER := $(CURDIR)/$(CALLS)
$(NOTED): export BOTOCORE_EXPERIMENTAL__PLUGINS := calls=tests.aws_calls

.NOTPARALLEL:
.PHONY: $(NOTED) help venv servers lint test-deploy policy cases-full bench-store simulate mutants demo
.PHONY: demo-kinesis has-node has-chromium has-systemd has-prometheus constraints clean
.DEFAULT_GOAL := help

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf 'make %-16s %s\n' "$$name" "$$text"; done

venv: $(STAMP) ## Make the virtual environment, if pyproject.toml or constraints.txt changed.
	@:

$(STAMP): pyproject.toml constraints.txt
	$(if $(call succeeds,command -v $(PYTHON)),,$(error $(NO_PYTHON)))
	$(if $(call succeeds,$(PYTHON) -c 'import sys; sys.exit(sys.hexversion < 0x030B0000)'),,$(error $(OLD_PYTHON)))
	$(if $(call succeeds,$(PYTHON) -c 'import ensurepip; import venv'),,$(error $(NO_VENV)))
	@echo "== virtual environment: $(VENV), about a minute"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(RUN) -m pip install -qq --disable-pip-version-check --no-input -c constraints.txt -e '.[dev]'
	@printf '%s\n' "$(CURDIR)" > $(STAMP)

servers: $(STAMP) $(MINISTACK_STAMP) $(NODE_STAMP) ## Install the servers of make test-servers, some of them with npm.
	@:

$(MINISTACK_STAMP): constraints-ministack.txt | $(STAMP)
	@echo "== ministack: $(MINISTACK)"
	@$(PYTHON) -m venv --clear $(MINISTACK)
	@$(MINISTACK)/bin/python -m pip install -qq --disable-pip-version-check --no-input -r constraints-ministack.txt
	@touch $(MINISTACK_STAMP)

$(DEPLOY_STAMP): constraints-deploy.txt tests/deploy/artefacts/kubectl.py | $(STAMP)
	@echo "== tools for deploy/: $(DEPLOY)"
	@$(PYTHON) -m venv --clear $(DEPLOY)
	@$(DEPLOY)/bin/python -m pip install -qq --disable-pip-version-check --no-input -r constraints-deploy.txt
	@$(RUN) -m tests.deploy.artefacts.kubectl $(DEPLOY)/bin/kubectl
	@touch $(DEPLOY_STAMP)

$(NODE_STAMP): $(NODE)/package.json
	$(if $(call succeeds,command -v node && command -v npm),,$(error $(NO_NODE)))
	@echo "== servers on Node: $(NODE)/node_modules"
	@rm -rf $(NODE)/node_modules
	@cd $(NODE) && npm install --ignore-scripts --no-package-lock --no-audit --no-fund --no-update-notifier \
		--loglevel=error >/dev/null
	@touch $(NODE_STAMP)

lint: $(STAMP) ## Run ruff and mypy --strict.
	@echo "== ruff"
	@$(RUN) -m ruff check --quiet .
	@echo "== mypy --strict"
	@$(RUN) -m mypy --no-error-summary

test: lint test-virtual test-simulation test-essential ## Run all checks and tests but the long ones with real processes and servers; about 8 minutes.
	@:

test-virtual: $(STAMP)
	@echo "== tests in virtual time"
	@$(RUN) -m pytest -q -n 2 --dist worksteal -m 'not processes and not servers and not deploy and not whole_year and not bench' \
		--ignore tests/simulation/test_simulation.py

test-simulation: $(STAMP)
	@echo "== simulation: old failures, fresh seeds, runs that repeat"
	@$(RUN) -m pytest -q -s tests/simulation/test_simulation.py

# Those with real processes mostly wait for time to pass, so more of them run at once than there are cores.
test-essential: $(STAMP)
	@echo "== essential tests with real processes"
	@$(RUN) -m pytest -q -n 3 --dist worksteal -m 'processes and essential and not servers and not deploy and not whole_year and not bench'

test-processes: test-contention test-side-by-side ## Run the other tests with real processes; about 5 minutes.
	@:

# Four processes on one file, and how seldom their locks are in each other's way: what else runs would be what is measured.
test-contention: $(STAMP)
	@echo "== contention for one lease file, alone"
	@$(RUN) -m pytest -q tests/processes/test_contention.py

test-side-by-side: $(STAMP)
	@echo "== tests with real processes"
	@$(RUN) -m pytest -q -n 3 --dist worksteal \
		-m 'processes and not essential and not servers and not deploy and not whole_year and not bench' \
		--ignore tests/processes/test_contention.py

test-servers: test-others test-kills test-hosts-on-servers ## Run the tests on servers and programs that make test does without: ministack, Chromium.
	@:

test-others: has-chromium servers
	@echo "== tests on other servers"
	@$(RUN) -m pytest -q -n 2 --dist worksteal \
		-m 'servers and not processes and not deploy and not whole_year and not bench'

# Its bounds leave the machine a quarter of a second: what else runs would be what is measured.
test-kills: servers
	@echo "== kills of hosts on DynamoDB, alone"
	@$(RUN) -m pytest -q tests/processes/dynamodb/test_kills.py

# Two at once: what computes beside them in CI makes hosts on a slow server miss their beats with three.
test-hosts-on-servers: servers
	@echo "== field cases with real processes on DynamoDB and Kinesis"
	@$(RUN) -m pytest -q -n 2 --dist worksteal -m 'processes and servers and not deploy and not whole_year and not bench' \
		--ignore tests/processes/dynamodb/test_kills.py tests/processes

test-deploy: has-systemd has-prometheus servers $(DEPLOY_STAMP) ## Test deploy/ and the packages, with linters, published schemas and a new environment.
	@echo "== deploy/ and the packages"
	@$(RUN) -m pytest -q -n 2 --dist loadfile -m deploy tests/deploy

policy: $(STAMP) ## Compare the IAM policy with the calls that make test and make test-servers made since make clean.
	@echo "== IAM policy"
	@$(RUN) -m tests.aws_calls $(CALLS)

cases-full: servers ## Run the tests of field faults and of locks unscaled and with all repeats; long.
	@echo "== field faults, unscaled"
	@PROCESSOR_HOST_CASES=full $(RUN) -m pytest -v -m 'not deploy and not whole_year and not bench' \
		-k 'test_c0 or test_c1 or test_c2 or test_c3 or test_c4 or test_c5 or test_c6 or test_counter'

bench-store: servers ## Measure what ten hosts at rest cost on DynamoDB, on dynalite and ministack; about 6 minutes.
	@$(RUN) -m tests.stores.bench_dynamodb

simulate: $(STAMP) ## Run N fresh seeds of the simulation on all cores (N=5000), or those from BASE on (BASE=123).
	@$(RUN) -m tests.simulation --many $(or $(N),1000) $(if $(BASE),--base $(BASE))

mutants: $(STAMP) ## Break each rule of the product in turn and show what sees it, schedule or seed; about 8 minutes.
	@$(RUN) -m tests.simulation.mutants $(ONLY)

demo: $(STAMP) ## Run the demo: three hosts, one is killed, nothing is lost.
	@$(RUN) -m processor_host.demo

demo-kinesis: has-node $(STAMP) $(NODE_STAMP) ## Run it on Kinesis and DynamoDB served here, with a split and a merge; needs Node.
	@$(RUN) -m tests.demo.on_servers

# First of all, so that nothing is made where it is missing.
has-node:
	$(if $(call succeeds,command -v node && command -v npm),,$(error $(NO_NODE)))
	@:

has-prometheus:
	$(if $(call succeeds,command -v prometheus && command -v promtool),,$(error $(NO_PROMETHEUS)))
	@:

has-systemd:
	$(if $(call succeeds,command -v systemd-analyze),,$(error $(NO_SYSTEMD)))
	@:

has-chromium:
	$(if $(call succeeds,command -v chromium),,$(error $(NO_CHROMIUM)))
	@:

constraints: ## Resolve every dependency anew and write constraints.txt.
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install -qq --disable-pip-version-check --no-input -e '.[dev]'
	@sed -n '/^#/p' constraints.txt > $(VENV)/constraints.txt
	@$(RUN) -m pip freeze --exclude-editable >> $(VENV)/constraints.txt
	@cp $(VENV)/constraints.txt constraints.txt
	@printf '%s\n' "$(CURDIR)" > $(STAMP)

clean: ## Remove everything that make and the tools made.
	@rm -rf $(VENV) $(MINISTACK) $(DEPLOY) $(NODE)/node_modules build dist
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .artefacts
	@find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
