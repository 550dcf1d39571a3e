# Every command creates or updates .venv first if requirements.txt is newer.
export PYTHON ?= python3.11
RUN := .venv/bin/python
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Bytecode files save time, because every test process imports hundreds of modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test suite test-slow docs pretrained package lint format results benchmarks gpu-check

demo: .venv/installed
	$(RUN) -m train_scripts.demo

test: .venv/installed
	$(MAKE) --no-print-directory --jobs 2 suite lint

# Three processes for two cores, because some tests wait for servers and time-outs. They take the
# files in the order of tests/conftest.py.
suite: .venv/installed
	$(RUN) -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Training is faster with XLA's optimisations, which tests/conftest.py disables.
test-slow: .venv/installed
	XLA_FLAGS= $(RUN) -m pytest -m slow

# Builds the documentation as a site, in site/; any warning is an error.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

# Makes all pretrained models from the runs of `make results`, then replaces those of the package.
# `make results` does not include the run of KeyCorridor; its command is below.
MAKE_PRESET := $(RUN) -m train_scripts.make_preset --folder pretrained
LOOPS := In some rooms the greedy policy repeats the same actions without end. With 5 % of random actions this hardly ever happens.
SMALL := Trained on 5 x 5 rooms only. For larger rooms, use the pretrained policy of that size.
DIGITS := Takes white digits on black in the layout of MNIST, shifted by up to 6 pixels and rotated by up to 30 degrees. \
	Larger shifts and rotations lower the accuracy. It returns a digit with high confidence for any image.
QUESTIONS := Takes four vectors of four numbers from -1 to 1 in the layout of rrl_tf.data.sample_nth_farthest. It was not \
	trained on more vectors or on larger ones.
LONG_QUESTIONS := Takes eight vectors of 16 numbers from -1 to 1 in the layout of rrl_tf.data.sample_nth_farthest. It answers the middle \
	ranks worst. Another seed of the same training reached only 74 %.
HALLWAY := Trained for a hallway of this length, from every start position. Longer hallways were not tested.
CORRIDOR := Trained for up to three rows of rooms of 3 x 3 cells, walls included. Larger environments were not tested.
LOCKS := Trained on 8 x 8 levels with one to three boxes and up to two distractors of one box. It solves levels with one more box less often.
TARGETS := Trained on 5 x 5 rooms only. It reaches target returns from 0.8 to 0.95. With a target of 0.7 or less, it never reaches the goal.
pretrained: .venv/installed
	$(MAKE_PRESET) --run runs/doorkey/fast-seed0 --name doorkey-5x5 --command "python -m train_scripts.train_doorkey" \
	    --description "Solves MiniGrid-DoorKey-5x5 from every start, without a memory." --limits "$(SMALL)"
	set -e; for trained in 6x6:lstm 8x8:lstm 16x16:lstm-long; do size=$${trained%:*}; network=$${trained#*:}; \
	    $(MAKE_PRESET) --run runs/recurrent/doorkey-$$size-$$network-seed0 --name doorkey-$$size \
	    --command "python -m train_scripts.train_recurrent --preset doorkey-$$size --network $$network" \
	    --description "Solves MiniGrid-DoorKey-$$size with attention between the visible cells and an LSTM." \
	    --limits "$(LOOPS)"; done
	$(MAKE_PRESET) --run runs/recurrent/memory-s17-lstm-long-dense-seed0 --name memory-s17 \
	    --command "python -m train_scripts.train_recurrent --preset memory-s17" \
	    --description "Solves MiniGrid-MemoryS17: an LSTM remembers which object was at one end of the hallway, and the agent goes to the same object at the other end." --limits "$(HALLWAY)"
	$(MAKE_PRESET) --run runs/recurrent/key-corridor-s3r3-lstm-long-seed3 --name key-corridor-s3r3 \
	    --command "python -m train_scripts.train_recurrent --preset key-corridor-s3r3 --seed 3" \
	    --description "Solves MiniGrid-KeyCorridorS3R3: finds the key behind a door, unlocks the locked room and picks up the ball." --limits "$(CORRIDOR)"
	$(MAKE_PRESET) --run runs/box_world/fast-seed0 --name box-world --command "python -m train_scripts.train_box_world" \
	    --description "Solves Box-World: opens the boxes in the order that leads to the gem, by attention between keys and locks." --limits "$(LOCKS)"
	$(MAKE_PRESET) --run runs/mnist/fast-seed0 --name mnist-relational --command "python -m train_scripts.train_mnist" \
	    --description "Classifies the digits of MNIST by two rounds of attention between 49 patches." --limits "$(DIGITS)"
	$(MAKE_PRESET) --run runs/decision_transformer/doorkey-seed0 --name dt-doorkey --command "python -m train_scripts.train_decision_transformer" \
	    --description "Plays MiniGrid-DoorKey-5x5 for a given target return, trained on recorded episodes." --limits "$(TARGETS)"
	$(MAKE_PRESET) --run runs/nth_farthest/fast-seed0 --name nth-farthest --command "python -m train_scripts.train_nth_farthest" \
	    --description "Answers which of four vectors is the nth farthest from a given one, with a Relational Memory." --limits "$(QUESTIONS)"
	$(MAKE_PRESET) --run runs/nth_farthest/paper-seed1 --name nth-farthest-8 \
	    --command "python -m train_scripts.train_nth_farthest --preset paper --seed 1" \
	    --description "Answers which of eight vectors of 16 numbers is the nth farthest from a given one, with a Relational Memory." --limits "$(LONG_QUESTIONS)"
	set -e; for each in pretrained/*; do rm -r rrl_tf/$$each; mv $$each rrl_tf/pretrained/; done
	rmdir pretrained

# Tests the wheel in an empty environment, from another folder. Downloads TensorFlow unless pip has cached it.
package:
	.ci/package

# Measures the speed tables of the docs, on an idle machine. Some compare with PyTorch:
# pip install torch==2.13.0
MEASURED := speed/update speed/recurrent_update speed/acting speed/relational_memory speed/serving
benchmarks: .venv/installed
	set -e; for name in $(MEASURED); do $(RUN) -m benchmarks $$name; done

# Trains every agent that the docs report: more than a day on two cores.
TRAINED := doorkey memory memory_ablations mnist nth_farthest text offline stitching box_world sort_of_clevr graphs atari
results: .venv/installed
	set -e; for name in $(TRAINED); do $(RUN) -m benchmarks reproductions/$$name --jobs 2; done

# Runs every task's training step on this machine's GPU and compares its numbers with the CPU's.
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
