# Every command sets up .venv by itself when requirements.txt is newer than it.
PYTHON ?= python3.11
RUN := .venv/bin/python
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-slow lint format results benchmarks

demo: .venv/installed
	$(RUN) -m train_scripts.demo

test: .venv/installed lint
	$(RUN) -m pytest -n 2 --dist loadfile

test-slow: .venv/installed
	$(RUN) -m pytest -m slow

lint: .venv/installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

format: .venv/installed
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

.venv/installed: requirements.txt
	test -x $(RUN) || $(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@
