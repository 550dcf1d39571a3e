"""BehaviorCloning looks at the states and at nothing else."""

import keras
import numpy as np

from rrl_tf.models import BehaviorCloning


def test_states_are_all_it_needs():
    model = BehaviorCloning(state_size=4, action_size=3, hidden_units=(6,))
    real = model({"states": np.ones((2, 5, 4), "float32")})["action"]
    symbol = model({"states": keras.Input((5, 4))})["action"]
    shape = model.compute_output_shape({"states": (2, 5, 4)})["action"]
    assert tuple(real.shape) == shape == (2, 5, 3)
    assert symbol.shape == (None, 5, 3)
