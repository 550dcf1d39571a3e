"""The update of the recurrent double DQN equals its definition, and its state is kept."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.agents import (
    Collector,
    GraphEnvs,
    GraphEvaluation,
    Loop,
    RecurrentDoubleDQN,
    SequenceReplayBuffer,
    evaluate,
)
from rrl_tf.envs import (
    DoorKeyGraph,
    doorkey_task,
    enumerate_starts,
    make_doorkey,
)
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.training import linear_schedule

pytestmark = pytest.mark.tf_only
TASK = doorkey_task((5,))
BURN_IN, LEARNED, N_STEP = 1, 3, 2
LENGTH = BURN_IN + LEARNED + N_STEP
ENVS = 3


def make_agent(core="lstm", seed=0, core_arguments=None, **changes):
    keras.utils.set_random_seed(seed)
    network = RecurrentQNetwork.from_preset(
        f"{core}-dense",
        num_actions=TASK.num_actions,
        encoder_arguments={"hidden_units": (8,)},
        core_arguments=core_arguments or {},
        hidden_units=(8,),
    )
    network.build({"observation": (None, *TASK.preprocessor.shape)})
    arguments = {"burn_in": BURN_IN, "n_step": N_STEP, "discount": 0.9, **changes}
    return RecurrentDoubleDQN(network, TASK.preprocessor, **arguments)


def make_loop():
    agent = make_agent(jit_compile=False)
    env = GraphEnvs([DoorKeyGraph(5, reward="success", max_steps=12)], ENVS)
    replay = SequenceReplayBuffer(
        150,
        (7, 7, 4),
        "uint8",
        num_envs=ENVS,
        length=LENGTH,
        period=2,
        memory_size=agent.network.memory_size,
        discount=0.9,
        priority_exponent=0.6,
        use_return_lower_bound=True,
        jit_compile=False,
    )
    return Loop(
        agent,
        Collector(agent, env, seed=0),
        replay,
        epsilon=functools.partial(linear_schedule, start=1.0, end=0.2, steps=300),
        updates_per_step=0.0,
        batch_size=4,
        learning_starts=60,
        seed=0,
        pauses=(60,),
    )


def test_stored_states_are_those_that_the_agent_acted_with():
    loop = make_loop()
    for _ in loop.run(60):
        pass
    sequence, index = loop.replay.sample(16, (0, 3))
    first = sequence["previous_action"].numpy() < 0
    done = sequence["over"].numpy()
    np.testing.assert_array_equal(first[:, 1:], done[:, :-1])  # an episode begins after each end
    action, reward = sequence["action_t"].numpy(), sequence["reward_t"].numpy()
    kept = ~first[:, 1:]
    np.testing.assert_array_equal(
        sequence["previous_action"].numpy()[:, 1:][kept], action[:, :-1][kept]
    )
    np.testing.assert_array_equal(
        sequence["previous_reward"].numpy()[:, 1:][kept], reward[:, :-1][kept]
    )
    # Unrolling from the stored memory gives the memories that were stored later.
    inputs = loop.agent._network_inputs(sequence)
    _, memories = loop.agent.network.unroll(inputs, sequence["memory"], first)
    state = loop.replay.get_state()
    later = (index.numpy() + ENVS) % len(state["memory"])
    continues = ~done[:, 0]
    np.testing.assert_allclose(
        memories.numpy()[:, 0][continues], state["memory"][later][continues], atol=1e-5
    )


def random_sequences(batch=5, seed=0):
    rng = np.random.default_rng(seed)
    done = rng.random((batch, LENGTH)) < 0.25
    terminated = done & (rng.random((batch, LENGTH)) < 0.6)
    action = rng.integers(TASK.num_actions, size=(batch, LENGTH)).astype("int32")
    reward = rng.normal(size=(batch, LENGTH)).astype("float32")
    previous_action, previous_reward = np.roll(action, 1, 1), np.roll(reward, 1, 1)
    first = np.roll(done, 1, 1)
    bound = np.where(rng.random((batch, LENGTH)) < 0.3, rng.normal(size=(batch, LENGTH)), -np.inf)
    return {
        "observation_t": rng.integers(3, size=(batch, LENGTH, 7, 7, 4)).astype("uint8"),
        "action_t": action,
        "reward_t": reward,
        "terminated": terminated,
        "over": done,
        "return_lower_bound": bound.astype("float32"),
        "previous_action": np.where(first, -1, previous_action).astype("int32"),
        "previous_reward": np.where(first, 0, previous_reward).astype("float32"),
        "weight_t": rng.random(batch).astype("float32"),
    }


@pytest.mark.parametrize("core", ["lstm", "relational-memory", "window", "none"])
def test_loss_and_priorities_equal_the_definition(core):
    agent = make_agent(core, learning_rate=0.0)
    # The target network must differ from the online network.
    agent.target.set_weights([1.1 * w for w in agent.target.get_weights()])
    sequence = random_sequences()
    size = (len(sequence["action_t"]), agent.network.memory_size)
    sequence["memory"] = np.random.default_rng(1).normal(size=size).astype("float32") * 0.1
    sequence = {name: tf.constant(value) for name, value in sequence.items()}
    inputs = agent._network_inputs(sequence)
    first = sequence["previous_action"].numpy() < 0
    q, target = (
        network.unroll(inputs, sequence["memory"], first)[0].numpy()
        for network in (agent.network, agent.target)
    )
    metrics, priority = agent.update(sequence)
    arrays = {name: value.numpy() for name, value in sequence.items()}
    losses, priorities = [], []
    for b in range(size[0]):
        errors = []
        for t in range(BURN_IN, BURN_IN + LEARNED):
            value, cut, k = 0.0, False, 0
            while k < N_STEP:
                value += 0.9**k * arrays["reward_t"][b, t + k]
                if arrays["over"][b, t + k]:
                    cut = not arrays["terminated"][b, t + k]
                    break
                k += 1
            else:
                best = q[b, t + N_STEP].argmax()
                value += 0.9**N_STEP * target[b, t + N_STEP, best]
            value = max(value, arrays["return_lower_bound"][b, t])
            error = value - q[b, t, arrays["action_t"][b, t]]
            size_ = abs(error)
            loss = 0.5 * error**2 if size_ <= 1 else size_ - 0.5
            losses.append(0.0 if cut else loss * arrays["weight_t"][b])
            errors += [] if cut else [size_]
        priorities.append(0.9 * max(errors, default=0) + 0.1 * (np.mean(errors) if errors else 0))
    assert float(metrics["loss"]) == pytest.approx(np.mean(losses), rel=1e-4)
    np.testing.assert_allclose(priority, priorities, rtol=1e-4, atol=1e-6)


def test_without_the_stored_state_a_sequence_begins_with_an_empty_one():
    priorities = []
    for stored in (True, False):
        agent = make_agent(stored_state=stored)
        sequence = random_sequences()
        sequence["memory"] = np.full((5, agent.network.memory_size), 0.0 if stored else 9.0, "f4")
        sequence = {name: tf.constant(value) for name, value in sequence.items()}
        priorities.append(agent.update(sequence)[1].numpy())
    np.testing.assert_array_equal(*priorities)


def test_updates_fit_fixed_sequences():
    agent = make_agent(learning_rate=5e-3)
    sequence = random_sequences()
    sequence["memory"] = np.zeros((5, agent.network.memory_size), "float32")
    sequence = {name: tf.constant(value) for name, value in sequence.items()}
    losses = [float(agent.update(sequence)[0]["loss"]) for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]


def test_sequence_too_short_is_rejected():
    agent = make_agent(burn_in=LENGTH - N_STEP)
    sequence = random_sequences()
    sequence["memory"] = np.zeros((5, agent.network.memory_size), "float32")
    with pytest.raises(InvalidInput, match="`burn_in` \\+ `n_step` = 4 \\+ 2 steps; received 6"):
        agent.update({name: tf.constant(value) for name, value in sequence.items()})


def test_state_of_another_core_is_rejected():
    with pytest.raises(InvalidInput, match="do not fit"):
        make_agent("lstm").set_state(make_agent("relational-memory").get_state())


def test_each_episode_of_an_evaluation_has_its_own_memory():
    agent, starts = make_agent(seed=3), enumerate_starts(5)[::4]
    resets = [{"options": {"start": start}} for start in starts]
    make = functools.partial(make_doorkey, 5, "compass", max_steps=15)
    together = evaluate(agent.greedy_policy(), make, resets)
    alone = [evaluate(agent.greedy_policy(), make, [reset]) for reset in resets]
    np.testing.assert_array_equal(together.length, [one.length[0] for one in alone])
    np.testing.assert_allclose(together.returns, [one.returns[0] for one in alone])

    for start, length in zip(starts, together.length):  # step by step, as defined
        env, state = make(), agent.initial_state(1)
        observation, _ = env.reset(options={"start": start})
        done, steps = False, 0
        while not done:
            values, memory = agent.values(agent.policy, tf.constant(observation[None]), state)
            action = int(values.numpy().argmax())
            observation, reward, terminated, truncated, _ = env.step(action)
            state = {
                "memory": memory,
                "previous_action": tf.constant([action]),
                "previous_reward": tf.constant([reward], tf.float32),
            }
            done, steps = terminated or truncated, steps + 1
        assert steps == length


@pytest.mark.parametrize("core", ["lstm", "relational-memory", "none"])
def test_next_state_is_the_initial_one_where_an_episode_is_done(core):
    agent, rng = make_agent(core), np.random.default_rng(0)
    policy, done = agent.greedy_policy(), np.array([True, False, True, False])
    memory = rng.normal(size=(4, agent.network.memory_size)).astype("float32")
    action, reward = np.array([0, 3, 2, 1]), np.array([0.0, 1.0, 0.5, -1.0])
    found = policy.next_state(memory, action, reward, done)
    initial = policy.initial_state(4)
    after = {"memory": memory, "previous_action": action, "previous_reward": reward}
    for name, value in after.items():
        expected = np.where(done[:, None] if value.ndim > 1 else done, initial[name], value)
        np.testing.assert_allclose(found[name], expected.astype(initial[name].dtype))
        assert found[name].dtype == initial[name].dtype
    assert initial["previous_action"].tolist() == [-1] * 4


def test_policy_begins_with_its_own_learned_memory(monkeypatch):
    """The averaged network has another learned initial memory than the online network."""
    agent = make_agent("relational-memory", core_arguments={"learned_start": True})
    start = agent.network.core_layer.cell.initial_memory
    start.assign(start + 3.0)
    policy, online = (net.initial_memory(2).numpy() for net in (agent.policy, agent.network))
    assert (policy != online).all()
    np.testing.assert_array_equal(agent.greedy_policy().initial_state(2)["memory"], policy)
    np.testing.assert_array_equal(agent.initial_state(2)["memory"], online)  # acts in training

    recalled, values = [], agent.policy_values
    monkeypatch.setattr(
        agent, "policy_values", lambda *seen: recalled.append(seen) or values(*seen)
    )
    play = GraphEvaluation(agent, DoorKeyGraph(5, max_steps=1), enumerate_starts(5)[:2])
    tf.config.run_functions_eagerly(True)
    try:
        play()
    finally:
        tf.config.run_functions_eagerly(False)
    ((_, recall),) = recalled
    np.testing.assert_array_equal(recall["memory"], policy)


@pytest.mark.parametrize("burn_in", [2.7, -1])
def test_burn_in_that_is_no_integer_is_rejected(burn_in):
    with pytest.raises(InvalidInput, match=f"burn_in.* must be .*; received {burn_in}"):
        make_agent(burn_in=burn_in)
