# SPDX-License-Identifier: Apache-2.0
# Two commands need nothing prepared on Debian 12: `make demo` (as root) and `make test`.

SHELL := /bin/bash
# Agents, switches and workers are many short processes of the same modules: Python is to compile these once.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

# Settings of a demo: empty means the scenario's own.
SWITCH ?= gradlane
SCENARIO ?=
WORKERS ?=
SERVERS ?=
RATE ?=
BUFFER ?=
STEPS ?=
SEED ?=
ARMS ?=
MODEL ?=
# The topology of a demo (empty: the scenario's own) and of `make mininet` (empty: star).
TOPO ?=
LEAVES ?=
SPINES ?=
HOSTS ?=
# Options of `make bench-training`, e.g. TRAINING="--scenarios incast --arms gradlane-switch-sum,ps-tcp".
TRAINING ?=
# Options of `make study`, e.g. STUDY="--models cnn --seeds 1 --p 0,10".
STUDY ?=
# The same of `make study-sums`, e.g. STUDY_SUMS="--models cnn --seeds 1".
STUDY_SUMS ?=
# Options of `make bench-sync`, e.g. SYNC="--cases slow5,tail3 --arms all --seeds 1,2,3,4,5".
SYNC ?=
# Options of `make bench-agent`, e.g. AGENT="--hosts 2,4 --sizes 1MiB --places loopback --variants gloo,shared".
AGENT ?=
# Options of `make bench-stragglers`, e.g. STRAGGLERS="--hosts 16 --rate 25mbit --size 512KiB --cases late,two-late,slow-link".
STRAGGLERS ?=
# Options of `make sim` and `make bench-sim`, e.g. SIM="--only incast --seeds 1,2,3 --arms gradlane-p0,gradlane-p3".
SIM ?=
# Options of `make dashboard`, e.g. DASHBOARD="--simulated large" or "--recording FILE".
DASHBOARD ?=
# On what `make containers` builds: an image, or "mirror".
BASE ?=
# How long `make fuzz`, `make soak` and `make soak-fabric` run, in s; empty means their own.
SECONDS ?=

# Of `make chaos`: how many events, and which store; SEED repeats a run.
EVENTS ?=
STORE ?=

# What pip is asked for; elsewhere e.g. TORCH="torch --index-url https://download.pytorch.org/whl/cpu" for a small build.
TORCH ?= torch==2.13.0
# Debian's mininet package is for Debian's own Python, 3.11 at most.
PYTHON ?= /usr/bin/python3
# Of `make test-pythons`.
PYTHONS ?= python3.10 python3.12 python3.13
VENV ?= .venv
# p4runtime-shell wants a protobuf that is older than everything else here.
SHELL_VENV := $(VENV)/p4runtime-shell
# TensorFlow wants versions of some packages that nothing else here does.
FRAMEWORKS_VENV := .venv-frameworks
MXNET_VENV := .venv-mxnet
# What builds the site of the documentation, in exact versions.
DOCS_VENV := .venv-docs
SITE := out/docs
# What simulates: ns-3, and what its studies import, without PyTorch.
SIM_VENV := .venv-sim
SIM_PROGRAM := sim/build/gradlane-sim
SIM_PACKAGES := gcc g++ make nlohmann-json3-dev
SLURM_PACKAGES := slurmctld slurmd slurm-client munge
# What builds and checks packages, in exact versions.
DIST_VENV := .venv-dist
# The packages, and an environment with nothing but them and what they need.
DIST := out/dist
INSTALLED := out/installed
ADDRESS ?= 127.0.0.1:9559
DEVICE ?= 1
BIN := $(VENV)/bin
PACKAGES := gcc python3-dev python3-venv mininet iproute2 ethtool iputils-ping traceroute
# Tests side by side: most of them wait for one another's timers more than they compute.
WORKERS_OF_TESTS ?= $(shell n=$$(nproc); echo $$((n < 4 ? 2 * n : 8)))
# For fuzzing alone: without them its tests are skipped.
FUZZ_PACKAGES := clang-14 libclang-rt-14-dev
# For `make bench-agent` alone: without them it leaves MPI out.
MPI_PACKAGES := openmpi-bin libopenmpi-dev
# For the page in a browser, the store in PostgreSQL, metrics in Prometheus, completion, captures, and the core on other
# CPUs: else these tests are skipped.
TEST_PACKAGES := g++ nlohmann-json3-dev chromium postgresql prometheus zsh man-db tshark qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross

