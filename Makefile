# Everything here sets itself up: the first target that needs Python makes .venv with pinned versions.
VENV := .venv
CONSTRAINTS := constraints.txt
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.built $(VENV)/.testing
CPP = $(shell git ls-files 'cpp/*.cpp' 'cpp/*.h' 'cuda/*.cu' 'cuda/*.cpp' 'cuda/*.h' 'tests/*.cpp' 'tests/*.h' 'snnlib/*.h')

SUITE := OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m "not slow" --numprocesses auto --dist loadfile --no-loadscope-reorder $(if $(PART),--part $(PART))
PEERS := build/peers
PEER_TESTS := tests/neurons/test_neurons_peers.py tests/exchange/test_convert_peers.py tests/exchange/test_convert_classes.py tests/exchange/test_convert_models.py tests/exchange/test_convert_tutorials.py tests/exchange/test_verify_conversion.py tests/exchange/test_convert_generated.py tests/exchange/test_nir_peers.py tests/app/test_nir_command.py tests/inspect/test_profile.py docs/from-snntorch.md

.PHONY: demo env test test-slow test-processors test-peers test-newest lint sanitize sanitize-memory sanitize-threads fuzz fuzz-files reliability bench bench-accuracy bench-peers format cuda-check cuda-emulation-asan docs docs-look notebooks test-versions test-oldest wheel gpu-check gpu-bundle clean

demo: $(VENV)/.native $(VENV)/.fetched  ## Train on the embedded data and show the result.
	$(VENV)/bin/snnlib train

env: $(READY)  ## What one call of pytest needs.

test: $(READY)  ## All tests but the slow ones, README and docstring examples included; PART=core|events|exchange|train|testing: those of a part.
# A file at a time on every core, with one thread each: tests that need threads set their number. Those that took longest
# in the last run come first (tests/helpers/durations.py).
	$(SUITE)

test-processors: $(READY)  ## All tests as on other processors: the last bits of torch's sums moved (tests/helpers/jitter.py), narrower vectors.
	$(SUITE)
	$(SUITE) --jitter
	ONEDNN_MAX_CPU_ISA=AVX2 $(SUITE)
	ATEN_CPU_CAPABILITY=default $(SUITE)

test-slow: test-processors  ## All tests in four ways, then the slow ones: examples that train for long, benchmarks of memory, the script for a GPU.
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m slow --numprocesses auto tests

lint: $(READY)  ## Style, types and formatting of Python and C++, and the structure that release/house.py checks.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(PYTHON) release/house.py --check
	$(VENV)/bin/clang-format --dry-run --Werror $(CPP)
	$(PYTHON) release/schemas.py

format: $(READY)  ## Rewrite sources in the project's format.
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(CPP)

bench: $(READY)  ## Time training steps, layers and kernels; figures go to build/bench/.
	$(PYTHON) release/bench.py

bench-accuracy: $(READY)  ## Accuracy on five folds with SRM and LIF neurons and, where it is installed, against SpikingJelly (two hours).
	$(PYTHON) benchmarks/learning/accuracy.py

# Other libraries go beside the environment, never into it: some would replace torch.
$(PEERS)/.ready: $(READY) release/peers.txt
	rm -rf $(PEERS)
	$(PYTHON) -m pip install --quiet --no-deps --target $(PEERS) $$(sed '/^#/d; $(UNPIN)' release/peers.txt)
	touch $@

test-peers: $(PEERS)/.ready  ## Tests against snnTorch, SpikingJelly, Norse, sinabs and NeuroBench, in versions that are pinned; the table of pairs in docs/moving-nets.md.
	rm -f build/pairs.jsonl
	SNNLIB_PAIRS=$(CURDIR)/build/pairs.jsonl PYTHONPATH=$(PEERS) OMP_NUM_THREADS=1 \
		$(PYTHON) -m pytest --numprocesses auto --dist loadfile $(PEER_TESTS)
	$(PYTHON) tests/helpers/peer_tables.py build/pairs.jsonl

bench-peers: $(PEERS)/.ready  ## Time and accuracy beside the other libraries, into build/bench-peers/, and the picture of README.md.
	PYTHONPATH=$(PEERS) $(PYTHON) release/bench.py --peers

cuda-check: $(READY)  ## Compile the CUDA kernels for the oldest architecture and Hopper; no GPU needed.
	$(PYTHON) cuda/check.py $(ARCHITECTURES)

sanitize sanitize-memory sanitize-threads: $(READY)  ## Fuzz and op tests with the CPU kernels under AddressSanitizer and UBSan, then under ThreadSanitizer.
	$(PYTHON) release/sanitize.py $(or $(patsubst sanitize-%,%,$(filter sanitize-%,$@)),memory threads)

cuda-emulation-asan: $(READY)  ## The CUDA kernels as loops on the CPU, under AddressSanitizer and UBSan.
	$(PYTHON) release/sanitize.py emulation

fuzz-files: $(READY)  ## Ten thousand damaged files of every event format and of the SHD family: some ten minutes.
	SNNLIB_MUTATIONS=10000 OMP_NUM_THREADS=1 $(PYTHON) -m pytest -q --numprocesses auto --timeout 3600 \
		tests/data/formats/test_formats_damaged.py tests/data/test_datasets.py -k "flipped or damaged"

fuzz: $(READY)  ## Random ops, layers and damaged files for SECONDS=120; what fails is kept in build/fuzz and tried first next time.
	$(PYTHON) tests/helpers/fuzz_run.py --seconds $(or $(SECONDS),120)

