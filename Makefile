# Every target works on a fresh machine with python3.11+ and make: it prepares .venv when needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help install quickstart reproduce test test-live test-paper test-fast storm fuzz docs check format clean
help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

install: .venv/installed  ## create .venv and install Plexus with everything the targets below need

# torch goes first, alone and pinned: any other resolution may pull gigabytes of GPU libraries.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Plexus needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report,dev]'
	touch $@

quickstart: install  ## see Plexus learn under churn: 12 simulated hours in under a minute
	$(BIN)/plexus run experiments/quickstart.toml --out runs/quickstart --force

check: install  ## lint, format check, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check  ## everything, on all cores
	$(BIN)/pytest -n auto -q -m 'not live and not paper and not docs' --cov=plexus.protocol --cov-branch --cov-fail-under=95 --cov-report=term:skip-covered
	$(BIN)/plexus storm --seeds 1..200

test-live: install  ## sessions of live peers on this machine: fleets, chaos, intruders, partitions
	$(BIN)/pytest -q -rP -m live tests/live

test-paper: install  ## every figure and table of the paper at size tiny, and the page in a browser: minutes
	$(BIN)/pytest -q -m paper tests/studies

reproduce: install  ## the paper's figures and tables at size tiny: runs/reproduce-tiny/report.html
	$(BIN)/plexus reproduce all --size tiny

storm: install  ## fresh storms for MINUTES (default 10); prints the seeds and whatever it finds
	$(BIN)/plexus storm --minutes $(or $(MINUTES),10)

fuzz: install  ## bytes from outside for MINUTES (default 5) for each reader; needs atheris
	-$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt atheris
	$(BIN)/python -m fuzz $(or $(MINUTES),5)

test-fast: install  ## no training, no processes: under a minute
	$(BIN)/pytest -n auto -q -m 'not slow and not paper' --ignore=tests/learn --ignore=tests/live --ignore=tests/session --ignore=tests/baselines

docs: install  ## the documentation site, strict, into site/; runs every command and notebook it shows
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/pytest -n auto -q -m docs tests/docs
	@echo "read it: site/index.html"

format: install  ## apply ruff's formatting and safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove everything that can be made again
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
