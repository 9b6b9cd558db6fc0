# Nothing is needed but Python 3.11 or later and make; everything else goes into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS ?=
BENCH ?=
SIMULATE ?=
CHAOS ?=
MUTANTS ?=
MATRIX ?=
PORT ?= 8000
# Tests wait more than they compute: one more than the cores of a small machine.
WORKERS ?= 3
# Images often set it: each process of a test would then compile SQLAlchemy again, which costs more than the test.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test soak simulate mutants chaos failover cluster matrix bench capacity screenshots docs lint format clean

help:  ## these lines
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

run: $(READY)  ## ids from the embedded SQLite, then the service before it
	@$(BIN)/allocator next order -n 5
	@echo "These came from ./allocator.db; run it again for the next five. More: $(BIN)/allocator --help"
	@echo
	@echo "Now the service; in another terminal, try:"
	@echo "    curl -X POST http://127.0.0.1:$(PORT)/v1/sequences/order/ids"
	@echo "    curl -X POST 'http://127.0.0.1:$(PORT)/v1/sequences/order/ids?count=10'"
	@echo "    curl -X POST http://127.0.0.1:$(PORT)/v1/snowflake"
	@echo "    curl http://127.0.0.1:$(PORT)/v1/inspect/5016762319896585"
	@echo "    curl http://127.0.0.1:$(PORT)/metrics"
	@echo "and look at http://127.0.0.1:$(PORT)/docs; Ctrl-C ends it."
	@echo
	@$(BIN)/allocator serve --open --port $(PORT) --logs text

test: $(READY)  ## everything quick, on every database that can be had
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(TESTS)

simulate: $(READY)  ## a hundred thousand simulated worlds of faults; the report is reports/simulate.md
	PYTHONPATH=tests $(BIN)/python -m simulation $(SIMULATE)

soak: $(READY)  ## the long runs, minutes each; the report is reports/soak.md
	$(BIN)/python -m pytest tests/endurance --capture=no --verbose

failover: $(READY)  ## servers replaced by standbys, backups and copies that lack commits; the report is reports/failover.md
	$(BIN)/python -m pytest tests/failover --capture=no --verbose

chaos: $(READY)  ## workers, servers and the network in trouble, ten minutes a database; the report is reports/chaos.md
	$(BIN)/python -m pytest tests/chaos --capture=no --verbose --seconds 600 $(CHAOS)

mutants: $(READY)  ## wrong variants of the library, each of which the tests must find; the report is reports/mutants.md
	PYTHONPATH=tests $(BIN)/python -m mutants $(MUTANTS)

matrix: $(READY)  ## the tests on every Python, and on both lines of SQLAlchemy; MATRIX=--tenth runs a tenth of them
	$(BIN)/python tests/matrix.py $(MATRIX)

cluster: $(READY)  ## three Galera nodes, and three of Group Replication, killed and isolated under load; the report is reports/cluster.md
	$(BIN)/python -m pytest tests/cluster --capture=no --verbose

bench: $(READY)  ## how fast it is, beside what people would take instead; the report is reports/bench/bench.txt
	PYTHONPATH=tests $(BIN)/python -m benchmarks --servers $(BENCH)

capacity: $(READY)  ## what the database would see of ten thousand processes: a model, on the real rules
	$(BIN)/python -m benchmarks.capacity --to reports/capacity

screenshots: $(READY)  ## the pictures of docs/console.md, of a service with traffic; needs Chromium, and Pillow to keep them small
	PYTHONPATH=tests $(BIN)/python -m screenshots

docs: $(READY)  ## the documentation as a site; it is site/index.html
	$(BIN)/uv pip install --quiet --python $(BIN)/python --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-matrix reports dist site

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' 'uv>=0.9'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[all]' --group dev || \
		$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	@touch $@
