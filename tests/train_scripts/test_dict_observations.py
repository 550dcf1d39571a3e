"""Training and serving with dict observations and actions of several parts."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]
NUMBERS = {
    "steps": 48,
    "num_envs": 4,
    "batch_size": 4,
    "learning_starts": 16,
    "updates_per_step": 0.25,
    "evaluate_every": 48,
    "evaluation_episodes": 2,
    "max_steps": 6,
}


class Treasure(gymnasium.Env):
    """Environment with two treasures, one of them wanted; an action moves along both axes."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}
    agent_code = 1
    observation_space = Dict(
        room=Box(0, 3, (3, 4), np.uint8),
        wanted=Discrete(2, start=2),
        clock=Box(0, 1, (1,), np.float64),
    )
    action_space = MultiDiscrete([3, 3], start=[-1, -1])

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        cells = self.np_random.permutation(12)[:3]
        self.agent, *self.treasures = ((int(c) // 4, int(c) % 4) for c in cells)
        self.wanted, self.time = int(self.np_random.integers(2, 4)), 0
        return self.look(), {}

    def look(self):
        room = np.zeros((3, 4), np.uint8)
        for code, cell in zip((2, 3, 1), (*self.treasures, self.agent)):
            room[cell] = code
        return {"room": room, "wanted": self.wanted, "clock": np.array([self.time / 100])}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        self.agent = tuple(np.clip(np.add(self.agent, action), 0, (2, 3)).tolist())
        done = self.agent in self.treasures
        success = done and self.treasures.index(self.agent) + 2 == self.wanted
        return self.look(), float(success), done, False, {"success": success}

    @staticmethod
    def entities(observation):
        (row, column) = np.argwhere(observation["room"] == 1)[0]
        return {"agent": (int(row), int(column))}

    def render(self):
        return self.look()["room"].repeat(8, 0).repeat(8, 1)[..., None].repeat(3, 2) * 60


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("Treasure-v0", Treasure)
    yield
    del gymnasium.registry["Treasure-v0"]


def batch(observations):
    return {name: np.stack([each[name] for each in observations]) for name in observations[0]}


def on_both_protocols(folder, use):
    """Serve an export and call a function with a client of each protocol."""
    from serving.client import connect
    from serving.local import free_ports
    from serving.server import Flags, running

    (port,) = free_ports(1)
    flags = Flags(model_base_path=str(folder), model_name="t", port=0, rest_api_port=port)
    with running(flags) as server:
        for address in (f"grpc://localhost:{server.grpc_port}", f"http://localhost:{port}"):
            with connect(address, "t", timeout=60) as client:
                use(client)


def test_train_dqn_on_a_dict_environment(tmp_path):
    import rrl_tf
    from rrl_tf.agents import evaluate
    from rrl_tf.envs import gymnasium_task
    from train_scripts import train_dqn

    config = train_dqn.Config(**NUMBERS, env="Treasure-v0", runs=str(tmp_path), jit_compile=False)
    run, agent = train_dqn.main(config)
    assert {path.name for path in run.folder.figures.iterdir()} == {"attention.png", "episode.gif"}

    task = gymnasium_task("Treasure-v0")
    env = Treasure()
    raw = [env.reset(seed=seed)[0] for seed in range(3)]
    packed = np.stack([task.make_env().reset(seed=seed)[0] for seed in range(3)])
    expected = np.array(task.env_actions)[agent.greedy(packed)]
    assert expected.shape == (3, 2) and expected.min() >= -1

    def use(policy):
        action, scores = policy.act(raw[0], return_attention_scores=True)
        np.testing.assert_array_equal(action, expected[0])
        assert env.action_space.contains(action.astype(int))
        assert {name: each.shape for name, each in scores.items()} == {
            "room_round_1": (2, 12, 12),
            "room_readout": (4, 1, 12),
        }
        np.testing.assert_array_equal(policy.act(batch(raw)), expected)
        lists = {**raw[0], "room": raw[0]["room"].tolist()}
        np.testing.assert_array_equal(policy.act(lists), expected[0])
        with pytest.raises(ValueError, match="must have the parts"):
            policy.act(raw[0]["room"])
        with pytest.raises(ValueError, match="batch axis either all or none"):
            policy.act({**raw[0], "clock": np.zeros((1, 1))})

    policy = rrl_tf.load_policy(run.folder.export)
    inputs = policy.signatures["act"]["inputs"]
    assert {name: (dtype.name, shape) for name, (dtype, shape) in inputs.items()} == {
        "clock": ("float64", [-1, 1]),
        "room": ("uint8", [-1, 3, 4]),
        "wanted": ("int64", [-1]),
    }
    use(policy)
    on_both_protocols(run.folder.export, use)

    def make_env():
        return gymnasium.make("Treasure-v0", max_episode_steps=6)

    resets = [{"seed": seed} for seed in range(4)]
    outside = evaluate(policy.act, make_env, resets)
    inside = evaluate(agent.greedy, gymnasium_task("Treasure-v0", max_steps=6).make_env, resets)
    np.testing.assert_array_equal(outside.length, inside.length)
    assert evaluate(policy.act, make_env, resets, epsilon=1.0).length.min() >= 1


def test_train_recurrent_on_a_dict_environment(tmp_path):
    from rrl_tf.export import load_policy
    from serving.sessions import MemorySession
    from train_scripts import train_recurrent

    config = train_recurrent.Config(
        **NUMBERS,
        env="Treasure-v0",
        environment="gymnasium",
        network="lstm",
        burn_in=1,
        unroll_length=2,
        n_step=1,
        runs=str(tmp_path),
    )
    run, _ = train_recurrent.main(config)
    assert "attention.png" in {path.name for path in run.folder.figures.iterdir()}
    env = Treasure()
    observations = [env.reset(seed=seed)[0] for seed in range(3)]

    def play(client):
        session = MemorySession(client)
        return np.array([session.act(each, reward=0.5) for each in observations])

    expected = play(load_policy(run.folder.export))
    assert expected.shape == (3, 2)

    def use(client):
        np.testing.assert_array_equal(play(client), expected)
        with pytest.raises(ValueError, match="in each of 2 environments"):
            MemorySession(client, num_envs=2).act(observations[0])

    on_both_protocols(run.folder.export, use)


@pytest.mark.parametrize("space", [Discrete(3, start=1), MultiDiscrete([[2, 2], [2, 2]])])
def test_policy_of_a_discrete_observation_takes_it_as_it_is(tmp_path, space):
    from rrl_tf.export import load_policy
    from train_scripts import train_dqn

    class Steps(gymnasium.Env):
        observation_space, action_space = space, Discrete(2, start=7)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            space.seed(seed and seed % 2**31)
            return space.sample(), {}

        def step(self, action):
            assert action in (7, 8)
            return space.sample(), float(action == 8), False, False, {}

    gymnasium.register("Steps-v0", Steps)
    try:
        config = train_dqn.Config(**NUMBERS, env="Steps-v0", runs=str(tmp_path), jit_compile=False)
        run, _ = train_dqn.main(config)
    finally:
        del gymnasium.registry["Steps-v0"]
    policy = load_policy(run.folder.export)
    assert policy.act(space.sample()) in (7, 8)
    assert set(policy.act(np.stack([space.sample()] * 5)).tolist()) <= {7, 8}