reliability: $(READY)  ## Run the commands of docs/reliability.md, or of ROWS="1 16".
	$(PYTHON) release/reliability.py $(ROWS)

test-newest:  ## All tests and those against other libraries with the newest torch, numpy and libraries, in build/newest.
	$(MAKE) test test-peers VENV=build/newest CONSTRAINTS=/dev/null PEERS=build/newest-peers UNPIN='s/==.*//'

test-versions test-oldest:  ## A wheel per Python, installed and tried against every supported torch, or against PAIRS="here:pinned"; test-oldest: this Python's against the oldest torch, in build/oldest.
	python3 release/versions.py $(if $(filter test-oldest,$@),--pairs here:oldest --build build/oldest) $(if $(BUILD),--build $(BUILD)) $(if $(PAIRS),--pairs $(PAIRS))

wheel:  ## A wheel without CUDA kernels and one with, for this Python, each installed apart and tried; into build/wheel.
	python3 release/versions.py --pairs here:pinned --build build/wheel/cpu
	python3 release/versions.py --pairs here:pinned --build build/wheel/cuda --kernels

docs: $(READY)  ## The documentation site in build/site; warnings are errors, and nothing is fetched while it is built.
	$(PYTHON) -m pip install --quiet --constraint constraints.txt mkdocs-material 'mkdocstrings[python]'
	$(PYTHON) docs/site/pages.py
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

docs-look: docs  ## Screenshots of the site and of a report at three widths, light and dark, into build/look; needs Chromium.
	$(PYTHON) docs/site/look.py

notebooks: $(PEERS)/.ready  ## Run the tutorials and keep them, with their pictures, as examples/notebooks; MNIST=FOLDER for its curves.
	$(PYTHON) -m pip install --quiet --constraint constraints.txt nbclient ipykernel
	PYTHONPATH=$(PEERS) $(PYTHON) release/notebooks.py

gpu-check:  ## Build, check and measure on a GPU machine, with the packages of its own python3; COPY=FOLDER for the report, KERNELS=REGEX for the sanitizers.
	-python3 benchmarks/gpu --first --build build/gpu-check $(if $(COPY),--copy $(COPY))
	PYTHONPATH=build/gpu-check/site python3 benchmarks/gpu $(if $(COPY),--copy $(COPY)) $(if $(KERNELS),--kernels '$(KERNELS)')

gpu-bundle:  ## Into build/gpu what gpu-check needs on a machine without git: the commit, and a wheel with kernels if Python 3.12 is here.
	python3 release/gpu_bundle.py

# Python compiles the modules that are imported; pip would compile them all, for a minute. It reads the variable as the
# value of its setting `compile`, so that 0 leaves it out.
export PIP_NO_COMPILE := 0
# Where Python is told not to keep it, every process of the tests would compile torch again.
unexport PYTHONDONTWRITEBYTECODE

# The module links no torch, so it is compiled while packages are fetched: set-up takes the longer of the two.
MAKEFLAGS += --jobs=3
INSTALL := $(PYTHON) -m pip install --quiet --constraint $(CONSTRAINTS)

$(VENV)/.building: $(CONSTRAINTS)
	test -x $(PYTHON) || python3 -m venv $(VENV)
# Older versions take half a minute to compare the names of all wheels with what this machine supports.
	$(INSTALL) 'pip>=26'
# typing-extensions is what torch and mypy share, which are installed side by side.
	$(INSTALL) scikit-build-core pybind11 cmake ninja typing-extensions
	touch $@

# Packages too: an editable install lists its modules, and looks for one that became a folder at its old place.
PACKAGES := $(wildcard snnlib/__init__.py snnlib/*/__init__.py snnlib/*/*/__init__.py)
SOURCES := pyproject.toml $(PACKAGES) CMakeLists.txt $(wildcard cmake/*.cmake snnlib/exchange/integers/*.h cpp/*/*.cpp cpp/*/*/*.h cpp/*/*/*/*.h cpp/*/*.h cuda/*.*)

# $(call built_module,INSTRUCTION_SETS): the package, installed where it lies.
define built_module
	$(INSTALL) --no-deps --no-build-isolation --editable . -Ccmake.define.SNNLIB_INSTRUCTION_SETS=$(1)
endef

# Without the kernels of narrower vectors, which this machine never chooses, compiling takes a third less.
$(VENV)/.native: $(VENV)/.building $(SOURCES)
	rm -f $(VENV)/.built
	$(call built_module,NATIVE)
	touch $@

# `make demo test` does not replace a module that is in use.
$(VENV)/.built: $(VENV)/.building $(SOURCES) | $(filter demo,$(MAKECMDGOALS))
	$(call built_module,ALL)
	touch $(VENV)/.native $@

# torch comes first and alone: pinned, so that nothing after it pulls another build.
$(VENV)/.fetched: $(VENV)/.building pyproject.toml
	$(INSTALL) torch numpy
	$(INSTALL) $$($(PYTHON) release/requirements.py train)
	touch $@

# Beside the others, with which it shares no package.
$(VENV)/.linting: $(VENV)/.building pyproject.toml
	$(INSTALL) $$($(PYTHON) release/requirements.py lint)
	touch $@

$(VENV)/.testing: $(VENV)/.fetched $(VENV)/.linting
	$(INSTALL) $$($(PYTHON) release/requirements.py test)
	touch $@

clean:  ## Remove the environment and everything built.
	rm -rf $(VENV) build
