import dataclasses
import urllib.request

import numpy as np
import pytest

pytestmark = pytest.mark.tf_only


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An untrained policy's export folder, and the configuration of its environment."""
    from rrl_tf.export import export_policy
    from train_scripts import train_doorkey

    config = dataclasses.replace(train_doorkey.FAST, max_steps=12, jit_compile=False)
    env = train_doorkey.make_env(config)
    agent = train_doorkey.make_agent(config, env.observation_space, env.action_space)
    folder = tmp_path_factory.mktemp("demo") / "export"
    export_policy(folder, agent.policy, agent.prepare, env.observation_space.shape)
    return folder, config


def test_actions_over_both_transports_equal_those_in_process(exported, capsys):
    from rrl_tf.export import load_policy
    from train_scripts import demo

    folder, config = exported
    policy = load_policy(folder / "1")
    with demo.served(folder, "doorkey") as (grpc_port, rest_port):
        for address in (f"grpc://127.0.0.1:{grpc_port}", f"http://127.0.0.1:{rest_port}"):
            demo.play_through(address, policy, config, episodes=3)

        class Contrary:
            def act(self, observation):
                return (policy.act(observation) + 1) % 5

        with pytest.raises(ValueError, match=r"answered \d, expected \d"):
            demo.play_through(address, Contrary(), config, episodes=1)
    assert capsys.readouterr().out.count("all equal to those in process") == 2
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{rest_port}/v1/models/doorkey", timeout=1)


def test_a_server_that_cannot_start_is_told(tmp_path):
    from train_scripts import demo

    with pytest.raises(OSError, match="exit code"), demo.served(tmp_path / "none", "doorkey"):
        pass


def test_ports_are_free_and_differ():
    from train_scripts import demo

    ports = demo.free_ports(5)
    assert len(set(ports)) == 5
    assert np.all(np.array(ports) > 1023)
