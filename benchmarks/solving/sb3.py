"""Train an agent of Stable-Baselines3 or sb3-contrib until it solves a task.

Hyper-parameters are those of RL Baselines3 Zoo, revision 22e3ff2. It has none for DQN and for
RecurrentPPO on MiniGrid, nor for RecurrentPPO on CartPole. There, DQN has its defaults with a
smaller buffer, and RecurrentPPO the parameters of PPO.
"""

import sys

sys.modules["tensorflow"] = None  # TensorBoard would import it, which takes 3 CPU seconds

import torch
from minigrid.wrappers import FlatObsWrapper
from sb3_contrib import RecurrentPPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.solving.trial import Trial

PPO_MINIGRID = {
    "n_steps": 128,
    "batch_size": 64,
    "gae_lambda": 0.95,
    "gamma": 0.99,
    "n_epochs": 10,
    "ent_coef": 0.0,
    "learning_rate": 2.5e-4,
    "clip_range": 0.2,
}
PPO_CARTPOLE = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": lambda left: 0.001 * left,
    "clip_range": lambda left: 0.2 * left,
}
DQN_CARTPOLE = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}
DQN_MINIGRID = {"buffer_size": 100_000, "exploration_fraction": 1e-4}
AGENTS = {
    # name: algorithm, policy, environments, parameters for MiniGrid and for CartPole
    "sb3-ppo": (PPO, "MlpPolicy", 8, PPO_MINIGRID, PPO_CARTPOLE),
    "sb3-recurrent-ppo": (RecurrentPPO, "MlpLstmPolicy", 8, PPO_MINIGRID, PPO_CARTPOLE),
    "sb3-dqn": (DQN, "MlpPolicy", 1, DQN_MINIGRID, DQN_CARTPOLE),
}
STEPS = {"sb3-dqn": 50_000}
"""The Zoo's steps for CartPole, 100,000 unless listed; its schedules depend on them."""
MINIGRID_STEPS = 10**8
"""More steps than a run takes. DQN explores as in a run of 100,000 steps."""


def main(trial):
    """Train until `trial` ends the process, or for the Zoo's number of steps on CartPole."""
    torch.set_num_threads(1)
    algorithm, policy, num_envs, minigrid, cartpole = AGENTS[trial.agent]
    options, steps, wrapper = cartpole, STEPS.get(trial.agent, 100_000), None
    if trial.task.is_minigrid:
        options, steps, wrapper = minigrid, MINIGRID_STEPS, FlatObsWrapper
    envs = make_vec_env(trial.task.env, num_envs, trial.seed, wrapper_class=wrapper)
    if trial.task.is_minigrid and algorithm is not DQN:
        envs = VecNormalize(envs)
    model = algorithm(policy, envs, seed=trial.seed, device="cpu", **options)
    model.learn(steps, Report(trial))
    trial.finish()


class Report(BaseCallback):
    """Report every step to a trial."""

    def __init__(self, trial):
        super().__init__()
        self.trial = trial

    def _on_step(self):
        sample = None if isinstance(self.model, DQN) else self.policy(deterministic=False)
        policies = self.policy(deterministic=True), sample
        self.trial.report(self.num_timesteps, self.make_env, *policies)
        return True

    def make_env(self):
        """Return an evaluation environment, with the wrappers of the training."""
        wrapper = FlatObsWrapper if self.trial.task.is_minigrid else None
        return make_vec_env(self.trial.task.env, 1, wrapper_class=wrapper).envs[0]

    def policy(self, deterministic):
        """Return a policy as `Trial.report` expects it."""

        def act(observations, state, rewards):
            if isinstance(self.training_env, VecNormalize):
                observations = self.training_env.normalize_obs(observations)
            starts = [state is None] * len(rewards)
            return self.model.predict(observations, state, starts, deterministic)

        return act


if __name__ == "__main__":
    main(Trial.from_command_line())
