# Every command sets up .venv by itself when requirements.txt is newer than it.
export PYTHON ?= python3.11
RUN := .venv/bin/python
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-slow package lint format results benchmarks

demo: .venv/installed
	$(RUN) -m train_scripts.demo

test: .venv/installed lint
	$(RUN) -m pytest -n 2 --dist loadfile

test-slow: .venv/installed
	$(RUN) -m pytest -m slow

# The wheel in an empty environment, from another folder: downloads TensorFlow, or takes pip's cache.
package:
	.ci/package

# The tables of the docs. Time them on an idle machine; `update` needs pip install torch==2.13.0.
benchmarks: .venv/installed
	$(RUN) -m benchmarks.update
	$(RUN) -m benchmarks.mnist_step
	$(RUN) -m benchmarks.acting
	$(RUN) -m benchmarks.environments
	$(RUN) -m benchmarks.book_defects
	$(RUN) -m benchmarks.serving
	$(RUN) -m benchmarks.relational_memory
	$(RUN) -m benchmarks.relational_memory_scaling
	$(RUN) -m benchmarks.rmc_differences
	$(RUN) -m benchmarks.decision_transformer
	$(RUN) -m benchmarks.acting_decision_transformer
	$(RUN) -m benchmarks.offline_data
	$(RUN) -m benchmarks.tables

# Trains every agent that the docs report: several hours on two cores.
results: .venv/installed
	$(RUN) -m benchmarks.doorkey --jobs 2
	$(RUN) -m benchmarks.mnist --jobs 2
	$(RUN) -m benchmarks.nth_farthest --jobs 2
	$(RUN) -m benchmarks.text
	$(RUN) -m benchmarks.offline --jobs 2

lint: .venv/installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format: .venv/installed
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

.venv/installed: requirements.txt
	test -x $(RUN) || $(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@
