# Needs only Python 3.11 or later and make; everything else is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
NIGHT := $(VENV)/.ready-night
TESTS ?=
BENCH ?=
SIMULATE ?=
CHAOS ?=
MUTANTS ?=
PART ?=
RATCHETS ?=
PORT ?= 8000
# Twice the cores of a small machine, since tests wait more than they compute.
WORKERS ?= 4
# Images often set it: each process of a test would then compile SQLAlchemy again, which costs more than the test.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test soak simulate mutants chaos failover cluster nightly bench screenshots docs lint ratchets format clean

help:  ## print this help
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

define TRY

The service is ready. In another terminal, try:
    curl -X POST http://127.0.0.1:$(PORT)/v1/tags/order/ids
    curl -X POST 'http://127.0.0.1:$(PORT)/v1/tags/order/ids?count=10'
    curl -X POST 'http://127.0.0.1:$(PORT)/v1/tags/order/segments?size=500'
    curl -X POST http://127.0.0.1:$(PORT)/v1/tickets/job
    curl -X POST http://127.0.0.1:$(PORT)/v1/snowflake
    curl http://127.0.0.1:$(PORT)/v1/inspect/5016762319896585
Press Ctrl-C to stop. The console is at http://127.0.0.1:$(PORT)/
endef
export TRY
# What is ready at once is another service on this port, and ours then says so.
IS_READY := $(BIN)/python -c 'from urllib.request import urlopen; urlopen("http://127.0.0.1:$(PORT)/readyz")'

run: $(INSTALLED)  ## draw ids from SQLite, start the service, and print lines to try
	@$(BIN)/allocator next order -n 5 --url sqlite:///allocator.db
	@echo "These ids are from ./allocator.db; run it again for the next five. More: $(BIN)/allocator --help"
	@echo
	@{ $(IS_READY) && exit; until $(IS_READY) || ! kill -0 $$$$; do sleep 0.1; done; kill -0 $$$$ && echo "$$TRY"; } 2>/dev/null & \
		exec $(BIN)/allocator serve --open --port $(PORT) --log-format text --url sqlite:///allocator.db

test: $(READY)  ## the quick tests, on every available database, with a retry of what failed
	PYTHONPATH=tests $(BIN)/python -m pytest --retry --numprocesses $(WORKERS) --dist loadfile -m "not nightly" --durations=40 $(TESTS)

nightly: $(NIGHT)  ## what no change waits for, in parts: PART="mutants failover", or all
	$(BIN)/nox $(if $(PART),--session $(PART))

simulate: $(READY)  ## a hundred thousand simulations with faults; report: reports/simulate.md
	PYTHONPATH=tests $(BIN)/python -m simulation $(SIMULATE)

soak: $(NIGHT)  ## long runs, minutes each; report: reports/soak.md
	$(BIN)/python -m pytest tests/endurance --capture=no --verbose

failover: $(READY)  ## failovers to standbys, backups and copies that lack commits; report: reports/failover.md
	$(BIN)/python -m pytest tests/failover --capture=no --verbose

chaos: $(READY)  ## faults of workers, servers and the network, twenty minutes per database; report: reports/chaos.md
	$(BIN)/python -m pytest tests/chaos --capture=no --verbose --seconds 600 $(CHAOS)

mutants: $(READY)  ## wrong variants of the library, each of which a test must detect; report: reports/mutants.md
	PYTHONPATH=tests $(BIN)/python -m mutants $(MUTANTS)

cluster: $(READY)  ## Galera and Group Replication, nodes killed and isolated under load; report: reports/cluster.md
	$(BIN)/python -m pytest tests/cluster --capture=no --verbose

bench: $(NIGHT)  ## speed compared with alternatives; report: reports/bench/bench.txt
	PYTHONPATH=tests $(BIN)/python -m benchmarks --servers $(BENCH)

screenshots: $(NIGHT)  ## pictures for docs/service.md; needs Chromium, and Pillow to compress them
	PYTHONPATH=tests $(BIN)/python -m tools.screenshots

docs: $(VENV)/.ready-docs  ## build the documentation: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing examples/fastapi_app
	$(BIN)/lint-imports --no-cache

ratchets: docs  ## hold the numbers that may only fall; RATCHETS=--write writes them
	PYTHONPATH=tests $(BIN)/python -m tools.ratchets $(RATCHETS)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-matrix .nox reports dist site

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'uv>=0.9'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[server]' || \
		$(BIN)/python -m pip install --quiet --editable '.[server]'
	@touch $@

$(READY): $(INSTALLED)  # and what the tests need
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[all]' --group test --group lint || \
		{ $(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' && \
		$(BIN)/python -m pip install --quiet --editable '.[all]' --group test --group lint; }
	@touch $@

$(VENV)/.ready-%: $(READY)  # a group of packages beside them
	$(BIN)/uv pip install --quiet --python $(BIN)/python --group $*
	@touch $@