option = $(if $($(1)),--$(2) $($(1)))
DEMO_OPTIONS = --switch $(SWITCH) $(call option,SCENARIO,scenario) $(call option,WORKERS,workers) \
	$(call option,SERVERS,servers) $(call option,RATE,rate) $(call option,BUFFER,buffer) \
	$(call option,STEPS,steps) $(call option,SEED,seed) $(call option,ARMS,arms) $(call option,MODEL,model) \
	$(TOPOLOGY_OPTIONS)
TOPOLOGY_OPTIONS = $(call option,TOPO,topo) $(call option,LEAVES,leaves) $(call option,SPINES,spines)

.PHONY: help
help: ## Show this
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

.PHONY: demo
demo: $(VENV)/.ready ## Train a model over a congested P4 switch, by Gradlane and by its baselines (root; SCENARIO= SWITCH= ...)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python mininet/demo.py $(DEMO_OPTIONS)

.PHONY: mininet
mininet: $(VENV)/.ready ## A Mininet prompt on P4 switches, with the controller (root; TOPO=leafspine HOSTS=4 SWITCH= ...)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python mininet/prompt.py --switch $(SWITCH) $(TOPOLOGY_OPTIONS) \
		$(call option,HOSTS,hosts) $(call option,RATE,rate) $(call option,BUFFER,buffer)

.PHONY: bench-thresholds
bench-thresholds: $(VENV)/.ready ## Step times by the congestion threshold, and where the derived one lies (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.training.thresholds

.PHONY: bench-adaptive
bench-adaptive: $(VENV)/.ready ## Step times before and after the controller has tuned a badly chosen threshold (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.training.adaptive

.PHONY: bench-load-balancing
bench-load-balancing: $(VENV)/.ready ## Spraying against ECMP: with other load on a spine, and with a spine that fails (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.training.load_balancing --switch $(SWITCH)

.PHONY: bench-spraying
bench-spraying: $(VENV)/.ready ## Time of an all-reduce, sprayed and by ECMP, over many assignments of addresses (root; takes long)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.fabric.spraying

.PHONY: bench-busy-spine
bench-busy-spine: $(VENV)/.ready ## Sums and multicast beside other traffic on a spine, before and after trees leave it (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.fabric.busy_spine

.PHONY: bench-tails
bench-tails: $(VENV)/.ready ## The longest completions: incast against TCP, and random loss within the budget (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.transport.tails

.PHONY: bench-fairness
bench-fairness: $(VENV)/.ready ## Who gets how much of a port: two jobs, and a job beside TCP (root)
	$(BIN)/python -m bench.transport.fairness

.PHONY: bench-overlap
bench-overlap: $(VENV)/.ready ## Training without the barrier against DDP, on a slow network (root)
	$(BIN)/python -m bench.agent.overlap

.PHONY: bench-gpu
bench-gpu: $(VENV)/.ready ## A transformer on one GPU that all ranks share: DDP with Gloo, the hook, the backend, overlap() (root)
	$(BIN)/python -m bench.agent.gpu

.PHONY: bench-frameworks
bench-frameworks: $(FRAMEWORKS_VENV)/.ready ## Gradlane in PyTorch, TensorFlow and JAX beside their own distributions, two ranks on the loopback (root)
	PYTHONPATH=mininet $(FRAMEWORKS_VENV)/bin/python -m bench.agent.frameworks

