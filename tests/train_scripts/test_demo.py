import dataclasses

import keras
import pytest

pytestmark = pytest.mark.tf_only


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return the export folder of an untrained policy and its task."""
    from rrl_tf.export import export_policy
    from train_scripts import train_doorkey

    config = dataclasses.replace(train_doorkey.FAST, max_steps=12)
    task = train_doorkey.make_task(config)
    network = train_doorkey.make_network(config, task)
    network(keras.ops.zeros((1, *task.preprocessor.shape)))
    folder = tmp_path_factory.mktemp("demo") / "export"
    export_policy(folder, network, task.preprocessor, task.observation_space.shape)
    return folder, task


def test_play_through_compares_both_protocols_with_the_local_policy(exported, capsys):
    from rrl_tf.export import load_policy
    from serving.local import free_ports
    from serving.server import running
    from serving.server.flags import Flags
    from train_scripts import demo

    folder, task = exported
    policy, (port,) = load_policy(folder / "1"), free_ports(1)
    flags = Flags(model_base_path=str(folder), model_name="doorkey", port=0, rest_api_port=port)
    with running(flags) as server:
        for address in (f"grpc://127.0.0.1:{server.grpc_port}", f"http://127.0.0.1:{port}"):
            demo.play_through(address, policy.act, task, episodes=3)
        with pytest.raises(RuntimeError, match=r"returned actions .*; expected"):
            demo.play_through(address, lambda o: (policy.act(o) + 1) % 5, task, episodes=1)
        demo.play_through(address, policy.act, task, episodes=100)
    output = capsys.readouterr().out
    assert output.count("all actions equal to the local policy's") == 3
    assert output.count("/3 solved, all actions") == 2 and "/48 solved" in output


def test_config_rejects_zero_episodes():
    from rrl_tf.errors import InvalidInput
    from train_scripts import demo

    with pytest.raises(InvalidInput, match=r"episodes.* must be greater than 0; received 0"):
        demo.Config(episodes=0)
