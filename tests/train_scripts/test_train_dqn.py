"""Runs of `train_dqn` on Gymnasium environments."""

import importlib
import json
import re
import sys
import textwrap

import gymnasium
import numpy as np
import pytest

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]

TOY = {
    "steps": 96,
    "num_envs": 4,
    "batch_size": 8,
    "learning_starts": 20,
    "updates_per_step": 0.1,
    "evaluate_every": 48,
    "evaluation_episodes": 3,
    "max_steps": 12,
    "jit_compile": False,
}

GRID = '''
    """A grid of its own codes: 0 fog, 1 floor, 2 coin, 3 walker."""

    import gymnasium
    import numpy as np
    from gymnasium.spaces import Box, Discrete


    class CoinGrid(gymnasium.Env):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        observation_space = Box(0, 3, (4, 6, 1), np.uint8)
        action_space = Discrete(4)
        action_names = ("up", "down", "left", "right")

        def __init__(self, render_mode=None):
            self.render_mode = render_mode

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            cells = self.np_random.permutation(24)[:2]
            self.walker, self.coin = ([int(c) // 6, int(c) % 6] for c in cells)
            return self.look(), {}

        def look(self):
            grid = np.ones((4, 6, 1), np.uint8)
            grid[:, 5] = 0
            grid[tuple(self.coin)] = 2
            grid[tuple(self.walker)] = 3
            return grid

        def step(self, action):
            step = ((-1, 0), (1, 0), (0, -1), (0, 1))[action]
            self.walker = [
                int(np.clip(a + b, 0, size - 1))
                for a, b, size in zip(self.walker, step, (4, 6))
            ]
            found = self.walker == self.coin
            return self.look(), float(found), found, False, {"success": found}

        def state_key(self):
            return (*self.walker, *self.coin)

        def entities(self, observation):
            cells = {"agent": np.argwhere(observation[..., 0] == 3)[0]}
            if (observation == 2).any():
                cells["coin"] = np.argwhere(observation[..., 0] == 2)[0]
            return {label: tuple(map(int, cell)) for label, cell in cells.items()}

        def render(self):
            grey = np.kron(60 * self.look()[..., 0], np.ones((9, 9), np.uint8))
            return grey[..., None].repeat(3, -1)


    gymnasium.register("CoinGrid-v0", CoinGrid, max_episode_steps=30)
'''


@pytest.fixture
def coin_grid(tmp_path, monkeypatch):
    """Write a user module with a grid environment."""
    import gymnasium

    (tmp_path / "coins.py").write_text(textwrap.dedent(GRID))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield "coins:CoinGrid-v0"
    sys.modules.pop("coins", None)
    gymnasium.registry.pop("CoinGrid-v0", None)


def train(tmp_path, env, **changes):
    from train_scripts import train_dqn

    return train_dqn.main(train_dqn.Config(**{**TOY, **changes}, env=env, runs=str(tmp_path)))


def export_of(run):
    from rrl_tf.export import load_policy

    return load_policy(run.folder.export / "1")


@pytest.mark.parametrize(
    ("env", "network"),
    [
        ("CartPole-v1", "sequential"),
        ("MiniGrid-KeyCorridorS3R1-v0", "relational_q_network"),
    ],
)
def test_run_trains_evaluates_and_exports(tmp_path, env, network):
    from rrl_tf.envs import gymnasium_task

    run, agent = train(tmp_path, env)
    assert agent.network.name.startswith(network)
    assert run.folder.path == tmp_path / f"{env}-seed0"
    summary = json.loads((run.folder.path / "evaluation.json").read_text())
    assert summary["step"] == 96
    assert 0 <= summary["eval/success"] <= 1
    assert ("eval/loops" in summary) == env.startswith("MiniGrid")
    config = json.loads((run.folder.path / "config.json").read_text())
    assert (config["discount"], config["n_step"]) == (0.99, 3)
    task = gymnasium_task(env)
    observations = np.stack([task.make_env().reset(seed=seed)[0] for seed in range(5)])
    policy = export_of(run)
    np.testing.assert_array_equal(policy.act(observations), agent.greedy(observations))
    assert policy.details["action_names"] == list(task.action_names)
    pictures = {"episode.gif"} | ({"attention.png"} if env.startswith("MiniGrid") else set())
    assert {path.name for path in run.folder.figures.iterdir()} == pictures


