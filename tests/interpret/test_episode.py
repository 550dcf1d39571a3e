"""Traced episodes of agents with and without memory, and their figures."""

import dataclasses
import functools

import gymnasium
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from rrl_tf.agents import RecurrentDoubleDQNConfig, evaluate, make_agent
from rrl_tf.envs import gymnasium_task, memory_task
from rrl_tf.interpret import episode as episode_module
from rrl_tf.interpret.episode import choose_start, draw_episode, play
from rrl_tf.models import RecurrentQNetwork, RelationalQNetwork, dense_q_network
from rrl_tf.training import MetricsLog
from rrl_tf.viz import style

pytestmark = pytest.mark.tf_only
CORES = {
    "relational-memory-entities": {"mem_slots": 3, "head_size": 4},
    "relational-memory-dense": {"mem_slots": 2, "head_size": 3},
    "lstm": {"units": 6},
    "lstm-dense": {"units": 6},
    "window-dense": {"context_length": 4, "width": 8, "num_blocks": 2},
    "none-dense": {"units": 6},
}
CELLS = {"conv_filters": (8,), "block": {"num_heads": 2, "key_size": 4}}


@functools.cache
def task(**options):
    return memory_task((7,), max_steps=6, **options)


@functools.cache
def network(preset, **core):
    dense = {"hidden_units": (16,)}
    model = RecurrentQNetwork.from_preset(
        preset,
        task().preprocessor,
        num_actions=3,
        core_arguments={**CORES[preset], **core},
        encoder_arguments=dense if "dense" in preset else CELLS,
        hidden_units=(8,),
    )
    model.build({"observation": (None, *task().preprocessor.shape)})
    for weight in model.trainable_variables:
        weight.assign(weight * 3)  # larger weights make the agent move
    return model


def drawn(folder, model, of=None):
    log = MetricsLog(folder / "run")
    paths = draw_episode(model, of or task(), folder / "figures", log)
    assert {path.parent for path in paths} == {folder / "figures"}
    return sorted(path.name for path in paths)


@pytest.mark.parametrize("preset", CORES)
def test_draw_episode_draws_attention_and_memory_of_a_network(tmp_path, preset):
    names = {"episode.gif"}
    names |= {"attention.png"} if "dense" not in preset else set()
    names |= {"memory.png"} if preset.startswith(("lstm", "relational")) else set()
    assert drawn(tmp_path, network(preset)) == sorted(names)
    env = task().make_test_env(render_mode="rgb_array")
    episode = play(network(preset), task(), env, choose_start(network(preset), task(), env))
    with Image.open(tmp_path / "figures" / "episode.gif") as gif:
        assert gif.n_frames == len(episode.actions) + 1
    assert (episode.memory is None) == (preset == "none-dense")


def test_draw_episode_without_memory_draws_attention_and_film(tmp_path):
    model = RelationalQNetwork.from_preset("fast", task().preprocessor, num_actions=3)
    assert drawn(tmp_path, model) == ["attention.png", "episode.gif"]


def test_memory_without_gates_has_no_memory_figure(tmp_path):
    model = network("relational-memory-dense", gate_style=None)
    assert drawn(tmp_path, model) == ["episode.gif"]


def views_of(episode, reset):
    """Return the raw observations of an episode."""
    env = task().make_test_env()
    observation, _ = env.reset(**reset)
    views = [observation]
    for action in episode.actions[:-1]:
        views.append(env.step(int(action))[0])
    return np.stack(views)


