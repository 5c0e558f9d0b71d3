# Every target works on a fresh machine with python3.11+ and make: it prepares .venv when needed.
PYTHON ?= python3
BIN := .venv/bin

PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help install develop quickstart reproduce test test-live test-paper test-fast smoke drill crowd soak relay large-model nightly storm fuzz docs trial wheel \
	check format clean
help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

install: .venv/installed  ## create .venv and install what running Plexus needs
develop: .venv/developed  ## the same, and the linters, test and documentation tools of the targets below

# torch goes first, alone and pinned: any other resolution may pull gigabytes of GPU libraries.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Plexus needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e '.[report,dashboard]'
	touch $@

# byzfl, whose rules ours are compared with, goes last and alone: what it needs otherwise pulls torchvision.
.venv/developed: .venv/installed
	$(PIP) -e '.[report,dashboard,dev]'
	$(PIP) --no-deps byzfl
	touch $@

quickstart: install  ## see Plexus learn under churn: 12 simulated hours in under a minute
	$(BIN)/plexus run experiments/quickstart.toml --out runs/quickstart --force

reproduce: install  ## the paper's figures and tables at size tiny: runs/reproduce-tiny/report.html
	$(BIN)/plexus reproduce all --size tiny

storm: install  ## fresh storms for MINUTES (default 10); prints the seeds and whatever it finds
	$(BIN)/plexus storm --minutes $(or $(MINUTES),10)

fuzz: install  ## bytes from outside for MINUTES (default 5) for each reader; needs atheris
	-$(PIP) atheris
	$(BIN)/python -m fuzz $(or $(MINUTES),5)

check: develop  ## lint, format check, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

PROTOCOL = tests/protocol tests/baselines
EVERYWHERE = -n auto -q -m 'not live and not paper and not docs and not trial and not drill'

test: check  ## everything, on all cores; what is covered of the protocol is counted in its own tests alone
	$(BIN)/pytest $(EVERYWHERE) $(PROTOCOL) --cov=plexus.protocol --cov-branch --cov-fail-under=95 --cov-report=term:skip-covered
	$(BIN)/pytest $(EVERYWHERE) $(PROTOCOL:%=--ignore=%)
	$(BIN)/plexus storm --seeds 1..200

test-fast: develop  ## no training, no processes: under a minute
	$(BIN)/pytest -n auto -q -m 'not slow and not paper and not trial and not drill' --ignore=tests/learn --ignore=tests/live --ignore=tests/experiment --ignore=tests/baselines

test-live: develop  ## sessions of live peers on this machine: fleets, chaos, intruders, partitions
	$(BIN)/pytest -q -rP -m live tests/live

test-paper: develop  ## every figure and table of the paper at size tiny, and the page in a browser: minutes
	$(BIN)/pytest -q -m paper tests/studies

smoke: develop  ## four live peers, one killed, one left by a visitor, one revoked: under two minutes
	$(BIN)/pytest -q -rP -m smoke tests/live

drill: develop  ## eight hospitals, twenty rounds and all that goes wrong, SEED=1, NAT=1 for all but one behind NAT: ten minutes; needs root for its network
	DRILL_SEED=$(or $(SEED),1) DRILL_NAT=$(NAT) $(BIN)/pytest -q -s -o faulthandler_timeout=0 -m drill tests/live

crowd: develop  ## sixty peers that come and go for MINUTES (default 10): errors, memory, CPU of the idle
	$(BIN)/python benchmarks/endurance.py crowd --minutes $(or $(MINUTES),10)

soak: develop  ## a day of operation within MINUTES (default 30): memory, descriptors, logs and state must not grow
	$(BIN)/python benchmarks/endurance.py soak --minutes $(or $(MINUTES),30)

relay: develop  ## models by way of a relay: at least 0.7 of its link; needs root for its network
	$(BIN)/python -m benchmarks.relay

large-model: develop  ## six peers with a model of 1 GB: memory, throughput, pings; needs 24 GB of memory and an idle machine
	$(BIN)/python -m benchmarks.large_model

docs: develop  ## the documentation site, strict, into site/; runs every command and notebook it shows
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/pytest -n auto -q -m docs tests/docs
	@echo "read it: site/index.html"

# One after the other, whatever -j says: fleets need the machine for themselves. All of it, whatever fails.
nightly:  ## hours: live peers, the drill, a crowd, a soak, a relay, a large model, the paper, the documentation, every reader fuzzed, half an hour of storms
	@failed=; for target in test-live drill 'drill NAT=1' crowd 'soak MINUTES=30' relay large-model test-paper docs 'fuzz MINUTES=5' 'storm MINUTES=30'; do \
		$(MAKE) --no-print-directory $$target || failed="$$failed $${target%% *}"; \
	done; test -z "$$failed" || { echo "nightly: failed:$$failed"; exit 1; }

trial: develop  ## the wheel in an empty environment, as a new user would: quick start, own data, fleet, dashboard
	$(BIN)/pytest -q -rP -m trial tests/test_wheel.py

wheel: develop  ## the source distribution and the wheel, into dist/
	$(BIN)/python -m build

format: develop  ## apply ruff's formatting and safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove everything that can be made again
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
