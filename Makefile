# Each target is one line that calls a command or a script; people can run those themselves.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Without compiled modules, which images set it to save space, a dbt command compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE
export DBT_PROFILES_DIR ?= $(CURDIR)/profiles

.DEFAULT_GOAL := help
.PHONY: help build test check-all lint unit integration functional conformance catalogs mutants dist docs report page stop bench bench-maintenance bench-scale soak cluster cluster-stop clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Set up once, and again only when what it installs has changed.
.venv/.ready: requirements.lock requirements-build.lock requirements-java.lock pyproject.toml scripts/setup scripts/install.sh
	@scripts/setup

# What tests and lint need beside that; the demo does without.
.venv/.ready-dev: .venv/.ready requirements-dev.lock
	@scripts/setup --dev

# Elementary needs another version of one package than dbt here.
.venv-elementary/.ready: requirements-build.lock requirements-elementary.lock scripts/elementary scripts/install.sh
	@scripts/elementary

# Streamlit, of which nothing else here has need: it comes when the page is first asked for.
.venv/.ready-page: .venv/.ready requirements-page.lock scripts/page
	@scripts/page

build: .venv/.ready ## set up, and build each landing drop behind the gate (LANDING=<dir>)
	@sparkwap build

test: .venv/.ready-dev ## set up, lint, and run the most important tests (minutes)
	@scripts/test

check-all: .venv/.ready-dev ## run every test (hours); scripts/check-all <part> runs one part
	@scripts/check-all

lint: .venv/.ready-dev ## ruff, mypy, import-linter and sqlfluff
	@scripts/lint

unit: .venv/.ready-dev ## tests in one process, without Spark
	@scripts/check-all unit

integration: .venv/.ready-dev ## tests that start processes, but no Spark
	@scripts/check-all integration

functional: .venv/.ready-dev ## tests on a live server
	@scripts/check-all functional

conformance: .venv/.ready-dev ## all of dbt's own adapter suite (docs/adapter-suite.md)
	@scripts/check-all conformance

mutants: .venv/.ready-dev ## change the gate's decisions; list what no test notices (hours)
	@scripts/mutants

catalogs: .venv/.ready-dev ## the gate's tests on the other kinds of catalog (docs/catalogs)
	@scripts/catalogs

docs: .venv/.ready ## docs/ as a site: target/site/index.html
	@scripts/docs

dist: ## wheel and sdist in dist/, checked (scripts/dist --install: tried in an empty environment)
	@scripts/dist

report: .venv/.ready .venv-elementary/.ready ## the Elementary report of the lake: target/report/index.html
	@sparkwap report --all-schemas --python .venv-elementary/bin/python

page: .venv/.ready-page ## the quality page, on this machine alone: runs, branches, tests (docs/page.md)
	@sparkwap page

stop: .venv/.ready ## stop the server of .lake
	@sparkwap server stop

bench: .venv/.ready-dev ## benchmarks of start, landing, gate, states, histories, diffs and maintenance, each against an alternative
	@for what in start landing gate cdc scd2 diff maintenance; do python benchmarks/$$what.py || exit; done

bench-maintenance: .venv/.ready-dev ## incremental loads by layout and write mode, compactions, growing metadata; with plots
	@python benchmarks/loads.py --plots docs/images && python benchmarks/maintenance.py

bench-scale: .venv/.ready-dev ## growth with the lake, many runs at once, 100 M rows, TPC-H; needs PostgreSQL and tpchgen-cli
	@python benchmarks/scale.py && python benchmarks/scale.py --runs 10 2000
	@for what in runs large tpch; do python benchmarks/$$what.py || exit; done

soak: .venv/.ready-dev ## hours: all kill points, long histories, many event sets, 2,000 nodes on one server, all mutants
	@scripts/soak

cluster: .venv/.ready-dev ## a Spark cluster to try: two workers, PostgreSQL, an S3 store (docs/deploy/cluster.md)
	@scripts/cluster

cluster-stop: ## stop the cluster; its lake is gone with it
	@scripts/cluster --stop

clean: ## stop the server, and remove the lake and all that was built
	@scripts/clean
