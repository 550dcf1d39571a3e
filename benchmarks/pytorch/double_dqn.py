"""One update of a double DQN in PyTorch, eager or compiled: what `DoubleDQN.update` computes."""

import copy

import torch
from torch import nn
from torch.nn import functional


def one_hot(codes):
    """A function of codes `(B, height, width, C)`, as `rrl_tf.envs.preprocessing.one_hot`.

    Args:
        codes: how many codes each channel has.
    """
    channel = torch.repeat_interleave(torch.arange(len(codes)), torch.tensor(codes))
    code = torch.cat([torch.arange(count) for count in codes])
    return lambda observation: (observation.index_select(-1, channel) == code).float()


def prepare_frame_maximum(observation):
    """Divides by the observation's own maximum, as `rrl_tf.envs.preprocessing.frame_maximum`."""
    observation = observation.float()
    return observation / observation.amax((-3, -2, -1), keepdim=True).clamp_min(1)


PREPROCESSORS = {
    "book": prepare_frame_maximum,
    # MiniGrid's objects, colours and states, and the directions.
    "fast": one_hot((11, 6, 3, 4)),
    # What a cell holds, and its colour.
    "box-world": one_hot((5, 21)),
}
"""By the preset whose observations they prepare."""


class TorchDoubleDQN:
    """A Q network, its target network, and the update of both.

    Args:
        network: module, preprocessed observations → Q values `(B, A)`.
        prepare: function, raw observations → preprocessed ones.
        learning_rate: float, Adam's step size.
        clip_norm: float, largest global norm of the gradient.
        loss: `"huber"` or `"mse"`.
        target_period: int, updates between moves of the target network.
        target_rate: float in (0, 1], how far it moves.
        bfloat16: bool, run under `torch.autocast` in bfloat16.
        compiled: bool, pass everything up to the loss, and so its gradient, to `torch.compile`.
    """

    def __init__(
        self,
        network,
        prepare,
        *,
        learning_rate,
        clip_norm,
        loss,
        target_period,
        target_rate,
        bfloat16=False,
        compiled=False,
    ):
        self.network = network
        self._prepare = prepare
        self._target = copy.deepcopy(network).requires_grad_(False)
        self._parameters = list(network.parameters())
        self._target_parameters = list(self._target.parameters())
        self._optimizer = torch.optim.Adam(self._parameters, lr=learning_rate, eps=1e-7, fused=True)
        self._clip_norm = clip_norm
        self._loss = functional.huber_loss if loss == "huber" else functional.mse_loss
        self._target_period = target_period
        self._target_rate = target_rate
        self._bfloat16 = bfloat16
        self._loss_and_error = (
            torch.compile(self.loss_and_error) if compiled else self.loss_and_error
        )
        self._updates = 0

    def update(self, batch):
        """One gradient step on a `rrl_tf.agents.Batch` of NumPy arrays.

        Returns:
            A dict of floats (`loss`, `q_mean`, `gradient_norm`), and the temporal-difference
            errors `(B,)`.
        """
        arrays = {name: array for name, array in vars(batch).items() if name != "index"}
        loss, q_mean, error = self._loss_and_error(
            **{name: torch.from_numpy(array) for name, array in arrays.items()}
        )
        self._optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        self._optimizer.step()
        self._follow()
        metrics = {"loss": loss.item(), "q_mean": q_mean.item(), "gradient_norm": norm.item()}
        return metrics, error.numpy()

    def loss_and_error(
        self, observation_t, action_t, return_t, discount_t, floor_t, observation_tpn, weight_t
    ):
        """Loss, mean Q value and temporal-difference errors of a batch of tensors."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            with torch.no_grad():
                next_input = self._prepare(observation_tpn)
                best = self.network(next_input).argmax(1, keepdim=True)
                q_tpn = self._target(next_input).gather(1, best).squeeze(1)
                target_t = torch.maximum(return_t + discount_t * q_tpn, floor_t)
            q_t = self.network(self._prepare(observation_t))
        q_taken = q_t.gather(1, action_t[:, None].long()).squeeze(1)
        loss = (weight_t * self._loss(q_taken, target_t, reduction="none")).mean()
        return loss, q_t.detach().mean(), (target_t - q_taken).detach()

    def _follow(self):
        self._updates += 1
        if self._updates % self._target_period == 0:
            torch._foreach_lerp_(self._target_parameters, self._parameters, self._target_rate)
