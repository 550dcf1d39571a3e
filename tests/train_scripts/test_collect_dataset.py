"""Recordings of the script: names of data sets, policies and errors."""

import dataclasses
import pathlib
import types

import gymnasium
import keras
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_decision_transformer, export_policy
from rrl_tf.models import DecisionTransformer
from rrl_tf.offline import RECIPES, DensePolicy, Recipe, Scaling, load_episodes
from rrl_tf.offline.recipes import swing_up
from rrl_tf.pretrained import pretrained_folder
from train_scripts import collect_dataset

pytestmark = [pytest.mark.tf_only, pytest.mark.filterwarnings("ignore::ResourceWarning")]

CARTS = collect_dataset.Config(env="CartPole-v1", policies=("random",), episodes=2)


def test_dataset_ids_differ_between_environments(tmp_path):
    ids = [
        dataclasses.replace(CARTS, env=name).dataset_id
        for name in ("CartPole-v1", "DoorKey-5x5", "DoorKey-6x6", "ALE/Pong-v5", "mine:Maze-v0")
    ]
    assert len(set(ids)) == len(ids)
    assert collect_dataset.Config().dataset_id == "rrl/doorkey-5x5/mixed-v0"
    carts = dataclasses.replace(CARTS, folder=str(tmp_path))
    assert collect_dataset.main(carts) == tmp_path / "rrl" / "cartpole-v1" / "random-v0"
    there = dataclasses.replace(carts, env="DoorKey-5x5", dataset="rrl/cartpole-v1/random-v0")
    with pytest.raises(InvalidInput, match=r"in rrl_tf/DoorKey-5x5.* received .*in CartPole-v1"):
        collect_dataset.main(there)


def test_dataset_ids_differ_between_recipes_and_noises():
    ids = {
        (recipe, noise): collect_dataset.Config(recipe=recipe, noise=noise).dataset_id
        for recipe in RECIPES
        for noise in (None, "tanh", "none")
    }
    assert len(set(ids.values())) == len(ids)
    assert ids["walker2d-medium", None] == "rrl/walker2d/medium-v0"
    assert ids["walker2d-medium-replay", "tanh"] == "rrl/walker2d/medium-replay-tanh-v0"
    assert ids["hopper-medium-replay", None] == "rrl/hopper/medium-replay-v0"
    assert ids["halfcheetah-medium", "tanh"] == "rrl/halfcheetah/medium-tanh-v0"
    assert ids["pendulum", None] == "rrl/pendulum/mixed-v0"
    same = collect_dataset.Config(recipe="walker2d-medium", noise="clipped")
    assert same.dataset_id == ids["walker2d-medium", None]


def test_recipes_with_own_controllers_record_their_actions(tmp_path):
    """Each of the four players of Pendulum plays episodes of 200 steps."""
    folder = str(tmp_path)
    config = collect_dataset.Config(recipe="pendulum", steps=1200, folder=folder)
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    assert data.environment == "Pendulum-v1" and data.steps == 4 * 400
    assert data.returns()[-4:].mean() > data.returns()[:4].mean() + 300
    free = dataclasses.replace(config, noise="none")
    data = load_episodes(f"minari:{collect_dataset.main(free)}")
    for episode in data.episodes:
        own = [swing_up(observation) for observation in episode.observations[:-1]]
        np.testing.assert_allclose(episode.actions, own, rtol=1e-5, atol=1e-5)
    carts = collect_dataset.Config(recipe="cartpole", episodes=2, folder=folder)
    assert len(load_episodes(f"minari:{collect_dataset.main(carts)}").episodes) == 4 * 2


def write_policy(file, observation_size, action_size):
    rng = np.random.default_rng(0)
    np.savez(file, W0=rng.normal(size=(observation_size, action_size)), b0=np.zeros(action_size))


