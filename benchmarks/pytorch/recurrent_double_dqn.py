"""One update of a recurrent double DQN in PyTorch, eager, equal to `RecurrentDoubleDQN`."""

import copy
import types

import torch
from torch import nn
from torch.nn import functional

from benchmarks.pytorch.double_dqn import PREPROCESSORS
from benchmarks.pytorch.networks import FastBlock, dueling

ENTITY = 3 * 7 + 6  # the agent's cell


class RelationalLSTM(nn.Module):
    """`RecurrentQNetwork.from_preset("lstm")` in PyTorch: sequences of grids → Q values.

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


class TorchRecurrentDoubleDQN:
    """A recurrent Q network, its target network, and the update of both.

    Args:
        network: `RelationalLSTM`.
        burn_in, n_step, discount, priority_max_weight, learning_rate, clip_norm, target_rate: as of
            `RecurrentDoubleDQN`.
    """

    def __init__(self, network, *, learning_rate, target_rate, **numbers):
        self.network = network
        self._target = copy.deepcopy(network).requires_grad_(False)
        self._parameters = list(network.parameters())
        self._target_parameters = list(self._target.parameters())
        self._optimizer = torch.optim.Adam(self._parameters, lr=learning_rate, eps=1e-7, fused=True)
        self._target_rate = target_rate
        self._numbers = types.SimpleNamespace(**numbers)

    def update(self, sequence):
        """Do one gradient step on sequences, a dict of NumPy arrays as the replay samples it.

        Returns:
            The loss, and the priorities of the sequences `(B,)`.
        """
        tensors = {name: torch.from_numpy(array) for name, array in sequence.items()}
        begin, end = self._numbers.burn_in, tensors["action_t"].shape[1] - self._numbers.n_step
        steps = (
            PREPROCESSORS["fast"](tensors["observation_t"]),
            tensors["previous_action"].long(),
            tensors["previous_reward"],
        )
        memory = tensors["memory"]
        with torch.no_grad():
            q_target, _ = self._target(*steps, memory)
            if begin:
                _, memories = self.network(*(part[:, :begin] for part in steps), memory)
                memory = memories[:, -1]
        q_t, memories = self.network(*(part[:, begin:end] for part in steps), memory)
        with torch.no_grad():
            q_after, _ = self.network(*(part[:, end:] for part in steps), memories[:, -1])
            q_online = torch.cat([q_t, q_after], dim=1)
            target_t, counted = self._targets(tensors, q_online, q_target[:, begin:], begin, end)
        taken = tensors["action_t"][:, begin:end, None].long()
        q_taken = q_t.gather(2, taken).squeeze(2)
        each = functional.huber_loss(q_taken, target_t, reduction="none")
        loss = (counted * tensors["weight_t"][:, None] * each).mean()
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, self._numbers.clip_norm)
        self._optimizer.step()
        torch._foreach_lerp_(self._target_parameters, self._parameters, self._target_rate)
        size = (target_t - q_taken.detach()).abs() * counted
        mean = size.sum(1) / counted.sum(1).clamp_min(1.0)
        priority = (
            self._numbers.priority_max_weight * size.amax(1)
            + (1 - self._numbers.priority_max_weight) * mean
        )
        return loss.item(), priority.numpy()

    def _targets(self, tensors, q_online, q_target, begin, end):
        over = tensors["over"].float()
        cut = over * (1 - tensors["terminated"].float())
        continuing, return_t, counted = 1.0, 0.0, 1.0
        for k in range(self._numbers.n_step):
            later = slice(begin + k, end + k)
            return_t = (
                return_t + self._numbers.discount**k * continuing * tensors["reward_t"][:, later]
            )
            counted = counted * (1 - continuing * cut[:, later])
            continuing = continuing * (1 - over[:, later])
        n = self._numbers.n_step
        best = q_online[:, n:].argmax(2, keepdim=True)
        bootstrap = q_target[:, n:].gather(2, best).squeeze(2)
        target_t = return_t + self._numbers.discount**n * continuing * bootstrap
        return torch.maximum(target_t, tensors["return_lower_bound"][:, begin:end]), counted
