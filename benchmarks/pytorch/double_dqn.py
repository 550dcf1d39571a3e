"""Update a double DQN in PyTorch, eager or compiled, as `DoubleDQN.update` does."""

import copy

import torch
from torch import nn
from torch.nn import functional


def one_hot(codes):
    """Return a function that encodes codes `(B, height, width, C)` as one-hot vectors.

    Args:
        codes: number of codes of each channel.
    """
    channel = torch.repeat_interleave(torch.arange(len(codes)), torch.tensor(codes))
    code = torch.cat([torch.arange(count) for count in codes])
    return lambda observation: (observation.index_select(-1, channel) == code).float()


def divide_by_maximum(observation):
    """Divide each observation by its own maximum."""
    observation = observation.float()
    return observation / observation.amax((-3, -2, -1), keepdim=True).clamp_min(1)


PREPROCESSORS = {
    "book": divide_by_maximum,
    # MiniGrid's objects, colours and states, and the directions.
    "fast": one_hot((11, 6, 3, 4)),
    # The object of a cell, and its colour.
    "box-world": one_hot((5, 21)),
}
"""Dict from a preset to the function that preprocesses its raw observations."""


class TorchDoubleDQN:
    """A Q network, its target network, and the update of both.

    Args:
        network: module that maps preprocessed observations to Q values `(B, A)`.
        preprocess: function that maps raw observations to preprocessed ones.
        learning_rate: float, Adam's step size.
        clip_norm: float, largest global norm of the gradient.
        loss: `"huber"` or `"mse"`.
        target_period: int, updates between moves of the target network.
        target_rate: float in (0, 1], by which fraction the target network moves towards the
            network.
        bfloat16: bool, whether to run under `torch.autocast` in bfloat16.
        compiled: bool, whether to compile loss and gradient with `torch.compile`.
    """

    def __init__(
        self,
        network,
        preprocess,
        *,
        learning_rate,
        clip_norm,
        loss="huber",
        target_period=1,
        target_rate=1.0,
        bfloat16=False,
        compiled=False,
    ):
        self.network = network
        self.target = copy.deepcopy(network).requires_grad_(False)
        self.preprocess, self.bfloat16 = preprocess, bfloat16
        self.loss = functional.huber_loss if loss == "huber" else functional.mse_loss
        self.optimizer = torch.optim.Adam(network.parameters(), learning_rate, eps=1e-7, fused=True)
        self._parameters = list(network.parameters()), list(self.target.parameters())
        self._clip_norm, self._target_period = clip_norm, target_period
        self._target_rate, self._updates = target_rate, 0
        compute = self.loss_and_error
        self._loss_and_error = torch.compile(compute) if compiled else compute

    def update(self, batch):
        """Do one gradient step on a batch of `ReplayBuffer.sample`, a dict of NumPy arrays.

        Returns:
            A dict of floats (`loss`, `q_mean`, `gradient_norm`), and the temporal-difference
            errors `(B,)`.
        """
        loss, q_mean, error = self._loss_and_error(
            **{name: torch.from_numpy(array) for name, array in batch.items()}
        )
        online, target = self._parameters
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(online, self._clip_norm)
        self.optimizer.step()
        self._updates += 1
        if self._updates % self._target_period == 0:
            torch._foreach_lerp_(target, online, self._target_rate)
        metrics = {"loss": loss.item(), "q_mean": q_mean.item(), "gradient_norm": norm.item()}
        return metrics, error.numpy()

    def loss_and_error(self, **batch):
        """Return the loss, the mean Q value and the temporal-difference errors of a batch."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            with torch.no_grad():
                next_input = self.preprocess(batch["observation_tpn"])
                best = self.network(next_input).argmax(1, keepdim=True)
                q_tpn = self.target(next_input).gather(1, best).squeeze(1)
                return_t = batch["return_t"] + batch["discount_t"] * q_tpn
                target_t = torch.maximum(return_t, batch["return_lower_bound"])
            q_t = self.network(self.preprocess(batch["observation_t"]))
        q_taken = q_t.gather(1, batch["action_t"][:, None].long()).squeeze(1)
        loss = (batch["weight_t"] * self.loss(q_taken, target_t, reduction="none")).mean()
        return loss, q_t.detach().mean(), (target_t - q_taken).detach()