@pytest.mark.parametrize("rows_first", [False, True])
@pytest.mark.parametrize("preset", CORES)
def test_traced_steps_equal_unroll_of_the_sequence(preset, rows_first):
    turned = dataclasses.replace(task(), rows_first=rows_first)
    env = task().make_test_env(render_mode="rgb_array")
    model = network(preset)
    reset = choose_start(model, task(), env)
    episode = play(model, turned, env, reset)
    views = views_of(episode, reset)
    previous = np.concatenate([[-1], episode.actions[:-1]])
    rewards = np.concatenate([[0.0], episode.rewards[:-1]])
    inputs = {
        "observation": task().preprocessor(views)[None],
        "previous_action": previous[None].astype("int32"),
        "previous_reward": rewards[None].astype("float32"),
    }
    q, _, scores, gates = model.unroll(inputs, return_attention_scores=True, return_gates=True)
    np.testing.assert_allclose(episode.q_values, q[0], rtol=1e-3, atol=1e-4)
    cells = np.arange(49).reshape(7, 7)
    cells = (cells.T if rows_first else cells).ravel()
    for name, each in episode.scores.items():
        expected = np.array(scores[name])[0][:, :, cells][..., cells]
        np.testing.assert_allclose(each, expected, rtol=1e-3, atol=1e-5)
    if episode.memory is None:
        return
    for name, gate in episode.memory.gates.items():
        expected = np.array(gates[name])[0]  # the LSTM has one gate value per unit
        expected = expected if preset.startswith("lstm") else expected.mean(axis=-1)
        np.testing.assert_allclose(gate, expected, rtol=1e-3, atol=1e-5)
    expected = expected_attention(preset, scores, cells)
    if expected is not None:
        np.testing.assert_allclose(episode.memory.attention, expected, rtol=1e-3, atol=1e-5)


def expected_attention(preset, scores, cells):
    if preset.startswith("lstm"):
        return None
    block = np.array(scores["block_1"])[0]
    if preset.startswith("window"):
        return np.stack([block[:, :, -1], np.array(scores["block_2"])[0, :, :, -1]], axis=2)
    slots = CORES[preset]["mem_slots"]
    if preset.endswith("dense"):
        return block[:, :, :slots]
    order = [*range(slots), *(slots + cells), slots + 49]
    return block[:, :, :slots][..., order]


@pytest.mark.parametrize("longest", [3, 6])
def test_cut_episode_has_not_ended(monkeypatch, longest):
    monkeypatch.setattr(episode_module, "LONGEST_FILM", longest)
    env = task().make_test_env(render_mode="rgb_array")
    episode = play(network("lstm-dense"), task(), env, task().evaluation_resets()[0])
    assert episode.ended == (longest == 6)
    assert len(episode.actions) == longest


@pytest.mark.parametrize("preset", ["lstm-dense", "relational-memory-entities"])
def test_traced_episode_equals_the_evaluated_one(preset):
    config = RecurrentDoubleDQNConfig(name="x")
    agent = make_agent(task(), network(preset), config)
    env = task().make_test_env(render_mode="rgb_array")
    resets = task().evaluation_resets(at_most=2)
    found = evaluate(agent.greedy_policy(), task().make_test_env, resets)
    for reset, length, returned in zip(resets, found.length, found.returns):
        episode = play(agent.policy, task(), env, reset)
        assert len(episode.actions) == length
        assert episode.rewards.sum() == returned


def test_choose_start_hides_more_cells_from_an_agent_with_memory():
    env = task().make_test_env()
    chosen = choose_start(network("lstm-dense"), task(), env)
    without = choose_start(network("none-dense"), task(), env)

    def hidden(reset):
        return task().unseen(env.reset(**reset)[0]).sum()

    assert hidden(chosen) == max(map(hidden, task().evaluation_resets()))
    assert chosen["options"]["start"].agent > 1
    assert hidden(without) < hidden(chosen)


