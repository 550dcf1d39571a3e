"""One update of a recurrent double DQN in PyTorch, eager: what `RecurrentDoubleDQN` computes."""

import copy

import torch
from torch import nn
from torch.nn import functional

from benchmarks.pytorch.double_dqn import PREPROCESSORS
from benchmarks.pytorch.networks import FastBlock, dueling

ENTITY = 3 * 7 + 6  # where the agent stands


class RelationalLSTM(nn.Module):
    """`RecurrentQNetwork.from_preset("lstm")`: sequences of grids → Q values, as one writes it.

    Args:
        num_actions: A.
        units: of the LSTM.
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
        """Views `(N, 7, 7, 24)` → what the agent's cell knows, `(N, 32)`."""
        seen = views[..., 0].flatten(1)[:, None, None] < 0.5
        x = self.convolution_1(views).relu().flatten(1, 2) + self.embeddings
        return self.block_2(self.block(x, seen), seen, entity=ENTITY)[:, 0]

    def forward(self, views, action, reward, memory):
        """Q values `(B, T, A)` and the memory after every step, `(B, T, 2 * units)`.

        Args:
            views: `(B, T, 7, 7, 24)`.
            action: `(B, T)` long, -1 where an episode begins.
            reward: `(B, T)`.
            memory: `(B, 2 * units)`.
        """
        batch, times = action.shape
        vector = self.encode(views.flatten(0, 1)).unflatten(0, (batch, times))
        goes_on = (action >= 0).float()
        previous = functional.one_hot(action.clamp_min(0), self.num_actions) * goes_on[..., None]
        inputs = torch.cat([vector, previous, (reward * goes_on)[..., None]], dim=-1)
        memories = []
        for t in range(times):
            memory = memory * goes_on[:, t, None]
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
        burn_in, n_step, discount, max_share, learning_rate, clip_norm, target_rate: as of
            `RecurrentDoubleDQN`.
    """

    def __init__(
        self,
        network,
        *,
        burn_in,
        n_step,
        discount,
        max_share,
        learning_rate,
        clip_norm,
        target_rate,
    ):
        self.network = network
        self._target = copy.deepcopy(network).requires_grad_(False)
        self._parameters = list(network.parameters())
        self._target_parameters = list(self._target.parameters())
        self._optimizer = torch.optim.Adam(self._parameters, lr=learning_rate, eps=1e-7, fused=True)
        self._burn_in, self._n_step, self._discount = burn_in, n_step, discount
        self._max_share, self._clip_norm, self._target_rate = max_share, clip_norm, target_rate

    def update(self, sequence):
        """One gradient step on a sequence, a dict of NumPy arrays as `SequenceTimeline` draws it.

        Returns:
            The loss, and the sequences' priorities `(B,)`.
        """
        tensors = {name: torch.from_numpy(array) for name, array in sequence.items()}
        begin, end = self._burn_in, tensors["action_t"].shape[1] - self._n_step
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
        nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        self._optimizer.step()
        torch._foreach_lerp_(self._target_parameters, self._parameters, self._target_rate)
        size = (target_t - q_taken.detach()).abs() * counted
        mean = size.sum(1) / counted.sum(1).clamp_min(1.0)
        priority = self._max_share * size.amax(1) + (1 - self._max_share) * mean
        return loss.item(), priority.numpy()

    def _targets(self, tensors, q_online, q_target, begin, end):
        over = tensors["over"].float()
        cut = over * (1 - tensors["terminated"].float())
        going_on, return_t, counted = 1.0, 0.0, 1.0
        for k in range(self._n_step):
            later = slice(begin + k, end + k)
            return_t = return_t + self._discount**k * going_on * tensors["reward_t"][:, later]
            counted = counted * (1 - going_on * cut[:, later])
            going_on = going_on * (1 - over[:, later])
        n = self._n_step
        best = q_online[:, n:].argmax(2, keepdim=True)
        bootstrap = q_target[:, n:].gather(2, best).squeeze(2)
        target_t = return_t + self._discount**n * going_on * bootstrap
        return torch.maximum(target_t, tensors["floor_t"][:, begin:end]), counted
