"""Train PPO with an LSTM until it solves a task.

The algorithm, its details and its hyper-parameters are those of CleanRL's `ppo_atari_lstm.py`, with
dense layers instead of convolutions. The agent gets the actions that the task needs and the
direction of MiniGrid's agent, like ours. For other agents, see `benchmarks.solving.sb3`.
"""

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TransformAction, TransformObservation
from torch import nn

from benchmarks.solving.trial import Trial

NUM_ENVS, NUM_STEPS, MINIBATCHES, EPOCHS = 8, 128, 4, 4
LEARNING_RATE, GAMMA, GAE_LAMBDA = 2.5e-4, 0.99, 0.95
CLIP, ENTROPY, VALUE, MAX_NORM = 0.1, 0.01, 0.5, 0.5
WIDTH = 128


class Agent(nn.Module):
    """Two dense layers, an LSTM, and one head for the logits of the actions and the value."""

    def __init__(self, inputs, num_actions):
        super().__init__()
        layers = nn.Linear(inputs, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.encoder = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh())
        self.lstm = nn.LSTM(WIDTH, WIDTH)
        self.actor, self.critic = nn.Linear(WIDTH, num_actions), nn.Linear(WIDTH, 1)
        gains = {layers[0]: 2**0.5, layers[1]: 2**0.5, self.actor: 0.01, self.critic: 1.0}
        for module in (self.lstm, *gains):
            for name, weight in module.named_parameters():
                if "bias" in name:
                    nn.init.zeros_(weight)
                else:
                    nn.init.orthogonal_(weight, gains.get(module, 1.0))

    def forward(self, observations, state, starts):
        """Return action distributions and values `(T, B)`, and the LSTM's next state.

        Args:
            observations: `(T, B, inputs)`.
            state: `(2, 1, B, WIDTH)`.
            starts: `(T, B)`, 1 where an episode begins.
        """
        outputs = []
        for x, start in zip(self.encoder(observations), starts):
            output, pair = self.lstm(x[None], tuple((1 - start)[:, None] * state))
            outputs.append(output)
            state = torch.stack(pair)
        hidden = torch.cat(outputs)
        distribution = torch.distributions.Categorical(logits=self.actor(hidden))
        return distribution, self.critic(hidden)[..., 0], state


def main(trial):
    """Train until `trial` ends the process."""
    torch.set_num_threads(1)
    torch.manual_seed(trial.seed)

    def make_env():
        env = gymnasium.make(trial.task.env)
        return as_vector(env, trial.task.actions) if trial.task.is_minigrid else env

    mode = AutoresetMode.SAME_STEP
    envs = SyncVectorEnv([make_env] * NUM_ENVS, autoreset_mode=mode)
    observation, _ = envs.reset(seed=NUM_ENVS * trial.seed)
    agent = Agent(observation.shape[1], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE, eps=1e-5)
    state, start, step = torch.zeros(2, 1, NUM_ENVS, WIDTH), torch.ones(NUM_ENVS), 0
    while True:
        began, rollout = state, []
        for _ in range(NUM_STEPS):
            x = torch.as_tensor(observation, dtype=torch.float32)
            with torch.no_grad():
                distribution, value, state = agent(x[None], state, start[None])
                action = distribution.sample()
                log_probability = distribution.log_prob(action)
            observation, reward, terminated, truncated, _ = envs.step(action[0].numpy())
            reward = torch.as_tensor(reward, dtype=torch.float32)
            rollout.append((x, action[0], log_probability[0], value[0], start, reward))
            start, step = torch.as_tensor(terminated | truncated).float(), step + NUM_ENVS
            trial.report(step, make_env, policy(agent, True), policy(agent, False))
        with torch.no_grad():
            x = torch.as_tensor(observation, dtype=torch.float32)
            _, next_value, _ = agent(x[None], state, start[None])
        batch = [torch.stack(each) for each in zip(*rollout)]
        update(agent, optimizer, began, batch, next_value[0], start)


def as_vector(env, actions):
    """Flatten MiniGrid's image, divided by 10, append the direction, and keep some actions."""

    def flat(observation):
        direction = np.eye(4)[observation["direction"]]
        return np.append(observation["image"] / 10, direction).astype(np.float32)

    space = gymnasium.spaces.Box(0, 1, (7 * 7 * 3 + 4,), np.float32)
    chosen = gymnasium.spaces.Discrete(len(actions))
    return TransformAction(TransformObservation(env, flat, space), actions.__getitem__, chosen)


def update(agent, optimizer, state, batch, next_value, next_start):
    """Update on a rollout with generalised advantage estimation, in minibatches of whole rows."""
    observations, actions, log_probabilities, values, starts, rewards = batch
    advantages, last = torch.zeros_like(rewards), 0.0
    for t in reversed(range(NUM_STEPS)):
        keep = GAMMA * (1 - next_start)
        last = rewards[t] + keep * next_value - values[t] + GAE_LAMBDA * keep * last
        advantages[t], next_value, next_start = last, values[t], starts[t]
    data = observations, starts, actions, log_probabilities, values, advantages
    for rows in (
        rows for _ in range(EPOCHS) for rows in torch.randperm(NUM_ENVS).chunk(MINIBATCHES)
    ):
        x, start, action, log_probability, old, advantage = (each[:, rows] for each in data)
        distribution, value, _ = agent(x, state[:, :, rows], start)
        ratio = (distribution.log_prob(action) - log_probability).exp()
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.min(scaled * ratio, scaled * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        clipped = old + (value - old).clamp(-CLIP, CLIP)
        errors = torch.max(*((each - old - advantage) ** 2 for each in (value, clipped)))
        loss = VALUE * 0.5 * errors.mean() - gain - ENTROPY * distribution.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
        optimizer.step()


def policy(agent, is_greedy):
    """Return a policy as `Trial.report` expects it."""

    @torch.no_grad()
    def act(observations, state, rewards):
        start = torch.full((1, len(rewards)), float(state is None))
        state = torch.zeros(2, 1, len(rewards), WIDTH) if state is None else state
        x = torch.as_tensor(observations, dtype=torch.float32)[None]
        distribution, _, state = agent(x, state, start)
        actions = distribution.logits.argmax(-1) if is_greedy else distribution.sample()
        return actions[0].numpy(), state

    return act


if __name__ == "__main__":
    main(Trial.from_command_line())