def test_recipe_uses_the_policies_of_a_folder(tmp_path, monkeypatch):
    lines = ((0.5, None, 1.0), (0.5, "mine", 0.1))
    monkeypatch.setitem(RECIPES, "mine", Recipe("Pendulum-v1", lines, 300, "clipped"))
    config = collect_dataset.Config(
        recipe="mine", policy_folder=str(tmp_path), folder=str(tmp_path / "data")
    )
    with pytest.raises(InvalidInput, match=r"must hold mine.npz .* received .*"):
        collect_dataset.main(config)
    write_policy(tmp_path / "mine.npz", 17, 6)
    with pytest.raises(InvalidInput, match=r"mine.npz must have the shape \(17,\)"):
        collect_dataset.main(config)
    write_policy(tmp_path / "mine.npz", 3, 2)
    with pytest.raises(InvalidInput, match=r"must have the shape \(1,\); received \(2,\)"):
        collect_dataset.main(config)
    assert not (tmp_path / "data").exists()
    write_policy(tmp_path / "mine.npz", 3, 1)
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    assert len(data.episodes) == 2
    write_policy(tmp_path / "other.npz", 3, 1)
    (tmp_path / "mine.npz").write_bytes((tmp_path / "other.npz").read_bytes() + b" ")
    with pytest.raises(InvalidInput, match=r"must contain this recording.*Choose another ID"):
        collect_dataset.main(config)


def test_dense_policy_is_recorded_with_noise_and_without(tmp_path):
    write_policy(tmp_path / "mine.npz", 3, 1)
    config = collect_dataset.Config(
        env="Pendulum-v1",
        policies=("random", str(tmp_path / "mine.npz")),
        explorations=(0.1, 0.5),
        noise="tanh",
        steps=600,
        folder=str(tmp_path),
    )
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    assert data.name.endswith("rrl/pendulum-v1/mixed-tanh-v0") and len(data.episodes) == 3
    free = dataclasses.replace(config, noise="none", policies=config.policies[1:])
    policy = DensePolicy.load(tmp_path / "mine.npz")
    for episode in load_episodes(f"minari:{collect_dataset.main(free)}").episodes:
        own = [np.clip(policy(observation), -2, 2) for observation in episode.observations[:-1]]
        np.testing.assert_allclose(episode.actions, own, rtol=1e-5)


def test_doorkey_data_makes_its_environment(tmp_path):
    config = dataclasses.replace(CARTS, env="DoorKey-5x5", folder=str(tmp_path))
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    env = data.make_env()
    observation, _ = env.reset(seed=0)
    assert observation.shape == data.episodes[0].observations.shape[1:] == (7, 7, 4)
    assert env.action_space == data.action_space
    assert env.observation_space == data.observation_space
    registered = gymnasium.make(data.environment)
    assert registered.spec.kwargs == env.spec.kwargs
    np.testing.assert_array_equal(registered.reset(seed=0)[0], observation)
    env.close()


def test_policy_of_an_export_is_recorded(tmp_path):
    network = keras.Sequential([keras.layers.Dense(2)])
    network.build((None, 4))
    lean = np.array([[0, 0], [0, 0], [-1, 1], [0, 0]])
    network.set_weights([lean, np.zeros(2)])
    export_policy(tmp_path / "export", network, lambda x: x, (4,), "float32")
    config = dataclasses.replace(
        CARTS,
        policies=(str(tmp_path / "export"),),
        explorations=(0.0,),
        dataset="tests/lean-v0",
        folder=str(tmp_path / "data"),
    )
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    for episode in data.episodes:
        np.testing.assert_array_equal(episode.actions, episode.observations[:-1, 2] > 0)
    (tmp_path / "export" / "1").rename(tmp_path / "export" / "2")  # another version
    assert collect_dataset.main(config) == pathlib.Path(data.name.removeprefix("minari:"))
    network.set_weights([-lean, np.zeros(2)])
    export_policy(tmp_path / "export", network, lambda x: x, (4,), "float32")
    with pytest.raises(InvalidInput, match=r"export [0-9a-f]{8} .*Choose another ID"):
        collect_dataset.main(config)
    wrong = dataclasses.replace(config, env="Acrobot-v1", dataset="tests/wrong-v0")
    with pytest.raises(InvalidInput, match=r"`observation` must have shape .*4"):
        collect_dataset.main(wrong)