def test_run_on_a_users_grid_environment(tmp_path, coin_grid, capsys):
    run, agent = train(tmp_path / "runs", coin_grid, updates_per_step=0.0)
    [network] = re.findall(r"^network +(.*)$", capsys.readouterr().out, re.MULTILINE)
    assert network.startswith("grid: RelationalQNetwork")
    assert network.endswith(" parameters, reads all cells by learned queries")
    assert {path.name for path in run.folder.figures.iterdir()} == {"attention.png", "episode.gif"}
    summary = json.loads((run.folder.path / "evaluation.json").read_text())
    assert {"eval/success", "eval/loops", "eval/return"} <= summary.keys()
    config = json.loads((run.folder.path / "config.json").read_text())
    assert (config["discount"], config["n_step"]) == (0.95, 1)
    policy = export_of(run)
    observation, _ = importlib.import_module("coins").CoinGrid().reset(seed=0)
    action, scores = policy.act(observation, return_attention_scores=True)
    assert action == agent.greedy(observation[None])[0]
    shapes = {name: each.shape for name, each in scores.items()}
    assert shapes == {"round_1": (2, 24, 24), "readout": (4, 1, 24)}
    assert policy.details["action_names"] == ["up", "down", "left", "right"]


def test_users_grid_is_drawn_rows_first(coin_grid):
    import keras

    from rrl_tf.envs import gymnasium_task
    from rrl_tf.interpret.episode import play
    from rrl_tf.models import RelationalQNetwork

    task = gymnasium_task(coin_grid)
    network = RelationalQNetwork.from_preset("fast", task.preprocessor, num_actions=4)
    network.build((None, *task.preprocessor.shape))
    env = task.make_env(render_mode="rgb_array")
    episode = play(network, task, env, {"seed": 0})
    observation, _ = env.reset(seed=0)
    row, column = task.entities(observation)["agent"]
    x, y = episode.cells[0]["agent"]
    assert (x, y) == (column, row)
    _, scores = network(task.preprocessor(observation[None]), return_attention_scores=True)
    scores = keras.ops.convert_to_numpy(scores["round_1"])[0]
    # Cell (x, y) is entity x * height + y in pictures, and row * width + column in the network.
    drawn = episode.scores["round_1"][0][:, x * 4 + y].reshape(-1, 6, 4)
    np.testing.assert_array_equal(
        drawn, scores[:, row * 6 + column].reshape(-1, 4, 6).transpose(0, 2, 1)
    )


def test_test_env_is_evaluated(tmp_path):
    from train_scripts import train_dqn

    config = train_dqn.Config(
        **TOY, env="MiniGrid-Empty-5x5-v0", test_env="MiniGrid-Empty-8x8-v0", runs=str(tmp_path)
    )
    run, _ = train_dqn.main(config)
    assert (run.folder.path / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("env", "changes", "message"),
    [
        ("Pendulum-v1", {}, "must be Discrete, or a MultiDiscrete or .*; received Box"),
        ("CartPole-v2", {}, "cannot make the environment 'CartPole-v2'"),
        (
            "CartPole-v1",
            {"network": "nope"},
            "`network` must be one of .*'dense', .*received 'nope'",
        ),
        ("CartPole-v1", {"network": "fast"}, "network 'fast' takes grids .*received .*4,"),
        ("CartPole-v1", {"preset": "fast"}, "must be empty for this run; received 'fast'"),
        (
            "CartPole-v1",
            {"network": "convolutional"},
            "'convolutional' takes grids .*`--network dense`",
        ),
        ("MiniGrid-Empty-5x5-v0", {"network": "atari"}, "'atari' takes larger grids; .*7, 7, 24"),
        ("", {}, "`env` must be an id such as CartPole-v1; received .*Use `--env`"),
        ("CartPole-v1", {"frames": 0}, "`frames` must be greater than 0"),
        ("CartPole-v1", {"actions": (5,)}, r"received \(5,\)"),
    ],
)
def test_wrong_option_writes_nothing(tmp_path, env, changes, message):
    from rrl_tf.errors import InvalidInput

    with pytest.raises(InvalidInput, match=message):
        train(tmp_path / "runs", env, **changes)
    assert not (tmp_path / "runs").exists()


