"""Update a recurrent double DQN in eager PyTorch, as `RecurrentDoubleDQN` does."""

import torch
from torch import nn
from torch.nn import functional

from benchmarks.pytorch.double_dqn import PREPROCESSORS, TorchDoubleDQN
from benchmarks.pytorch.networks import FastBlock, dueling

ENTITY = 3 * 7 + 6  # the agent's cell


class RelationalLSTM(nn.Module):
    """`RecurrentQNetwork.from_preset("lstm")` in PyTorch: maps sequences of grids to Q values.

    Args:
        num_actions: A.
        units: int, units of the LSTM.
    """

    def __init__(self, num_actions, units=64):
        super().__init__()
        self.num_actions = num_actions
        self.convolution_1 = nn.Linear(24, 32)
        self.embeddings = nn.Parameter(0.05 * torch.randn(49, 32))
        self.block = FastBlock(32, num_heads=2, key_size=16)
        self.block_2 = FastBlock(32, num_heads=2, key_size=16)
        self.core = nn.LSTMCell(32 + num_actions + 1, units)
        self.hidden_1 = nn.Linear(32 + units, 64)
        self.head = nn.Linear(64, 1 + num_actions)

    def encode(self, views):
        """Return the features of the agent's cell, `(N, 32)`, of views `(N, 7, 7, 24)`."""
        seen = views[..., 0].flatten(1)[:, None, None] < 0.5
        x = self.convolution_1(views).relu().flatten(1, 2) + self.embeddings
        return self.block_2(self.block(x, seen), seen, entity=ENTITY)[:, 0]

    def forward(self, views, action, reward, memory):
        """Return Q values `(B, T, A)` and the memory after every step, `(B, T, 2 * units)`.

        Args:
            views: `(B, T, 7, 7, 24)`.
            action: `(B, T)` long, the previous action, -1 at the start of an episode.
            reward: `(B, T)`, the previous reward.
            memory: `(B, 2 * units)`, before the first step.
        """
        batch, times = action.shape
        vector = self.encode(views.flatten(0, 1)).unflatten(0, (batch, times))
        continues = (action >= 0).float()
        previous = functional.one_hot(action.clamp_min(0), self.num_actions) * continues[..., None]
        inputs = torch.cat([vector, previous, (reward * continues)[..., None]], dim=-1)
        memories = []
        for t in range(times):
            memory = memory * continues[:, t, None]
            memory = torch.cat(self.core(inputs[:, t], memory.chunk(2, dim=-1)), dim=-1)
            memories.append(memory)
        memories = torch.stack(memories, dim=1)
        hidden = memories[..., : memories.shape[-1] // 2]
        x = self.hidden_1(torch.cat([vector, hidden], dim=-1)).relu()
        return dueling(self.head(x)), memories


class TorchRecurrentDoubleDQN(TorchDoubleDQN):
    """A recurrent Q network, its target network, and the update of both.

    Args:
        network: `RelationalLSTM`.
        burn_in, n_step, discount, priority_max_weight: as in `RecurrentDoubleDQN`.
        options: learning rate, clipping and target network, as in `TorchDoubleDQN`.
    """

    def __init__(self, network, *, burn_in, n_step, discount, priority_max_weight, **options):
        super().__init__(network, PREPROCESSORS["fast"], **options)
        self.burn_in, self.n_step, self.discount = burn_in, n_step, discount
        self.priority_max_weight = priority_max_weight

    def loss_and_error(self, **sequence):
        """Return the loss, the mean Q value and the priorities `(B,)` of sequences of tensors."""
        begin, end = self.burn_in, sequence["action_t"].shape[1] - self.n_step
        steps = (
            self.preprocess(sequence["observation_t"]),
            sequence["previous_action"].long(),
            sequence["previous_reward"],
        )
        memory = sequence["memory"]
        with torch.no_grad():
            q_target, _ = self.target(*steps, memory)
            if begin:
                _, memories = self.network(*(part[:, :begin] for part in steps), memory)
                memory = memories[:, -1]
        q_t, memories = self.network(*(part[:, begin:end] for part in steps), memory)
        with torch.no_grad():
            q_after, _ = self.network(*(part[:, end:] for part in steps), memories[:, -1])
            q_online = torch.cat([q_t, q_after], dim=1)
            target_t, counted = self._targets(sequence, q_online, q_target[:, begin:], begin, end)
        q_taken = q_t.gather(2, sequence["action_t"][:, begin:end, None].long()).squeeze(2)
        each = self.loss(q_taken, target_t, reduction="none")
        loss = (counted * sequence["weight_t"][:, None] * each).mean()
        size = (target_t - q_taken.detach()).abs() * counted
        mean = size.sum(1) / counted.sum(1).clamp_min(1.0)
        eta = self.priority_max_weight
        return loss, q_t.detach().mean(), eta * size.amax(1) + (1 - eta) * mean

    def _targets(self, sequence, q_online, q_target, begin, end):
        """Return the targets of the steps from `begin` to `end`, and 1 for steps with a loss."""
        done = sequence["over"].float()
        truncated = done * (1 - sequence["terminated"].float())
        continuing, return_t, counted = 1.0, 0.0, 1.0
        for k in range(self.n_step):
            later = slice(begin + k, end + k)
            return_t = return_t + self.discount**k * continuing * sequence["reward_t"][:, later]
            counted = counted * (1 - continuing * truncated[:, later])
            continuing = continuing * (1 - done[:, later])
        best = q_online[:, self.n_step :].argmax(2, keepdim=True)
        bootstrap = q_target[:, self.n_step :].gather(2, best).squeeze(2)
        target_t = return_t + self.discount**self.n_step * continuing * bootstrap
        return torch.maximum(target_t, sequence["return_lower_bound"][:, begin:end]), counted
