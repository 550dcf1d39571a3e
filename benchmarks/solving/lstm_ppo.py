"""Train PPO with an LSTM until it solves a task.

The algorithm, its details and its hyper-parameters are those of CleanRL's `ppo_atari_lstm.py`, with
dense layers instead of convolutions. The agent gets the actions that the task needs and the
direction of MiniGrid's agent, like ours. For other agents, see `benchmarks.solving.sb3`.
"""

import gymnasium
import numpy as np
import torch
from torch import nn

from benchmarks.solving.trial import ImageAndDirection, Trial

NUM_ENVS, NUM_STEPS, MINIBATCHES, EPOCHS = 8, 128, 4, 4
LEARNING_RATE, GAMMA, GAE_LAMBDA = 2.5e-4, 0.99, 0.95
CLIP, ENTROPY, VALUE, MAX_NORM = 0.1, 0.01, 0.5, 0.5
WIDTH = 128


class Agent(nn.Module):
    """Two dense layers, an LSTM, and the heads of the policy and the value."""

    def __init__(self, inputs, num_actions):
        super().__init__()
        root2 = np.sqrt(2)
        self.encoder = nn.Sequential(
            *(_dense(inputs, WIDTH, root2), nn.Tanh(), _dense(WIDTH, WIDTH, root2), nn.Tanh())
        )
        self.lstm = nn.LSTM(WIDTH, WIDTH)
        for name, weight in self.lstm.named_parameters():
            if "bias" in name:
                nn.init.zeros_(weight)
            else:
                nn.init.orthogonal_(weight)
        self.actor, self.critic = _dense(WIDTH, num_actions, 0.01), _dense(WIDTH, 1, 1.0)

    def forward(self, observations, state, starts):
        """Return action distribution and values of `(T, B, inputs)`, and the LSTM's next state.

        Args:
            observations: `(T, B, inputs)`.
            state: pair of `(1, B, WIDTH)`.
            starts: `(T, B)`, 1 where an episode begins.
        """
        hidden, outputs = self.encoder(observations), []
        for x, start in zip(hidden, starts):
            keep = (1.0 - start)[None, :, None]
            output, state = self.lstm(x[None], (keep * state[0], keep * state[1]))
            outputs.append(output)
        hidden = torch.cat(outputs)
        distribution = torch.distributions.Categorical(logits=self.actor(hidden))
        return distribution, self.critic(hidden)[..., 0], state


def _dense(inputs, outputs, gain):
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def main(trial):
    """Train until `trial` ends the process."""
    torch.set_num_threads(1)
    torch.manual_seed(trial.seed)

    def make_env():
        env = gymnasium.make(trial.task.env)
        return ImageAndDirection(env, trial.task.actions) if trial.task.is_minigrid else env

    envs = [make_env() for _ in range(NUM_ENVS)]
    observation = np.stack([e.reset(seed=NUM_ENVS * trial.seed + i)[0] for i, e in enumerate(envs)])
    agent = Agent(observation.shape[1], int(envs[0].action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE, eps=1e-5)
    state, start, step = initial_state(NUM_ENVS), torch.ones(NUM_ENVS), 0
    while True:
        began, rollout = state, []
        for _ in range(NUM_STEPS):
            x = torch.as_tensor(observation, dtype=torch.float32)
            with torch.no_grad():
                distribution, value, state = agent(x[None], state, start[None])
                action = distribution.sample()[0]
                log_probability = distribution.log_prob(action)[0]
            observation, reward, over = step_all(envs, action)
            rollout.append((x, action, log_probability, value[0], start, reward))
            start, step = over, step + NUM_ENVS
            trial.report(step, make_env, policy(agent, True), policy(agent, False))
        with torch.no_grad():
            x = torch.as_tensor(observation, dtype=torch.float32)
            _, next_value, _ = agent(x[None], state, start[None])
        batch = [torch.stack(each) for each in zip(*rollout)]
        update(agent, optimizer, began, batch, next_value[0], start)


def initial_state(count):
    """Return the LSTM's state at the start of episodes."""
    return torch.zeros(1, count, WIDTH), torch.zeros(1, count, WIDTH)


def step_all(envs, actions):
    """Step and, at the end of an episode, reset; return observations, rewards and ends."""
    observations, rewards, over = [], [], []
    for env, action in zip(envs, actions.tolist()):
        observation, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
        observations.append(observation)
        rewards.append(float(reward))
        over.append(float(terminated or truncated))
    return np.stack(observations), torch.tensor(rewards), torch.tensor(over)


def update(agent, optimizer, state, batch, next_value, next_start):
    """Update on a rollout with generalised advantage estimation, each minibatch of whole rows."""
    observations, actions, log_probabilities, values, starts, rewards = batch
    advantages, last = torch.zeros_like(rewards), 0.0
    for t in reversed(range(NUM_STEPS)):
        keep = 1.0 - next_start
        error = rewards[t] + GAMMA * keep * next_value - values[t]
        last = advantages[t] = error + GAMMA * GAE_LAMBDA * keep * last
        next_value, next_start = values[t], starts[t]
    returns = advantages + values
    for _ in range(EPOCHS):
        for rows in torch.randperm(NUM_ENVS).chunk(MINIBATCHES):
            begin = tuple(each[:, rows] for each in state)
            distribution, value, _ = agent(observations[:, rows], begin, starts[:, rows])
            ratio = (distribution.log_prob(actions[:, rows]) - log_probabilities[:, rows]).exp()
            advantage = advantages[:, rows]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = -torch.min(
                advantage * ratio, advantage * ratio.clamp(1 - CLIP, 1 + CLIP)
            ).mean()
            change = (value - values[:, rows]).clamp(-CLIP, CLIP)
            errors = (value - returns[:, rows], values[:, rows] + change - returns[:, rows])
            value_loss = 0.5 * torch.max(errors[0] ** 2, errors[1] ** 2).mean()
            loss = policy_loss + VALUE * value_loss - ENTROPY * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
            optimizer.step()


def policy(agent, greedy):
    """Return a policy as `Trial.report` expects it."""

    def act(observations, state, rewards):
        start = torch.full((1, len(rewards)), float(state is None))
        state = state or initial_state(len(rewards))
        with torch.no_grad():
            x = torch.as_tensor(observations, dtype=torch.float32)[None]
            distribution, _, state = agent(x, state, start)
            actions = distribution.logits.argmax(-1) if greedy else distribution.sample()
        return actions[0].numpy(), state

    return act


if __name__ == "__main__":
    main(Trial.from_command_line())
