"""Define the Relational Memory Core as the best-known PyTorch port computes it.

The structure is that of [L0SG's port](https://github.com/L0SG/relational-rnn-pytorch): a loop over
the steps in Python, one vector per step, and in each step the projection of the input, the gates
and one round of attention. The port's results differ from those of DeepMind's original; see
docs/experiments/relational_memory_ports.md. Only the norms affect the cost; `norm_rows=True`
replaces them by those of the original.
"""

import torch
from torch import nn


class TorchRelationalMemory(nn.Module):
    """Map sequences `(B, T, F)` to the last memory as a flat `(B, mem_slots * H * head_size)`.

    Args:
        features: F.
        mem_slots: number of rows of the memory.
        head_size: size of a value, per head.
        num_heads: H.
        norm_rows: whether norms are over the features of a row, as in the original, or over rows
            and features together, as in the port.
        forget_bias: added to the forget gate before its sigmoid.
        input_bias: added to the input gate before its sigmoid.
    """

    def __init__(
        self,
        features,
        mem_slots,
        head_size,
        num_heads,
        norm_rows=False,
        forget_bias=1.0,
        input_bias=0.0,
    ):
        super().__init__()
        self.mem_slots, self.head_size, self.num_heads = mem_slots, head_size, num_heads
        size = num_heads * head_size
        entities = mem_slots + 1

        def norm(width):
            return nn.LayerNorm(width if norm_rows else (entities, width))

        self.input_projection = nn.Linear(features, size)
        self.query_key_value = nn.Linear(size, 3 * size)
        self.query_key_value_norm = norm(3 * size)
        self.attention_norm, self.mlp_norm = norm(size), norm(size)
        self.mlp = nn.Linear(size, size)  # the port applies the same layer twice
        self.input_gates = nn.Linear(size, 2 * size)
        self.memory_gates = nn.Linear(size, 2 * size)
        self.forget_bias = nn.Parameter(torch.tensor(forget_bias))
        self.input_bias = nn.Parameter(torch.tensor(input_bias))

    def forward(self, sequences):
        size = self.num_heads * self.head_size
        memory = torch.eye(self.mem_slots, size).expand(len(sequences), -1, -1)
        for x in sequences.unbind(1):
            memory = self.step(x, memory)
        return memory.flatten(1)

    def step(self, x, memory):
        """Return the next memory, from `(B, F)` and the memory `(B, mem_slots, H * D)`."""
        row = self.input_projection(x)[:, None]
        z = torch.cat([memory, row], dim=1)
        z = self.attention_norm(z + self.attend(z))
        z = self.mlp_norm(z + self.mlp(self.mlp(z).relu()).relu())
        gates = self.memory_gates(memory.tanh()) + self.input_gates(row)
        input_gate, forget_gate = gates.chunk(2, dim=2)
        input_gate = (input_gate + self.input_bias).sigmoid()
        forget_gate = (forget_gate + self.forget_bias).sigmoid()
        return input_gate * z[:, : self.mem_slots].tanh() + forget_gate * memory

    def attend(self, z):
        """Return the attended values of every row, the heads concatenated."""
        fused = self.query_key_value_norm(self.query_key_value(z))
        heads = fused.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, N, 3 * D)
        query, key, value = heads.chunk(3, dim=-1)
        weights = (query * self.head_size**-0.5 @ key.transpose(-1, -2)).softmax(-1)
        return (weights @ value).transpose(1, 2).flatten(2)
