"""TF_CONFIG and Slurm define the hosts of a run; invalid variables raise one clear error."""

import json

import pytest
import tensorflow as tf

from rrl_tf.errors import InvalidInput
from rrl_tf.training import RunConfig, make_replicas
from rrl_tf.training.devices import find_cluster

pytestmark = pytest.mark.tf_only

TWO = {"worker": ["one:2222", "two:2222"]}


def tf_config(cluster=TWO, job="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


@pytest.mark.parametrize(
    ("cluster", "chief"),
    [(TWO, ("worker", 0)), ({**TWO, "chief": ["[::1]:99"]}, ("chief", 0))],
    ids=["workers", "chief and workers"],
)
def test_exactly_one_host_is_the_chief(monkeypatch, cluster, chief):
    tasks = [(job, i) for job, addresses in cluster.items() for i in range(len(addresses))]
    for task in tasks:
        monkeypatch.setenv("TF_CONFIG", tf_config(cluster, *task))
        found = find_cluster("tf_config")
        assert found.size == len(tasks)
        assert found.is_chief == (task == chief)


@pytest.mark.parametrize("text", [None, "{}", tf_config({"worker": ["one:2222"]})])
def test_without_other_hosts_there_is_no_cluster(monkeypatch, text):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    assert find_cluster("tf_config") is None


@pytest.mark.parametrize(
    "text",
    [
        "{'cluster'",
        pytest.param(50_000 * "[", id="deeply nested"),
        json.dumps({"cluster": TWO}),
        tf_config({"worker": "one:2222"}),
        tf_config({**TWO, "ps": ["three:2222"]}),
        tf_config(job="chief"),
        tf_config(job=["worker"]),
        json.dumps({"cluster": TWO, "task": 1}),
        json.dumps({"cluster": TWO, "task": {"type": "worker"}}),
        tf_config(index=2),
        tf_config(index=-1),
        tf_config(index="x"),
    ],
)
def test_invalid_tf_config_is_one_clear_error(text, monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InvalidInput, match=r"TF_CONFIG must be JSON such as .*; received "):
        make_replicas(RunConfig(runs=str(tmp_path)), batch_size=4)


@pytest.mark.parametrize(
    ("devices", "batch_size", "message"),
    [
        (1, 7, r"multiple of the 2 devices; received 7"),
        (2, 8, r"`devices` must be at most 1, the number of CPU.*scale\.md.*received 2"),
        (1, 8, "call make_replicas before anything else"),  # TensorFlow is already initialized
    ],
)
def test_hosts_that_cannot_share_a_batch_are_rejected(
    monkeypatch, tmp_path, devices, batch_size, message
):
    tf.constant(1)
    monkeypatch.setenv("TF_CONFIG", tf_config())
    with pytest.raises(InvalidInput, match=message):
        make_replicas(RunConfig(runs=str(tmp_path), devices=devices), batch_size)


SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
}


def test_slurm_step_defines_the_cluster(monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    found = find_cluster("slurm")
    assert found.spec.as_dict() == {"worker": ["node1:8888", "node1:8889", "node2:8888"]}
    assert (found.job, found.index, found.is_chief) == ("worker", 1, False)


@pytest.mark.parametrize("name", SLURM)
def test_missing_slurm_variable_is_one_clear_error(monkeypatch, name):
    for other, value in SLURM.items():
        if other != name:
            monkeypatch.setenv(other, value)
    with pytest.raises(InvalidInput, match=f"srun.*{name}"):
        find_cluster("slurm")