.PHONY: bench-training
bench-training: $(VENV)/.ready ## Every scenario and arm with 3 seeds -> out/bench/training.json (root; takes long; TRAINING="--scenarios incast")
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.training.scenarios $(TRAINING)

.PHONY: study
study: $(VENV)/.ready ## Accuracy by tolerated loss, against DDP (root; STUDY="--models cnn --seeds 1 --p 0,10")
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.study.accuracy $(STUDY)

.PHONY: study-sums
study-sums: $(VENV)/.ready ## Accuracy with sums in the switch, against DDP (STUDY_SUMS="--models cnn --seeds 1")
	$(BIN)/python -m bench.study.sum_accuracy $(STUDY_SUMS)

.PHONY: sim
sim: ## 32 hosts on ns-3, carried by Gradlane and by others: a table and out/sim/small/report.html (SIM="--seeds 1,2,3")
	@$(MAKE) --no-print-directory -j3 $(SIM_VENV)/.ready $(SIM_PROGRAM)
	PYTHONPATH=sim:mininet $(SIM_VENV)/bin/python -m gradlane_sim run small --out out/sim/small $(SIM)

.PHONY: bench-sim
bench-sim: ## The whole study on ns-3, 144 hosts and more -> out/sim/study (hours; goes on where it was stopped; SIM="--only incast")
	@$(MAKE) --no-print-directory -j3 $(SIM_VENV)/.ready $(SIM_PROGRAM)
	PYTHONPATH=sim:mininet $(SIM_VENV)/bin/python -m gradlane_sim run study --seeds 1,2,3,4,5 --out out/sim/study $(SIM)

.PHONY: bench-agent
bench-agent: $(VENV)/.ready ## All-reduce against Gloo and MPI, 2 to 16 hosts -> out/bench/agent.json (root; AGENT="--places loopback"; installs Open MPI)
	@dpkg -s $(MPI_PACKAGES) >/dev/null 2>&1 || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(MPI_PACKAGES); } || \
	echo "make: $(MPI_PACKAGES) can't be installed: MPI will be left out"
	$(BIN)/python -m bench.agent.all_reduce $(AGENT)

.PHONY: bench-core
bench-core: $(VENV)/.ready ## What a slice costs the agent's engine without I/O, by ranks -> out/bench/core.json (CORE="--ranks 2,8")
	$(BIN)/python -m bench.agent.core $(CORE)

.PHONY: bench-costs
bench-costs: $(VENV)/.ready ## The cost model of all-reduces against measurements -> out/bench/costs.json (root; COSTS="--hosts 4")
	$(BIN)/python -m bench.agent.costs $(COSTS)

.PHONY: bench-join
bench-join: $(VENV)/.ready ## How long jobs of 8 to 256 ranks take to join, on this machine -> out/bench/join.json (root; JOIN="--ranks 32,64")
	$(BIN)/python -m bench.agent.join $(JOIN)

.PHONY: bench-stragglers
bench-stragglers: $(VENV)/.ready ## What late workers and slow links cost -> out/bench/stragglers.json (root; STRAGGLERS="--hosts 16 --rate 25mbit")
	$(BIN)/python -m bench.agent.stragglers $(STRAGGLERS)

.PHONY: bench-late-steps
bench-late-steps: $(VENV)/.ready ## What workers that stall now and then cost the others -> out/bench/late_steps.json (root)
	$(BIN)/python -m bench.agent.late_steps

.PHONY: bench-late-sums
bench-late-sums: $(VENV)/.ready ## What a late worker costs the others where a switch sums -> out/bench/late_sums.json (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.agent.late_sums

.PHONY: bench-sync
bench-sync: $(VENV)/.ready ## Time to accuracy by scheme, with slow workers and links -> out/bench/sync.json (root; SYNC="--cases slow5 --arms all")
	$(BIN)/python -m bench.sync.training $(SYNC)
	$(BIN)/python -m bench.sync.communication

.PHONY: bench-switch
bench-switch: $(VENV)/.ready ## Packets per second of gradlane-switch, BMv2 and bare copy loops (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.switch.packet_rate

