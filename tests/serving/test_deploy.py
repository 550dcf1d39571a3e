"""The files for Docker Compose and Kubernetes, as far as they can be tested without these."""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from serving.client import connect
from serving.server import config_files, flags
from serving.server.metrics import Metrics

pytestmark = pytest.mark.tf_only
DEPLOY = Path(__file__).parents[2] / "serving" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana" / "serving.json").read_text())
# Metrics in TensorFlow Serving's source code that a dashboard may use, with their labels.
STOCK = {
    "request_count": {"model_name", "status"},
    "request_latency": {"model_name", "API", "entrypoint"},
    "runtime_latency": {"model_name", "API", "runtime"},
    "request_example_counts": {"model"},
    "request_example_count_total": {"model"},
    "model_warmup_latency": {"model_path", "status"},
    "batching_session:queuing_latency": {"thread_pool_name"},
    "batching_session:wrapped_run_count": set(),
}


def documents():
    """Return kind/name -> manifest."""
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    found = [
        d for p in kustomization["resources"] for d in yaml.safe_load_all((DEPLOY / p).read_text())
    ]
    return {f"{d['kind']}/{d['metadata']['name']}": d for d in found}


def container():
    return documents()["Deployment/serving"]["spec"]["template"]["spec"]["containers"][0]


def commands():
    """Return the server's arguments in both deployments, after those of the image's entry point."""
    first = ["--port=8500", "--rest_api_port=8501", "--model_name=model"]
    first += ["--model_base_path=/models/model"]
    given = COMPOSE["services"]["serving"]["command"], container()["args"]
    return [[*first, *arguments] for arguments in given]


def test_images_are_pinned_and_the_same():
    images = [service["image"] for service in COMPOSE["services"].values()]
    assert all(re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", image) for image in images)
    assert container()["image"] == COMPOSE["services"]["serving"]["image"]


def test_every_file_that_is_mounted_exists():
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", ()):
            source, target, mode = volume.rsplit(":", 2)
            assert mode == "ro" and target.startswith("/")
            if not source.startswith("${"):
                assert (DEPLOY / source).exists(), (name, source)
    for arguments in commands():
        for argument in arguments:
            if "=/config/" in argument:
                assert (DEPLOY / "config" / argument.rpartition("/")[2]).is_file()
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    (config,) = kustomization["configMapGenerator"]
    assert {DEPLOY / file for file in config["files"]} == set((DEPLOY / "config").iterdir())
    every = set((DEPLOY / "kubernetes").iterdir())
    assert {DEPLOY / file for file in kustomization["resources"]} == every


def test_nothing_is_published_beyond_loopback():
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("arguments", commands(), ids=["compose", "kubernetes"])
def test_our_server_runs_with_the_same_flags_and_files(arguments, exported, tmp_path, tools):
    """Only the folders `/models` and `/config` and the ports differ."""
    shutil.copytree(exported, tmp_path / "models" / "doorkey")
    shutil.copytree(DEPLOY / "config", tmp_path / "config")
    models = tmp_path / "config" / "models.config"
    models.write_text(models.read_text().replace('"/models/', f'"{tmp_path}/models/'))
    ports = ["--port=0", f"--rest_api_port={tools.free_port()}"]
    moved = [argument.replace("=/config/", f"={tmp_path}/config/") for argument in arguments]
    parsed, warnings = flags.parse([*moved, *ports])
    assert not warnings
    from serving.server import running

    with running(parsed) as server:
        address = f"http://127.0.0.1:{server.rest_port}"
        for target in (address, f"grpc://127.0.0.1:{server.grpc_port}"):
            with connect(target, "doorkey") as client:
                client.act(tools.observations(1)[0])
        scrape = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]
        with urllib.request.urlopen(address + scrape["metrics_path"], timeout=20) as page:
            assert b"request_count" in page.read()
        probe = COMPOSE["services"]["serving"]["healthcheck"]["test"]
        check_probe(probe[1:], server.rest_port)
        check_probe(container()["startupProbe"]["exec"]["command"], server.rest_port)


def check_probe(command, port):
    """Assert that the probe succeeds only if the model is available."""
    moved = [part.replace("8501", str(port)) for part in command]
    assert subprocess.run(moved, timeout=20).returncode == 0
    other = [part.replace("doorkey", "nothing") for part in moved]
    assert subprocess.run(other, timeout=20).returncode != 0


def test_the_model_is_the_same_everywhere():
    (model,) = config_files.read_model_list(DEPLOY / "config" / "models.config")
    (export,) = [v for v in COMPOSE["services"]["serving"]["volumes"] if "EXPORT" in v]
    assert export.split(":")[-2] == model.base_path == f"/models/{model.name}"
    assert f"/v1/models/{model.name} " in COMPOSE["services"]["serving"]["healthcheck"]["test"][-1]
    for probe in ("startupProbe", "readinessProbe"):
        assert f"/v1/models/{model.name} " in container()[probe]["exec"]["command"][-1]


def expressions():
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        yield variable["query"]


