"""The PyTorch network of min-decision-transformer with its original names, and a training step."""

import math

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal self-attention with dropout on the output of the heads, not on the probabilities."""

    def __init__(self, width, length, heads, dropout):
        super().__init__()
        self.heads = heads
        self.q_net, self.k_net, self.v_net = (nn.Linear(width, width) for _ in range(3))
        self.proj_net = nn.Linear(width, width)
        self.att_drop, self.proj_drop = nn.Dropout(dropout), nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, -1))

    def forward(self, x):
        batch, steps, width = x.shape
        size = width // self.heads

        def split(projected):
            return projected.view(batch, steps, self.heads, size).transpose(1, 2)

        q, k, v = split(self.q_net(x)), split(self.k_net(x)), split(self.v_net(x))
        scores = q @ k.transpose(2, 3) / math.sqrt(size)
        scores = scores.masked_fill(self.mask[..., :steps, :steps] == 0, float("-inf"))
        gathered = self.att_drop(functional.softmax(scores, dim=-1) @ v)
        gathered = gathered.transpose(1, 2).contiguous().view(batch, steps, width)
        return self.proj_drop(self.proj_net(gathered))


class Block(nn.Module):
    """Attention and a dense network, each with a residual connection and a norm after it."""

    def __init__(self, width, length, heads, dropout):
        super().__init__()
        self.attention = Attention(width, length, heads, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        x = self.ln1(x + self.attention(x))
        return self.ln2(x + self.mlp(x))


class TorchDecisionTransformer(nn.Module):
    """The network. Windows are padded at the end, so causal attention needs no padding mask."""

    def __init__(
        self, states, actions, width=128, blocks=3, heads=1, length=20, dropout=0.1, times=4096
    ):
        super().__init__()
        tokens = 3 * length
        self.transformer = nn.Sequential(
            *(Block(width, tokens, heads, dropout) for _ in range(blocks))
        )
        self.embed_ln = nn.LayerNorm(width)
        self.embed_timestep = nn.Embedding(times, width)
        self.embed_rtg = nn.Linear(1, width)
        self.embed_state = nn.Linear(states, width)
        self.embed_action = nn.Linear(actions, width)
        self.predict_rtg = nn.Linear(width, 1)
        self.predict_state = nn.Linear(width, states)
        self.predict_action = nn.Sequential(nn.Linear(width, actions), nn.Tanh())

    def forward(self, window):
        """Return actions `(B, K, A)`. The state and return heads are never trained."""
        batch, steps = window["timesteps"].shape
        time = self.embed_timestep(window["timesteps"])
        tokens = (
            self.embed_rtg(window["returns_to_go"]) + time,
            self.embed_state(window["states"]) + time,
            self.embed_action(window["actions"]) + time,
        )
        h = torch.stack(tokens, dim=1).permute(0, 2, 1, 3).reshape(batch, 3 * steps, -1)
        h = self.transformer(self.embed_ln(h))
        h = h.reshape(batch, steps, 3, -1).permute(0, 2, 1, 3)
        return self.predict_action(h[:, 1])


class TorchTrainer:
    """The training step: AdamW, clipped global norm, mean squared error without padding.

    Args:
        network: `TorchDecisionTransformer`.
        learning_rate, weight_decay, clip_norm: floats.
        bfloat16: whether matrix products run in bfloat16 (autocast).
        compiled: whether the network is compiled with `torch.compile`.
    """

    def __init__(self, network, learning_rate, weight_decay, clip_norm, bfloat16, compiled=False):
        self.network = network
        self._forward = torch.compile(network) if compiled else network
        self._bfloat16, self._clip_norm = bfloat16, clip_norm
        self._optimizer = torch.optim.AdamW(
            network.parameters(), lr=learning_rate, weight_decay=weight_decay
        )

    def loss(self, window):
        """Return the loss, a scalar tensor."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            predicted = self._forward(window)
        real = window["mask"] > 0
        return functional.mse_loss(predicted.float()[real], window["actions"][real])

    def step(self, window):
        """Do one update and return its loss."""
        self.network.train()
        loss = self.loss(window)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._clip_norm)
        self._optimizer.step()
        return loss.item()