.PHONY: bench-aggregation
bench-aggregation: $(VENV)/.ready ## Slices per second that gradlane-switch sums, beside those that it forwards (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.switch.aggregation

.PHONY: bench-commodity
bench-commodity: $(VENV)/.ready ## Training over switches without P4, against the P4 program and TCP (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.training.commodity

.PHONY: bench-tables
bench-tables: $(VENV)/.ready ## What a packet costs gradlane-switch with full tables and with empty ones
	$(BIN)/python -m bench.switch.tables

.PHONY: bench-control-plane
bench-control-plane: $(VENV)/.ready ## Entry writes per second, and how long packets wait because of them (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.switch.control_plane

.PHONY: bench-responsiveness
bench-responsiveness: $(VENV)/.ready ## How long one-entry reads and writes take while hosts and clients load the switch (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.switch.responsiveness

.PHONY: bench-controller
bench-controller: $(VENV)/.ready ## What the controller takes for fabrics of 8 to 64 switches, and for 10,000 entries on one
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.controller.scale
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.controller.one_switch

.PHONY: bench-failover
bench-failover: $(VENV)/.ready ## How long silent failures of links and spines take until traffic goes around them (root)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.fabric.failover

.PHONY: bench-page
bench-page: $(VENV)/.ready-test ## First paint of the controller's page, and its memory over 10 minutes with 64 switches -> out/bench/page.json
	$(BIN)/python -m tests.page.measures

.PHONY: bench-shaping
bench-shaping: $(VENV)/.ready ## Strict priority and the rate of a port of 100 Mbit/s, over any second (root; idle machine)
	$(BIN)/python -m bench.switch.shaping

# The tests of the simulator are skipped without it.
.PHONY: simulator
simulator:
	@$(MAKE) --no-print-directory -j2 $(SIM_PROGRAM) || \
	echo "make: ns-3 can't be installed, or the simulator not built: its tests will be skipped"

PYTEST = PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest $(THOROUGH)
BESIDE = --dist loadfile --no-loadscope-reorder --max-worker-restart 0
marked = $$(grep -rl --include='test_*.py' 'pytest\.mark\.$(1)' tests)

# In a fresh clone all tests are collected once before: what that leaves of bytecode, each process would make for itself.
.PHONY: test
test: $(VENV)/.ready-test simulator ## Lint, imports, types, and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	@echo "$(BIN)/pyright beside the tests; what it says comes after them"
	@$(BIN)/pyright --pythonpath $(BIN)/python >$(VENV)/pyright.log 2>&1 & \
	test -e $(VENV)/.collected || { $(PYTEST) --collect-only -q >/dev/null; touch $(VENV)/.collected; }; \
	$(PYTEST) -m "not timed and not alone" -n $(WORKERS_OF_TESTS) $(BESIDE); tests=$$?; \
	wait $$!; types=$$?; cat $(VENV)/pyright.log; \
	$(PYTEST) -m timed -n 3 $(BESIDE) $(call marked,timed); timed=$$?; \
	$(PYTEST) -m alone $(call marked,alone); alone=$$?; \
	exit $$((tests ? tests : types ? types : timed ? timed : alone))

.PHONY: test-all
test-all: THOROUGH = --thorough
test-all: test ## As test, with 5 times as many random inputs, and the whole corpus on BMv2 where that is installed

.PHONY: test-frameworks
test-frameworks: $(FRAMEWORKS_VENV)/.ready $(MXNET_VENV)/.ready ## Training with TensorFlow, Keras, JAX, PyTorch, its trainers, Ray and MXNet, in environments of their own (4 GB)
	PYTHONPATH=mininet $(FRAMEWORKS_VENV)/bin/python -m pytest tests/frameworks tests/examples -n 2
	PYTHONPATH=mininet $(MXNET_VENV)/bin/python -m pytest tests/frameworks -k mxnet