class Dot(gymnasium.Env):
    """An environment with pixel observations: a bright patch moves over a dark image."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(0, 255, (24, 18, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        self.steps += 1
        return self._seen(), 1.0, self.steps == 5, False, {}

    def _seen(self):
        picture = np.zeros((24, 18, 1), np.uint8)
        picture[4 * self.steps : 4 * self.steps + 4, :6] = 250
        return picture

    def render(self):
        return np.repeat(self._seen().repeat(3, 0).repeat(3, 1), 3, axis=-1)


def test_attention_among_patches_is_drawn_over_the_frame(tmp_path):
    pixels = gymnasium_task(Dot)
    model = RelationalQNetwork(2, (4, 4), conv_kernel_size=3, conv_strides=2, num_rounds=2)
    model.build((None, 24, 18, 1))
    assert drawn(tmp_path, model, pixels) == ["attention.png", "episode.gif"]
    episode = play(model, pixels, Dot("rgb_array"), {})
    assert episode.patch_grid == model.grid_shape((None, 24, 18, 1)) == (5, 3)
    _, scores = model(pixels.preprocessor(views_of_pixels()), return_attention_scores=True)
    for name, each in episode.scores.items():
        np.testing.assert_allclose(each, np.array(scores[name]), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(each.sum(axis=-1), 1, rtol=1e-4)


def views_of_pixels():
    env = Dot()
    return np.stack([env.reset()[0], *(env.step(0)[0] for _ in range(4))])


class Walk(gymnasium.Env):
    """An environment without `render` whose agent (code 2) walks down a grid of codes."""

    observation_space = gymnasium.spaces.Box(0, 3, (4, 3, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.row = 0
        return self._seen(), {}

    def step(self, action):
        self.row += 1
        return self._seen(), 1.0, self.row == 3, False, {}

    def _seen(self):
        cells = np.zeros((4, 3, 1), np.uint8)
        cells[3, 0], cells[self.row, 2] = 3, 2
        return cells


class MarkedWalk(Walk):
    agent_code = 2


@pytest.mark.parametrize("env", [Walk, MarkedWalk])
def test_a_grid_without_entities_and_frames_is_drawn_with_attention(tmp_path, env):
    grid = gymnasium_task(env)
    model = RelationalQNetwork.from_preset("fast", grid.preprocessor, num_actions=2)
    assert drawn(tmp_path, model, grid) == ["attention.png", "episode.gif"]
    episode = play(model, grid, env(), {}, renders=False)
    agent = [{"agent": (2, row)} for row in range(3)]
    assert episode.cells == (agent if env is MarkedWalk else [{}] * 3)
    observations = np.stack([env().reset()[0]])
    _, scores = model(grid.preprocessor(observations), return_attention_scores=True)
    cells = np.arange(12).reshape(4, 3).T.ravel()  # cells in the column order of figures
    for name, each in episode.scores.items():
        np.testing.assert_allclose(each[0], np.array(scores[name])[0][:, cells][..., cells])
    assert episode.frames.shape == (4, 128, 96, 3)
    shades = episode.frames[:, ::32, ::32, 0]
    assert [tuple(np.argwhere(each == 85)[0]) for each in shades] == [(t, 2) for t in range(4)]


def test_a_vector_without_frames_is_not_drawn(tmp_path):
    vector = gymnasium_task(lambda: gymnasium.wrappers.FlattenObservation(Walk()))
    assert draw_episode(dense_q_network(2), vector, tmp_path, MetricsLog(tmp_path)) == []


@pytest.mark.parametrize("frames", [1, 2])
def test_each_channel_of_a_view_has_its_colour(frames):
    cells = np.zeros((2, 2, 3), np.uint8)
    cells[0, 0, 0] = cells[0, 1, 1] = cells[1, 1, 2] = 1
    observation = np.concatenate([*[1 - cells] * (frames - 1), cells], axis=-1)
    shown = dataclasses.replace(task(), view=None, rows_first=True)
    object.__setattr__(shown, "frames", frames)
    colours = episode_module._view(shown, None, observation)[::32, ::32]
    expected = map(to_rgb, (style.colour(0), style.colour(1), "white", style.colour(2)))
    np.testing.assert_allclose(colours.reshape(4, 3), 255 * np.array([*expected]), atol=1)


def test_every_exported_name_is_an_object_of_its_module():
    import rrl_tf.interpret

    for _ in range(2):  # after the first pass, the submodules are attributes of the package
        for name in rrl_tf.interpret.__all__:
            assert getattr(rrl_tf.interpret, name).__name__ == name


@pytest.mark.parametrize(("unit", "offset"), [(1.0, 0.0), (200.0, 0.0), (1e-6, 0.0), (1.0, -2.0)])
def test_the_grey_view_does_not_depend_on_the_unit_of_the_cells(unit, offset):
    cells = unit * (np.array([[0.0, 1.0], [2.0, 0.5]])[..., None] + offset)
    view = episode_module._view(
        dataclasses.replace(task(), view=None, rows_first=True), None, cells
    )
    shades = view[::32, ::32, 0].astype(int)
    assert shades[1, 0] < shades[0, 1] < shades[1, 1] < shades[0, 0] == 255
    if not offset:
        assert shades.tolist() == [[255, 127], [0, 191]]