VECTOR, PICTURE = (
    gymnasium.spaces.Box(-1, 1, (4,)),
    gymnasium.spaces.Box(0, 255, (40, 36, 3), "uint8"),
)
GRIDS = (
    gymnasium.spaces.Box(0, 3, (5, 5, 1), "uint8"),
    gymnasium.spaces.Box(0, 3, (10, 10), "uint8"),
    gymnasium.spaces.Box(0, 1, (7, 6, 3), "float32"),
    gymnasium.spaces.Box(-np.inf, np.inf, (1, 9, 2)),
)


def made_network(space, name):
    """Return the network that `train_dqn` makes for observations of a space."""
    from rrl_tf.agents import DQNConfig, make_q_network
    from rrl_tf.envs import gymnasium_task

    class Still(gymnasium.Env):
        observation_space, action_space = space, gymnasium.spaces.Discrete(4)

    task = gymnasium_task(Still)
    network = make_q_network(DQNConfig(env="Still-v0", network=name), task)
    values = network(np.zeros((2, *task.preprocessor.shape), "float32"))
    assert values.shape == (2, 4)
    return network


@pytest.mark.parametrize("space", GRIDS, ids=lambda space: str(space.shape))
@pytest.mark.parametrize(
    "name",
    ["", "dense", "convolutional", "book", "zambaldi", "fast", "fast-relative", "grid", "atari"],
)
def test_every_network_fits_small_grids_or_is_refused(space, name):
    from rrl_tf.errors import InvalidInput

    if name == "atari":
        with pytest.raises(InvalidInput, match=r"'atari' takes larger grids; .* `--network grid`"):
            made_network(space, name)
    else:
        made_network(space, name)


@pytest.mark.parametrize(
    ("space", "kind", "parameters"),
    [(VECTOR, "Sequential", 17_668), (PICTURE, "Sequential", 111_268)],
)
def test_default_network_fits_the_observations(space, kind, parameters):
    network = made_network(space, "")
    assert (type(network).__name__, network.count_params()) == (kind, parameters)


def test_default_network_of_a_grid_reads_its_cells_by_attention():
    assert made_network(GRIDS[0], "").readout == "attention"


def test_other_network_does_not_resume_a_run(tmp_path, unfinished):
    from rrl_tf.agents import DoubleDQNConfig, train_double_dqn
    from rrl_tf.envs import gymnasium_task
    from rrl_tf.errors import InvalidInput
    from rrl_tf.models import dense_q_network

    numbers = {name: value for name, value in TOY.items() if name != "max_steps"}
    config = DoubleDQNConfig(**numbers, runs=str(tmp_path), name="taken")
    task = gymnasium_task("CartPole-v1", max_steps=12)
    train_double_dqn(task, dense_q_network(2, (32,)), config)
    with pytest.raises(
        InvalidInput,
        match="taken contains a run with another configuration: parameters was 226 and is now 114",
    ):
        train_double_dqn(task, dense_q_network(2, (16,)), config)


class LuckyWalk(gymnasium.Env):
    """Environment that never reports a failure and renders nothing."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.lucky = 5, self.np_random.random() < 0.3
        return np.array([5.0], np.float32), {}

    def step(self, action):
        self.left -= 1
        info = {"success": True} if self.lucky and not self.left else {}
        return np.array([self.left], np.float32), float(action), self.left == 0, False, info

    def render(self):
        return None


def test_missing_success_counts_as_failure(tmp_path, capsys):
    from rrl_tf.agents import DoubleDQNConfig, train_double_dqn
    from rrl_tf.envs import Level, Preprocessor, Task
    from rrl_tf.interpret import draw_episode
    from rrl_tf.models import dense_q_network

    numbers = {name: value for name, value in TOY.items() if name != "max_steps"}
    task = Task(
        "Lucky", (Level("1", LuckyWalk), Level("2", LuckyWalk)), Preprocessor(lambda x: x, (1,))
    )
    config = DoubleDQNConfig(**{**numbers, "evaluation_episodes": 30}, runs=str(tmp_path))
    run, _ = train_double_dqn(task, dense_q_network(2), config, draw_episode=draw_episode)
    summary = json.loads((run.folder.path / "evaluation.json").read_text())
    assert 0 < summary["eval/success"] < 0.8
    assert run.log.rows[-1]["rollout/success"] < 0.9
    assert "cannot draw figures of Lucky" in capsys.readouterr().out