.PHONY: test-slurm
test-slurm: $(VENV)/.ready-test ## The scripts for Slurm, on a cluster of Debian's slurmd in namespaces (root; installs it)
	@dpkg -s $(SLURM_PACKAGES) >/dev/null 2>&1 || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(SLURM_PACKAGES); }
	$(BIN)/python -m pytest tests/deploy/test_slurm.py

.PHONY: soak
soak: $(VENV)/.ready ## Load the switch for long, change everything meanwhile, account for every frame (root; SECONDS=600)
	$(BIN)/python -m bench.switch.soak $(call option,SECONDS,seconds)

.PHONY: soak-fabric
soak-fabric: $(VENV)/.ready ## Jobs on a leaf-spine under attack and with failures: none may end (root; SECONDS=600)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.fabric.soak $(call option,SECONDS,seconds)

.PHONY: soak-sums
soak-sums: $(VENV)/.ready ## Jobs that a leaf-spine sums, while it fails: every result must be exact (root; SECONDS=600)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m bench.fabric.soak_sums $(call option,SECONDS,seconds)

.PHONY: chaos
chaos: $(VENV)/.ready-test ## Random failures of controllers, switches, store and connections (EVENTS=200 SEED= STORE=sqlite|postgresql)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tests.chaos.run $(call option,SEED,seed) \
		$(call option,EVENTS,events) $(call option,STORE,store)

.PHONY: fuzz
fuzz: $(VENV)/.ready-test ## Fuzz the C code of the switch and of the agent under sanitizers (SECONDS=120 of each)
	$(BIN)/python -m tests.fuzz.fuzz $(call option,SECONDS,seconds)
	$(BIN)/python -m pytest -q --thorough tests/gradlane/daemon/test_malformed_messages.py

.PHONY: page
page: $(VENV)/.ready-test ## Build the controller's page from controller/page, into its package
	$(BIN)/python controller/page/build.py

# It serves without PyTorch or a network, so it needs no more than the agent's and the controller's packages.
.PHONY: dashboard
dashboard: $(VENV)/.ready ## The controller's page on a recorded run, at http://127.0.0.1:9570 (no root; DASHBOARD="--simulated large")
	$(BIN)/python -m tests.page.dashboard $(DASHBOARD)

.PHONY: man
man: $(VENV)/.ready-test ## Manual pages of the commands, from their flags -> out/man
	$(BIN)/python deploy/man.py out/man

# With -q mkdocs would not count warnings, so nothing would end it. The variable silences a note on the next mkdocs.
.PHONY: docs
docs: $(DOCS_VENV)/.ready ## The documentation as a site, strictly: a broken link ends it -> out/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict -f docs/site/mkdocs.yml -d $(abspath $(SITE))
	@echo "$(SITE)/index.html"

.PHONY: test-docs
test-docs: $(VENV)/.ready-test docs ## The site: links, search and diagrams in a browser without a network, what ends a build
	$(BIN)/python -m pytest tests/docs/site --site $(SITE) --site-python $(DOCS_VENV)/bin/python

