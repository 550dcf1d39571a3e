"""TF_CONFIG or Slurm tells who shares a run; what cannot be understood is one clear error."""

import json

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.training import RunConfig, make_replicas
from rrl_tf.training.cluster import Cluster, find_cluster

pytestmark = pytest.mark.tf_only

TWO = {"worker": ["one:2222", "two:2222"]}


def tf_config(cluster=TWO, job="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def found(text):
    return find_cluster("tf_config", {"TF_CONFIG": text})


@given(workers=st.integers(1, 5), chief=st.booleans(), data=st.data())
def test_exactly_one_host_is_the_chief(workers, chief, data):
    addresses = {"worker": [f"worker-{i}:{2000 + i}" for i in range(workers)]}
    if chief:
        addresses["chief"] = ["[::1]:99"]
    tasks = [(job, i) for job, each in addresses.items() for i in range(len(each))]
    clusters = [found(tf_config(addresses, *task)) for task in tasks]
    if len(tasks) == 1:
        assert clusters == [None]
        return
    assert [cluster.size for cluster in clusters] == len(tasks) * [len(tasks)]
    assert sum(cluster.is_chief for cluster in clusters) == 1
    (of_chief,) = (cluster for cluster in clusters if cluster.is_chief)
    assert (of_chief.job, of_chief.index) == ("chief" if chief else "worker", 0)


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_without_a_cluster_there_is_one_host(text):
    assert found(text) is None
    assert find_cluster("tf_config", {}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'cluster'", "must be JSON"),
        pytest.param(50_000 * "[", "must be JSON", id="deeply nested"),
        ("[]", '"cluster" and "task"'),
        (json.dumps({"cluster": TWO}), '"cluster" and "task"'),
        (json.dumps({"task": {"type": "worker", "index": 0}}), '"cluster" and "task"'),
        (tf_config({}), "different addresses host:port"),
        (tf_config({"worker": []}), "different addresses host:port"),
        (tf_config({"worker": "one:2222"}), "different addresses host:port"),
        (tf_config({"worker": ["one"]}), "different addresses host:port"),
        (tf_config({"worker": ["one:0"]}), "different addresses host:port"),
        (tf_config({"worker": [":2222"]}), "different addresses host:port"),
        (tf_config({"worker": ["one:1", "one:1"]}), "different addresses host:port"),
        (tf_config({**TWO, "ps": ["three:2222"]}), "different addresses host:port"),
        pytest.param(
            tf_config({"worker": ["one:" + 5000 * "1"]}), "different addresses", id="a long port"
        ),
        (tf_config(job="chief"), "type one of worker"),
        (tf_config(job=["worker"]), "type one of worker"),
        (tf_config(job={}), "type one of worker"),
        (json.dumps({"cluster": TWO, "task": 1}), "type one of worker"),
        (json.dumps({"cluster": TWO, "task": {"type": "worker"}}), "from 0 to 1"),
        (tf_config(index=2), "from 0 to 1"),
        (tf_config(index=-1), "from 0 to 1"),
        (tf_config(index="0"), "from 0 to 1"),
        (tf_config(index=True), "from 0 to 1"),
    ],
)
def test_a_wrong_tf_config_is_one_clear_error(text, message, monkeypatch, tmp_path):
    with pytest.raises(InvalidInput, match=rf"TF_CONFIG.*{message}.*; received "):
        found(text)
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InvalidInput, match="TF_CONFIG"):
        make_replicas(RunConfig(runs=str(tmp_path)), batch_size=4)


@given(text=st.text() | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_any_other_text_is_one_clear_error(text):
    if text.strip() not in ("", "{}"):
        with pytest.raises(InvalidInput, match="TF_CONFIG"):
            found(text)


def test_unequal_shares_are_refused_before_hosts_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", tf_config())
    with pytest.raises(InvalidInput, match=r"multiple of 2 rows.*received 7"):
        make_replicas(RunConfig(runs=str(tmp_path)), batch_size=7)


def test_hosts_with_more_devices_than_there_are_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", tf_config())
    with pytest.raises(InvalidInput, match=r"devices must be at most 1.*scale\.md.*received 2"):
        make_replicas(RunConfig(runs=str(tmp_path), devices=2), batch_size=8)


def test_hosts_that_come_too_late_are_told_so(monkeypatch, tmp_path):
    tf.constant(1)  # TensorFlow starts
    monkeypatch.setenv("TF_CONFIG", tf_config())
    with pytest.raises(InvalidInput, match="make_replicas comes first"):
        make_replicas(RunConfig(runs=str(tmp_path)), batch_size=8)


SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
}


def test_slurm_names_the_hosts_of_its_step(monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    addresses = ("node1:8888", "node1:8889", "node2:8888")
    assert find_cluster("slurm", {}) == Cluster({"worker": addresses}, "worker", 1)


@pytest.mark.parametrize("name", SLURM)
def test_outside_of_slurm_it_says_how_to_start(monkeypatch, name):
    for other, value in SLURM.items():
        if other != name:
            monkeypatch.setenv(other, value)
    with pytest.raises(InvalidInput, match=f"srun.*{name}"):
        find_cluster("slurm", {})