def test_the_dashboard_shows_what_both_servers_count():
    prefix, seen = ":tensorflow:serving:", set()
    ours = Metrics().collect()
    for expression in expressions():
        assert expression.count("(") == expression.count(")")
        for name in re.findall(prefix + r"([a-z_:]+)", expression):
            base = re.sub("_(bucket|sum|count)$", "", name) if name not in STOCK else name
            assert base in STOCK and prefix + base in ours, name
            kind = "counter" if name == base else "histogram"
            assert ours[prefix + base]["type"] == kind
            seen.add(base)
        for labels in re.findall(r"\{([^{}]*)\}", expression):
            known = set().union(*STOCK.values()) | {"le"}
            assert set(re.findall(r"(\w+)(?:=|!|=~)", labels)) <= known
    assert len(seen) >= 5
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_our_metrics_have_the_labels_of_the_stock_ones():
    metrics = Metrics()
    for family in metrics._registry.collect():
        name = family.name.removeprefix(":tensorflow:serving:")
        name = f"{name}_total" if f"{name}_total" in STOCK else name
        if name in STOCK:
            collector = metrics._registry._names_to_collectors[family.name]
            assert set(collector._labelnames) == STOCK[name], name


def test_grafana_finds_the_dashboard_and_its_source():
    provider = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yml").read_text())["providers"][0]
    source = yaml.safe_load((DEPLOY / "grafana" / "datasources.yml").read_text())["datasources"][0]
    mounts = [volume.split(":")[1] for volume in COMPOSE["services"]["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/serving.json" in mounts
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["uid"]}
    assert source["url"].split("//")[1].split(":")[0] in COMPOSE["services"]
    scrape = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]
    (target,) = scrape["static_configs"][0]["targets"]
    assert target.split(":")[0] in COMPOSE["services"] and target.endswith(":8501")
    assert scrape["metrics_path"] == config_files.read_monitoring(
        DEPLOY / "config" / "monitoring.config"
    )


def test_the_manifests_refer_to_each_other():
    manifests = documents()
    pod = manifests["Deployment/serving"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert manifests["Deployment/serving"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["PodDisruptionBudget/serving"]["spec"]["selector"]["matchLabels"] == labels
    target = manifests["HorizontalPodAutoscaler/serving"]["spec"]["scaleTargetRef"]
    assert f"{target['kind']}/{target['name']}" in manifests
    assert "cpu" in container()["resources"]["requests"]  # for the autoscaler
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    for name in ("serving-grpc", "serving-rest"):
        service = manifests[f"Service/{name}"]["spec"]
        assert service["selector"] == labels
        assert all(ports[port["targetPort"]] == port["port"] for port in service["ports"])
    assert manifests["Service/serving-grpc"]["spec"]["clusterIP"] == "None"
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == set(volumes)
    claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
    assert f"PersistentVolumeClaim/{claim}" in manifests
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    assert volumes["config"]["configMap"]["name"] == kustomization["configMapGenerator"][0]["name"]
    annotations = pod["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == "/monitoring/prometheus/metrics"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kubectl_builds_the_manifests():
    built = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY)], capture_output=True, check=True, timeout=60
    )
    kinds = [document["kind"] for document in yaml.safe_load_all(built.stdout)]
    assert sorted(kinds) == sorted([*(n.split("/")[0] for n in documents()), "ConfigMap"])


def instructions():
    """Return the Dockerfile as [(instruction, text)], with continued lines joined."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [tuple(line.split(maxsplit=1)) for line in lines]


def test_our_image_holds_what_it_needs_and_is_not_root(exported, tools):
    found = instructions()
    for text in (text for name, text in found if name == "COPY"):
        assert all((DEPLOY.parents[1] / source).exists() for source in text.split()[:-1])
    names = [name for name, _ in found]
    assert names.index("USER") < names.index("ENTRYPOINT")
    whole = dict(found)
    assert whole["USER"] not in ("root", "0") and whole["FROM"].endswith("-slim")
    command = json.loads(whole["ENTRYPOINT"]) + json.loads(whole["CMD"])
    parsed, warnings = flags.parse(command[3:])
    assert command[1:3] == ["-m", "serving.server"] and not warnings
    assert parsed.host == "0.0.0.0" and not parsed.allow_reload_requests
    assert Path(parsed.model_base_path).is_relative_to(parsed.model_root)
    health = json.loads(whole["HEALTHCHECK"].partition("CMD")[2])
    with tools.serve(exported) as server:
        own = [part.replace("8501", str(server.rest_port)) for part in health[1:]]
        assert subprocess.run([sys.executable, *own], timeout=60).returncode == 0
    gone = subprocess.run([sys.executable, *own], timeout=60, capture_output=True)
    assert gone.returncode != 0


def test_the_systemd_unit_starts_our_server():
    path = DEPLOY / "rrl-serving.service"
    lines = [line.partition("=") for line in path.read_text().splitlines() if "=" in line]
    unit = {name: value for name, _, value in lines}
    command = unit["ExecStart"].split()
    parsed, warnings = flags.parse(command[3:])
    assert command[1:3] == ["-m", "serving.server"] and not warnings
    assert float(unit["TimeoutStopSec"]) > parsed.drain_seconds
    assert parsed.rest_api_max_connections < int(unit["LimitNOFILE"]) / 2
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(
            ["systemd-analyze", "verify", path], capture_output=True, text=True
        )
        assert "Unknown" not in checked.stderr