.PHONY: dist
dist: $(VENV)/.ready-test $(DIST_VENV)/.ready ## Wheels, sdists and bills of materials of the distributions -> out/dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python deploy/man.py out/man
	$(DIST_VENV)/bin/python deploy/release/build.py out/man $(DIST)
	rm -rf $(INSTALLED)
	$(PYTHON) -m venv $(INSTALLED)
	$(INSTALLED)/bin/pip install -q --disable-pip-version-check $(DIST)/*.whl 'gradlane[completion,metrics]'
	$(DIST_VENV)/bin/cyclonedx-py environment --output-reproducible --of JSON -o $(DIST)/python.cdx.json $(INSTALLED)/bin/python
	$(BIN)/python controller/page/build.py --sbom >$(DIST)/page.cdx.json
	cd $(DIST) && sha256sum *.* >SHA256SUMS

.PHONY: test-dist
test-dist: dist ## The packages in environments of their own, without the repository; licences, Containerfile
	$(DIST_VENV)/bin/reuse lint --lines
	$(DIST_VENV)/bin/hadolint --ignore DL3008 deploy/containers/Containerfile  # Debian's packages stay up to date
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest tests/packages --packages $(DIST) --installed $(INSTALLED)

.PHONY: test-pythons
test-pythons: dist ## The packages on other Pythons, where they are (PYTHONS="python3.10 /opt/python3.13/bin/python3.13")
	$(BIN)/python -m tests.packages.pythons $(DIST) out/pythons $(PYTHONS)

.PHONY: containers
containers: dist ## Images of agent, switch and controller, by buildah (BASE=mirror where no registry is reached)
	BASE="$(BASE)" deploy/containers/build.sh

.PHONY: wireshark
wireshark: $(VENV)/.ready ## Write Wireshark's dissector again, from gradlane.wire and deploy/wireshark
	$(BIN)/python deploy/wireshark/build.py

.PHONY: p4
p4: ## Compile the P4 program, and the tests' programs that changed, with p4c
	python3 p4src/build.py
	python3 tests/p4src/tna_on_v1model/translate.py

.PHONY: p4-coverage
p4-coverage: $(VENV)/.ready-test ## What the packet tests reach of the P4 program -> out/p4-coverage.txt
	$(BIN)/python -m pytest -q --thorough tests/p4src --p4-coverage out/p4-coverage.txt

.PHONY: p4-tna
p4-tna: ## Compile the P4 program for Tofino, and write down what it takes of the chip
	python3 p4src/build_tna.py

.PHONY: shell
shell: $(SHELL_VENV)/.ready ## Open p4runtime-shell on a running switch (ADDRESS=127.0.0.1:9559 DEVICE=1)
	$(SHELL_VENV)/bin/python -m p4runtime_sh --grpc-addr $(ADDRESS) --device-id $(DEVICE) --election-id 0,1

.PHONY: format
format: $(VENV)/.ready-test ## Format the Python code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: clean
clean: ## Remove what was built and measured
	rm -rf $(VENV) $(FRAMEWORKS_VENV) $(MXNET_VENV) $(DIST_VENV) $(DOCS_VENV) $(SIM_VENV) out sim/build agent/build switch/build controller/build agent/src/gradlane/_core*

# Debian's packages are asked for only where one is missing, so a prepared machine needs no root here.
$(VENV)/bin/python:
	@missing=$$(for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		echo "Installing Debian packages:" $$missing; \
		if [ "$$(id -u)" != 0 ]; then echo "make: error: run as root, or apt-get install" $$missing; exit 2; fi; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
	fi
	@echo "Making the Python environment $(VENV)"
	$(PYTHON) -m venv $(VENV)
	ln -sfn /usr/lib/python3/dist-packages/mininet "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/mininet"

SOURCES := $(wildcard VERSION agent/pyproject.toml agent/*.py agent/src/gradlane/wire.py agent/src/gradlane/core/*/* \
	switch/pyproject.toml switch/setup.py controller/pyproject.toml controller/setup.py mininet/pyproject.toml bench/pyproject.toml sim/pyproject.toml)

$(VENV)/.ready: $(VENV)/bin/python $(SOURCES)
	@echo "Installing Gradlane and PyTorch into $(VENV)"
	$(BIN)/pip install -q --disable-pip-version-check $(TORCH)
	$(BIN)/pip install -q --disable-pip-version-check -e agent -e switch -e controller -e mininet -e bench -e sim
	touch $@

$(SHELL_VENV)/.ready: $(VENV)/bin/python tests/requirements-shell.txt
	@echo "Installing p4runtime-shell into $(SHELL_VENV)"
	$(PYTHON) -m venv $(SHELL_VENV)
	$(SHELL_VENV)/bin/pip install -q --disable-pip-version-check -r tests/requirements-shell.txt
	touch $@

