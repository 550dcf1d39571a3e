"""Units that are off: how they are counted, and by what starts are told apart."""

import json

import numpy as np
import pytest

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
        task.preparation,
        num_actions=task.num_actions,
        core_arguments={"units": 3},
        hidden_units=(5,),
    )
    network.build({"observation": (None, *task.preparation(np.zeros((1, 7, 7, 4))).shape[1:])})
    return RecurrentDoubleDQN(network, task.preparation)


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


def test_starts_are_told_apart_by_the_rows_of_key_and_ball(silent_units):
    resets = [{"seed": seed} for seed in range(30)]
    assert all(silent_units.in_one_row(make_key_corridor(rows=1), reset) for reset in resets)
    same = [silent_units.in_one_row(make_key_corridor(rows=2), reset) for reset in resets]
    assert 5 < sum(same) < 25
    for reset, told in zip(resets, same):
        env = make_key_corridor(rows=2)
        env.reset(**reset)
        rows = {
            each: row
            for row, line in enumerate(env.unwrapped.pprint_grid().split("\n"))
            for each in "KA"
            if any(cell[0] == each for cell in zip(line[::2], line[1::2]))
        }
        assert (rows["K"] == rows["A"]) == told


def test_an_agent_is_asked_by_rows(silent_units, agent):
    found = silent_units.asked(agent, key_corridor_task((1, 2), max_steps=5), starts=8)
    assert found.keys() == {"greedy", "noisy"}
    for numbers in found.values():
        assert 0 <= numbers["silent"] <= 1
        assert 0 <= numbers["on"] <= 5
        assert {numbers["same_row"], numbers["other_row"]} == {0.0}  # in five steps nobody is there


def test_the_table_says_what_the_files_say(silent_units, tmp_path):
    for seed, share in ((102, 0.25), (3, 1.0)):
        greedy = {"same_row": share, "other_row": 0.0, "silent": 0.5, "on": 3.0}
        kept = {"greedy": greedy, "noisy": {**greedy, "other_row": 0.75}}
        (tmp_path / f"relu-seed{seed}.json").write_text(json.dumps(kept))
    assert silent_units.table(tmp_path).splitlines()[2:] == [
        "| ReLU | 3 | 100.0 % | 0.0 % | 50.0 % | 100.0 % | 75.0 % | 50.0 % |",
        "| ReLU | 102 | 25.0 % | 0.0 % | 50.0 % | 25.0 % | 75.0 % | 50.0 % |",
    ]
