"""`PolicyTracer` records the attention of the right part of networks with several inputs."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from rrl_tf.envs import gymnasium_task
from rrl_tf.interpret.tracing import PolicyTracer
from rrl_tf.models import MultiInputQNetwork

pytestmark = pytest.mark.tf_only
CELLS = {"encoder": "relational", "conv_filters": (4,), "block": {"num_heads": 1, "key_size": 4}}


class Views(gymnasium.Env):
    """An environment of two grids; the name of the first one begins the name of the second."""

    observation_space = Dict(
        view=Box(0.0, 1.0, (2, 3, 1), "float32"), view_goal=Box(0.0, 1.0, (2, 2, 1), "float32")
    )
    action_space = Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


def test_attention_is_that_of_the_grid_part_alone():
    task = gymnasium_task(Views)
    network = MultiInputQNetwork(2, dict.fromkeys(("view", "view_goal"), CELLS), (4,))
    observation, _ = task.make_test_env().reset(seed=0)
    attention = PolicyTracer(network, task).trace(np.asarray(observation)).attention
    assert {name: each.shape for name, each in attention.items()} == {"view_round_1": (1, 6, 6)}
