"""`append_step` shifts a copy of the window by one step; see also client/test_sessions.py."""

import numpy as np

from serving import windows


def test_a_window_moves_by_one_step():
    empty = {
        "states": np.zeros((2, 3, 1), np.float32),
        "actions": np.zeros((2, 3, 2), np.float32),
        "returns_to_go": np.zeros((2, 3, 1), np.float32),
        "timesteps": np.zeros((2, 3), np.int32),
        "mask": np.zeros((2, 3), np.float32),
    }
    assert empty.keys() == windows.INPUTS
    target = np.array([5.0, 7.0])
    first = windows.append_step(empty, np.ones((2, 1)), np.array([100.0, 100.0]), target)
    windows.set_action(first, np.array([1, 0]))
    first["mask"][1] = first["timesteps"][1] = 0  # the second row begins an episode
    second = windows.append_step(first, np.full((2, 1), 2.0), np.array([1.0, 1.0]), target)
    assert not any(values.any() for values in empty.values())
    assert second["mask"].tolist() == [[0, 1, 1], [0, 0, 1]]
    assert second["timesteps"].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert second["states"][0, :, 0].tolist() == [0, 1, 2]
    assert second["returns_to_go"][:, -1, 0].tolist() == [4, 7]
    assert second["actions"][0].tolist() == [[0, 0], [0, 1], [0, 0]]
    assert {name: values.dtype for name, values in second.items()} == {
        name: values.dtype for name, values in empty.items()
    }
    windows.set_action(second, np.array([[0.5, 0.25], [0.0, 1.0]]))
    assert second["actions"][:, -1].tolist() == [[0.5, 0.25], [0.0, 1.0]]