$(FRAMEWORKS_VENV)/.ready: $(VENV)/bin/python $(SOURCES) tests/frameworks/requirements.txt
	@echo "Installing Gradlane, TensorFlow, Keras, JAX and PyTorch into $(FRAMEWORKS_VENV)"
	$(PYTHON) -m venv $(FRAMEWORKS_VENV)
	$(FRAMEWORKS_VENV)/bin/pip install -q --disable-pip-version-check $(TORCH) -r tests/frameworks/requirements.txt
	$(FRAMEWORKS_VENV)/bin/pip install -q --disable-pip-version-check -e agent
	touch $@

$(MXNET_VENV)/.ready: $(VENV)/bin/python $(SOURCES)
	@echo "Installing Gradlane and MXNet into $(MXNET_VENV)"
	$(PYTHON) -m venv $(MXNET_VENV)
	$(MXNET_VENV)/bin/pip install -q --disable-pip-version-check mxnet==1.9.1 'numpy<1.24' pytest pytest-timeout hypothesis -e agent
	touch $@

$(DOCS_VENV)/.ready: $(VENV)/bin/python $(SOURCES) docs/site/requirements.txt docs/site/scripts.py
	@echo "Installing Gradlane and what builds the site into $(DOCS_VENV)"
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install -q --disable-pip-version-check -r docs/site/requirements.txt -e agent -e switch -e controller
	$(DOCS_VENV)/bin/python docs/site/scripts.py
	touch $@

# The wheel of ns-3 has its libraries and headers; its Python bindings, which need more, are not used.
$(SIM_VENV)/.ns3: $(VENV)/bin/python
	@dpkg -s $(SIM_PACKAGES) >/dev/null 2>&1 || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(SIM_PACKAGES); }
	@echo "Installing ns-3 into $(SIM_VENV)"
	$(PYTHON) -m venv $(SIM_VENV)
	$(SIM_VENV)/bin/pip install -q --disable-pip-version-check --no-deps ns3==3.44.post0
	touch $@

$(SIM_VENV)/.ready: $(SIM_VENV)/.ns3 $(SOURCES)
	@echo "Installing what studies import into $(SIM_VENV)"
	$(SIM_VENV)/bin/pip install -q --disable-pip-version-check -e agent -e controller jinja2 matplotlib
	touch $@

# Always asked: its own Makefile knows what it is made of.
.PHONY: $(SIM_PROGRAM)
$(SIM_PROGRAM): $(SIM_VENV)/.ns3
	@$(MAKE) --no-print-directory -s -C sim NS3="$$(echo $(abspath $(SIM_VENV))/lib/python3*/site-packages/ns3)"

$(DIST_VENV)/.ready: $(VENV)/bin/python deploy/release/requirements.txt
	@echo "Installing what builds packages into $(DIST_VENV)"
	$(PYTHON) -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/pip install -q --disable-pip-version-check -r deploy/release/requirements.txt
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready $(SHELL_VENV)/.ready tests/requirements.txt tests/deploy/clients.txt controller/page/package-lock.json
	@echo "Installing the tools of the tests into $(VENV)"
	$(BIN)/pip install -q --disable-pip-version-check -r tests/requirements.txt
	@dpkg -s $(FUZZ_PACKAGES) >/dev/null 2>&1 || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(FUZZ_PACKAGES); } || \
	echo "make: $(FUZZ_PACKAGES) can't be installed: the tests of fuzzing will be skipped"
	@dpkg -s $(TEST_PACKAGES) >/dev/null 2>&1 || \
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(TEST_PACKAGES); } || \
	echo "make: $(TEST_PACKAGES) can't be installed: some tests of the page, PostgreSQL, Prometheus, completion, captures, other CPUs or the simulator's switch will be skipped"
	@$(BIN)/python -m tests.deploy.clients || echo "make: helm and kubectl can't be installed: tests of manifests will be skipped"
	@$(BIN)/python controller/page/build.py --install || \
	echo "make: npm can't install controller/page/package-lock.json: some tests of the page will be skipped"
	touch $@
