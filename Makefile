# Every command sets up .venv by itself when requirements.txt is newer than it.
export PYTHON ?= python3.11
RUN := .venv/bin/python
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-slow docs presets package lint format results benchmarks gpu-check

demo: .venv/installed
	$(RUN) -m train_scripts.demo

# One process more than there are cores, as some tests wait for servers and time-outs.
test: .venv/installed lint
	$(RUN) -m pytest -n 3 --dist loadfile

# Learning takes long enough for XLA's optimisations, which tests/conftest.py leaves out.
test-slow: .venv/installed
	XLA_FLAGS= $(RUN) -m pytest -m slow

# The documentation as a site, in site/; any warning is an error.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

# The trained presets of the package, from the runs of `make results`,
# and of KeyCorridor that of the command below.
MAKE_PRESET := $(RUN) -m train_scripts.make_preset --folder rrl_tf/pretrained
LOOPS := Played greedily, agents that are trained like this go round in a loop in some rooms; with 5 % of random actions hardly ever.
SMALL := Trained on 5x5 alone: for larger rooms take a preset of their size.
DIGITS := White digits on black, laid out like MNIST's, up to 6 pixels from the middle and 30 degrees from upright; beyond that it \
	reads worse the further they are. It knows nothing but digits, and is sure of one in any picture.
QUESTIONS := Questions of four vectors of four numbers from -1 to 1, laid out as rrl_tf.data.sample_nth_farthest does. It knows nothing of longer ones, nor \
	of vectors with more numbers.
HALLWAY := For a hallway of that length, from any start in it; how it does in longer ones was not tried.
CORRIDOR := For rooms of 3 x 3, walls included, in up to three rows; larger ones were not tried. Trainings with most other seeds had not got there when they were stopped.
LOCKS := For 8 x 8 with one to three boxes and up to two distractors of one box. Levels one box longer it solves less often.
ASKED := Trained on 5x5 alone. Asked for 0.8 to 0.95 it earns that; asked for 0.7 or less it never reaches the goal.
presets: .venv/installed
	$(MAKE_PRESET) --run runs/doorkey/fast-seed0 --name doorkey-5x5 --command "python -m train_scripts.train_doorkey" \
	    --description "Opens the door of MiniGrid-DoorKey-5x5 from every start, without a memory." --limits "$(SMALL)"
	set -e; for trained in 6x6:lstm 8x8:lstm 16x16:lstm-long; do size=$${trained%:*}; network=$${trained#*:}; \
	    $(MAKE_PRESET) --run runs/recurrent/doorkey-$$size-$$network-seed0 --name doorkey-$$size \
	    --command "python -m train_scripts.train_recurrent --preset doorkey-$$size --network $$network" \
	    --description "Opens the door of MiniGrid-DoorKey-$$size with relations between the cells in view and an LSTM." \
	    --limits "$(LOOPS)"; done
	$(MAKE_PRESET) --run runs/recurrent/memory-s17-lstm-long-dense-seed0 --name memory-s17 \
	    --command "python -m train_scripts.train_recurrent --preset memory-s17" \
	    --description "Remembers by an LSTM which object was at the other end of MiniGrid's MemoryS17, and goes to its like." --limits "$(HALLWAY)"
	$(MAKE_PRESET) --run runs/recurrent/key-corridor-s3r3-seed100 --name key-corridor-s3r3 \
	    --command "python -m train_scripts.train_recurrent --preset key-corridor-s3r3 --seed 100" \
	    --description "Finds the key of a locked room behind one of the other doors of MiniGrid-KeyCorridorS3R3, and fetches the ball." --limits "$(CORRIDOR)"
	$(MAKE_PRESET) --run runs/box_world/fast-seed0 --name box-world --command "python -m train_scripts.train_box_world" \
	    --description "Opens Box-World's boxes in the order that leads to the gem, by relations between keys and locks." --limits "$(LOCKS)"
	$(MAKE_PRESET) --run runs/mnist/fast-seed0 --name mnist-relational --command "python -m train_scripts.train_mnist" \
	    --description "Reads MNIST's digits by two rounds of relations between 49 patches." --limits "$(DIGITS)"
	$(MAKE_PRESET) --run runs/decision_transformer/doorkey-seed0 --name dt-doorkey --command "python -m train_scripts.train_decision_transformer" \
	    --description "Plays MiniGrid-DoorKey-5x5 for the return that it is asked for, learnt from recorded episodes." --limits "$(ASKED)"
	$(MAKE_PRESET) --run runs/nth_farthest/fast-seed0 --name nth-farthest --command "python -m train_scripts.train_nth_farthest" \
	    --description "Says which of four vectors is the nth farthest from another one, by a Relational Memory." --limits "$(QUESTIONS)"

# The wheel in an empty environment, from another folder: downloads TensorFlow, or takes pip's cache.
package:
	.ci/package

# Measures the speed tables of the docs, on an idle machine. PyTorch is the other side of some:
# pip install torch==2.13.0
MEASURED := speed/update speed/recurrent_update speed/acting speed/relational_memory speed/serving
benchmarks: .venv/installed
	set -e; for name in $(MEASURED); do $(RUN) -m benchmarks $$name; done

# Trains every agent that the docs report: a day on two cores.
TRAINED := doorkey memory memory_ablations mnist nth_farthest text offline stitching box_world sort_of_clevr graphs atari
results: .venv/installed
	set -e; for name in $(TRAINED); do $(RUN) -m benchmarks reproductions/$$name --jobs 2; done

# Every task's training step on this machine's GPU, and whether it computes what the CPU does.
gpu-check: .venv/installed
	$(RUN) -m benchmarks speed/gpu_check

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
