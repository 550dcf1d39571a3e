"""Units that are off: how they are counted, and by what starts are told apart."""

import json

import numpy as np
import pytest

from rrl_tf.agents.evaluation import Evaluation
from rrl_tf.envs import key_corridor_task, make_key_corridor

pytestmark = pytest.mark.tf_only


@pytest.fixture
def silent_units():
    from benchmarks.reproductions import silent_units

    return silent_units


@pytest.fixture(scope="module")
def agent():
    from rrl_tf.agents import RecurrentDoubleDQN
    from rrl_tf.models import RecurrentQNetwork

    task = key_corridor_task((1, 2))
    network = RecurrentQNetwork.from_preset(
        "lstm-long",
        task.preprocessor,
        num_actions=task.num_actions,
        core_arguments={"units": 3},
        hidden_units=(5,),
    )
    network.build({"observation": (None, *task.preprocessor(np.zeros((1, 7, 7, 4))).shape[1:])})
    return RecurrentDoubleDQN(network, task.preprocessor)


def test_who_listens_plays_as_before_and_counts_units_above_zero(silent_units, agent):
    envs = [make_key_corridor(rows=2) for _ in range(6)]
    views = np.stack([env.reset(seed=seed)[0] for seed, env in enumerate(envs)])
    player, listener = agent.greedy_player(), silent_units.Listener(agent)
    (hidden,) = agent.policy.hidden
    hidden.bias.assign(np.linspace(-1, 1, 5))
    action, memory = player(views, player.initial_recall(6))
    heard_action, heard_memory = listener(views, listener.initial_recall(6))
    np.testing.assert_array_equal(heard_action, action)
    np.testing.assert_allclose(heard_memory, memory, atol=1e-6)
    # Another way to the same: with a head that reads out one unit.
    activation, q = hidden.activation, []
    for unit in range(5):
        kernel = np.zeros(agent.policy.head.kernel.shape, "float32")
        kernel[unit, 0] = 1.0  # of the value of the state
        before = agent.policy.head.get_weights()
        agent.policy.head.set_weights([kernel, np.zeros(kernel.shape[1])])
        q.append(np.asarray(agent.policy_values(views, player.initial_recall(6))[0]).max(axis=-1))
        agent.policy.head.set_weights(before)
    np.testing.assert_array_equal(listener.on, [(np.stack(q) > 0).sum(axis=0)])
    assert len({*listener.on[0], 0, 5}) > 2  # some are on, and some are off
    assert hidden.activation is activation


@pytest.mark.parametrize("room_size", [3, 5])
def test_starts_are_told_apart_by_the_rows_of_key_and_ball(silent_units, room_size):
    resets = [{"seed": seed} for seed in range(30)]

    def world(rows):
        return make_key_corridor(rows, room_size)

    assert all(silent_units.in_one_row(world(1), reset) for reset in resets)
    same = [silent_units.in_one_row(world(3), reset) for reset in resets]
    assert 3 < sum(same) < 25
    for reset, told in zip(resets, same):
        env = world(3)
        env.reset(**reset)
        rows = {
            each: row // (room_size - 1)
            for row, line in enumerate(env.unwrapped.pprint_grid().split("\n"))
            for each in "KA"
            if any(cell[0] == each for cell in zip(line[::2], line[1::2]))
        }
        assert (rows["K"] == rows["A"]) == told


def test_an_agent_is_asked_by_rows(silent_units, agent, monkeypatch):
    """Greedily those in one row are solved, and the others with noise; units by play as well."""
    task = key_corridor_task((1, 2))
    seeds = range(silent_units.ASKED_FROM, silent_units.ASKED_FROM + 8)
    same = [silent_units.in_one_row(task.make_test_env(), {"seed": seed}) for seed in seeds]
    assert 0 < sum(same) < 8

    def evaluate(player, make_env, resets, epsilon):
        assert resets == [{"seed": seed} for seed in seeds]
        player.on = [np.array([0, 3]), np.array([4, 5])] if epsilon else [np.array([0, 0, 2])]
        return Evaluation(np.array(same) != (epsilon == silent_units.EPSILON), None, None, None)

    monkeypatch.setattr(silent_units, "evaluate", evaluate)
    assert silent_units.asked(agent, task, starts=8) == {
        "greedy": {"same_row": 1.0, "other_row": 0.0, "silent": 2 / 3, "on": 2 / 3},
        "noisy": {"same_row": 0.0, "other_row": 1.0, "silent": 0.25, "on": 3.0},
    }


def test_an_agent_plays_to_the_end(silent_units, agent):
    found = silent_units.asked(agent, key_corridor_task((1, 2), max_steps=3), starts=8)
    for numbers in found.values():
        assert (numbers["same_row"], numbers["other_row"]) == (0.0, 0.0)  # nobody is so quick
        assert 0 < numbers["on"] < 5


@pytest.mark.parametrize("variant", ["relu", "leaky_relu"])
def test_each_variant_is_trained_as_it_says(silent_units, monkeypatch, variant):
    import tyro

    from train_scripts import train_recurrent

    asked = {}

    def train(config, script, preset, seed, *arguments, name):
        assert (script, seed, name) == ("train_recurrent", 7, f"{variant}-seed7")
        preset = train_recurrent.PRESETS[preset]
        asked["config"] = tyro.cli(train_recurrent.Config, default=preset, args=list(arguments))
        raise StopIteration

    assert variant in silent_units.Config().variants
    monkeypatch.setattr(silent_units.runs, "train", train)
    with pytest.raises(StopIteration):
        silent_units.train(silent_units.Config(), variant, 7)
    assert asked["config"].hidden_activation == variant
    assert asked["config"].sizes == (1, 2)


def test_the_table_says_what_the_files_say(silent_units, tmp_path):
    for variant, seed, share in (("relu", 102, 0.25), ("relu", 3, 1.0), ("leaky_relu", 3, 0.0)):
        greedy = {"same_row": share, "other_row": 0.1, "silent": 0.2, "on": 3.0}
        kept = {"greedy": greedy, "noisy": {"same_row": 0.3, "other_row": 0.4, "silent": 0.5}}
        (tmp_path / f"{variant}-seed{seed}.json").write_text(json.dumps(kept))
    assert silent_units.table(tmp_path).splitlines()[2:] == [
        "| ReLU | 3 | 100.0 % | 10.0 % | 20.0 % | 30.0 % | 40.0 % | 50.0 % |",
        "| ReLU | 102 | 25.0 % | 10.0 % | 20.0 % | 30.0 % | 40.0 % | 50.0 % |",
        "| leaky ReLU | 3 | 0.0 % | 10.0 % | 20.0 % | 30.0 % | 40.0 % | 50.0 % |",
    ]
