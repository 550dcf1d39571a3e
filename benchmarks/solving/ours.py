"""Train an agent of this library until it solves a task."""

import dataclasses

import keras

from benchmarks.solving.trial import Trial
from rrl_tf.agents import Curriculum, DQNConfig, make_loop, make_play, make_q_network
from rrl_tf.agents.evaluation import evaluate_level
from rrl_tf.envs import gymnasium_task
from train_scripts import train_doorkey, train_recurrent


def main(trial):
    """Train with the loop of `train_double_dqn`, without checkpoints, figures and export."""
    keras.utils.set_random_seed(trial.seed)
    config, task, network, make_env = parts(trial)
    loop = make_loop(task, network, config)
    play = make_play(loop.agent, task, config.evaluation_episodes, config.loop == "graph")
    curriculum = Curriculum(len(task.levels))
    act = greedy(loop.agent)
    for record in loop.run(config.steps):
        is_last_level = curriculum.level + 1 == curriculum.levels
        # A curriculum needs evaluations for its promotions; these are part of the training.
        if not is_last_level and record.step % config.evaluate_every < config.num_envs:
            success = evaluate_level(play, curriculum.level, curriculum.levels)["eval/success"]
            if curriculum.report(success):
                loop.collector.reset_options = {"level": curriculum.level}
        trial.report(record.step, make_env, act)
    trial.finish()


def parts(trial):
    """Return the configuration, task, network and evaluation environments of a trial."""
    if trial.agent == "cartpole":
        config = DQNConfig(env=trial.task.env, discount=0.99, n_step=3, seed=trial.seed)
        task = gymnasium_task(config.env)
        return config, task, make_q_network(config, task), task.make_env
    script = train_recurrent if trial.agent.startswith("recurrent:") else train_doorkey
    preset = script.PRESETS[trial.agent.removeprefix("recurrent:")]
    config = dataclasses.replace(preset, seed=trial.seed)
    task = script.make_task(config)
    whole = dataclasses.replace(config, sizes=config.sizes[-1:], held_out=False)
    make_env = script.make_task(whole).make_test_env  # MiniGrid's, without held-out layouts
    return config, task, script.make_network(config, task), make_env


def greedy(agent):
    """Return the agent's greedy policy as `Trial.report` expects it."""
    policy = agent.greedy_policy()
    if not hasattr(policy, "initial_state"):
        return lambda observations, state, rewards: (policy(observations), None)

    def act(observations, state, rewards):
        if state is None:
            inputs = policy.initial_state(len(rewards))
        else:
            inputs = policy.next_state(*state, rewards, rewards != rewards)  # none begins again
        actions, memory = policy(observations, inputs)
        return actions, (memory, actions)

    return act


if __name__ == "__main__":
    main(Trial.from_command_line())