def test_digest_does_not_depend_on_the_order_of_a_directory(tmp_path, monkeypatch):
    for version in "12":
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").write_text(version)
    found, names = pathlib.Path.rglob, []
    for order in (sorted, lambda paths: sorted(paths, reverse=True)):
        monkeypatch.setattr(pathlib.Path, "rglob", lambda *args, order=order: order(found(*args)))
        names.append(collect_dataset.make_players(str(tmp_path), CARTS)[0].name)
    assert names[0] == names[1]


def test_agent_is_trained_in_a_run_of_its_own(tmp_path, monkeypatch):
    trained = []
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])

    def train(config):
        trained.append(config)
        export_policy(tmp_path, network, lambda x: x, (4,), "float32")
        return types.SimpleNamespace(folder=types.SimpleNamespace(export=tmp_path)), None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(collect_dataset.train_doorkey, "main", train)
    act = collect_dataset.trained_agent(3)
    assert act(np.ones(4, np.float32)) in (0, 1)
    (config,) = trained
    assert config.seed == 3
    presets = collect_dataset.train_doorkey.PRESETS.values()
    assert config.path not in [dataclasses.replace(each, seed=3).path for each in presets]


def test_pretrained_policy_is_recorded(tmp_path):
    folder = str(pretrained_folder("doorkey-5x5"))
    config = dataclasses.replace(
        CARTS,
        env="DoorKey-5x5",
        policies=(folder,),
        explorations=(0.0,),
        folder=str(tmp_path),
    )
    data = load_episodes(f"minari:{collect_dataset.main(config)}")
    assert min(data.returns()) > 0.5
    assert collect_dataset.make_players(f"{folder}/policy", config)[0].name.startswith(folder)


def test_decision_transformer_cannot_record(tmp_path):
    model = DecisionTransformer.from_preset("fast", state_size=4, action_size=2, discrete=True)
    model.build()
    scaling = Scaling(np.zeros(4), np.ones(4), 1.0, target_return=500.0)
    export_decision_transformer(tmp_path, model, scaling, (4,))
    config = dataclasses.replace(CARTS, policies=(str(tmp_path),), folder=str(tmp_path / "data"))
    with pytest.raises(InvalidInput, match=r"`act` needs a policy whose .* observations only"):
        collect_dataset.main(config)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "NoSuch-v0"}, "cannot make the environment"),
        ({"env": "no_such_module:NoSuch-v0"}, "cannot make the environment"),
        ({"env": "MiniGrid-DoorKey-5x5-v0"}, "must have array observations"),
        ({"policies": ("nobody",)}, "received 'nobody'"),
        ({"policies": ("random", "agent")}, "the agent is for DoorKey-5x5; .*--policies random"),
        ({"policies": ("no/mine.npz",)}, r"no/mine.npz must be a file of np\.savez"),
        ({"policies": ("tests",)}, "must hold version folders; received 'tests"),
        ({"episodes": 0}, "`episodes` must be greater than 0; received 0"),
        ({"steps": 9}, "either episodes or steps; received 1000000000 and 9"),
        ({"recipe": "pendulum"}, "a recipe has its own env; received 'CartPole-v1'"),
        ({"recipe": "walker"}, r"`recipe` must be one of \('walker2d-medium', "),
        ({"dataset": "cartpole"}, "the dataset ID must be NAMESPACE/NAME-vN"),
    ],
)
def test_errors_before_the_recording_leave_no_folder(tmp_path, changes, message):
    changes = {"episodes": 10**9, **changes, "folder": str(tmp_path / "data")}
    with pytest.raises(InvalidInput, match=message):
        collect_dataset.main(dataclasses.replace(CARTS, **changes))
    assert not (tmp_path / "data").exists()
