"""The Kubernetes manifests, as far as they can be tested without a cluster."""

import pathlib

import pytest
import tyro
import yaml

from rrl_tf.training.devices import find_cluster
from train_scripts import train_nth_farthest

pytestmark = pytest.mark.tf_only

FILE = pathlib.Path(train_nth_farthest.__file__).parent / "deploy" / "kubernetes.yaml"
MANIFESTS = {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}
JOB = MANIFESTS["Job"]["spec"]
POD = JOB["template"]["spec"]
(CONTAINER,) = POD["containers"]


def environment(index):
    values = {each["name"]: each.get("value", "") for each in CONTAINER["env"]}
    return {name: value.replace("$(INDEX)", str(index)) for name, value in values.items()}


def test_every_pod_of_the_job_knows_the_others_by_their_names(monkeypatch):
    job, service = (MANIFESTS[kind]["metadata"]["name"] for kind in ("Job", "Service"))
    port = MANIFESTS["Service"]["spec"]["ports"][0]["port"]
    names = [f"{job}-{i}.{service}:{port}" for i in range(JOB["completions"])]
    for index in range(JOB["completions"]):
        monkeypatch.setenv("TF_CONFIG", environment(index)["TF_CONFIG"])
        cluster = find_cluster("tf_config")
        assert cluster.spec.as_dict() == {"worker": names} and cluster.index == index
    assert JOB["completionMode"] == "Indexed" and JOB["parallelism"] == JOB["completions"]
    # Pods have these host names only if their subdomain is a headless service.
    assert POD["subdomain"] == service and MANIFESTS["Service"]["spec"]["clusterIP"] == "None"
    labels = JOB["template"]["metadata"]["labels"]
    assert MANIFESTS["Service"]["spec"]["selector"].items() <= labels.items()


def test_index_is_defined_before_it_is_used():
    assert [each["name"] for each in CONTAINER["env"]] == ["INDEX", "TF_CONFIG"]


def test_run_is_kept_and_its_options_are_understood():
    python, kind, module = CONTAINER["command"]
    assert (python, kind) == ("python", "-m") and module == train_nth_farthest.__name__
    config = tyro.cli(train_nth_farthest.Config, args=CONTAINER["args"])
    assert config.preset in train_nth_farthest.PRESETS
    (volume,) = (each for each in POD["volumes"] if "persistentVolumeClaim" in each)
    assert (
        volume["persistentVolumeClaim"]["claimName"]
        == (MANIFESTS["PersistentVolumeClaim"]["metadata"]["name"])
    )
    places = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    assert config.runs.startswith(f"{places[volume['name']]}/")
    assert train_nth_farthest.PRESETS[config.preset].batch_size % JOB["completions"] == 0
