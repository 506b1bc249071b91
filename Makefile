# Everything here sets itself up: the first target that needs Python makes .venv with pinned versions.
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: demo test lint bench format clean

demo: $(READY)  ## Train on the embedded data and show the result.
	$(VENV)/bin/snnlib train

test: $(READY)  ## All tests, README and docstring examples included.
	$(PYTHON) -m pytest

lint: $(READY)  ## Style, types and formatting of Python and C++.
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $(shell git ls-files 'cpp/*.cpp' 'cpp/*.h')

format: $(READY)  ## Rewrite sources in the project's format.
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(shell git ls-files 'cpp/*.cpp' 'cpp/*.h')

bench: $(READY)  ## Time one training step and the neuron kernels.
	$(PYTHON) benchmarks/training_step.py

# torch comes first and alone: pinned, so that nothing after it pulls another build.
$(READY): pyproject.toml constraints.txt CMakeLists.txt $(wildcard cpp/*/*.cpp cpp/*/*/*.h cpp/*/*/*/*.h cpp/*/*.h)
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --constraint constraints.txt torch numpy
	$(PYTHON) -m pip install --quiet --constraint constraints.txt scikit-build-core pybind11 cmake ninja
	$(PYTHON) -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[test,lint]'
	touch $(READY)

clean:  ## Remove the environment and everything built.
	rm -rf $(VENV) build
