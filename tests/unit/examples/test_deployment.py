"""The reference deployment has the settings of the cluster that the tests run, and holds together.

It was never started here: what this file cannot see is whether Kubernetes runs it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.cluster import Cluster
from helpers.documents import ROOT, blocks
from helpers.postgres import Postgres
from helpers.s3 import Store
from pyiceberg.catalog.sql import SqlCatalog

from sparkwap import cli
from sparkwap.server import jars

FOLDER = ROOT / "examples/deployment"
KINDS = ("lake", "postgres", "spark", "jobs", "page")
LAKE = "spark.sql.catalog.lake"

ELSEWHERE = {
    # Addresses, folders and sizes of the deployment.
    "spark.master", "spark.driver.host", "spark.driver.bindAddress", "spark.cores.max",
    "spark.executor.cores", "spark.executor.memory", "spark.local.dir", "spark.sql.warehouse.dir",
    "spark.hadoop.hive.server2.thrift.bind.host", "spark.hadoop.hive.server2.thrift.port",
    "spark.hadoop.hive.exec.scratchdir", "spark.hadoop.hive.exec.local.scratchdir",
    "spark.hadoop.hive.downloaded.resources.dir", "spark.connect.grpc.binding.address",
    "spark.connect.grpc.binding.port", "spark.driver.extraClassPath",
    "spark.executor.extraClassPath", f"{LAKE}.uri", f"{LAKE}.warehouse", f"{LAKE}.client.region",
}  # fmt: skip
LEFT_OUT = {
    # Of the tests' machine only, or as the image has it.
    "spark.pyspark.python", "spark.executor.extraJavaOptions",
    # Only for a store that is not AWS.
    f"{LAKE}.s3.endpoint", f"{LAKE}.s3.path-style-access",
    # In the Secret `lake-s3`.
    f"{LAKE}.s3.access-key-id", f"{LAKE}.s3.secret-access-key",
    # PySpark sends it only over TLS or to localhost.
    "spark.connect.authenticate.token",
}  # fmt: skip
ADDED = {"spark.driver.memory"}
"""The tests give it to Java."""


def settings() -> dict[str, str]:
    """The settings of the deployment's Spark server."""
    lines = (FOLDER / "spark-defaults.conf").read_text().splitlines()
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {key: value.strip() for key, value in pairs}


def settings_of_tests() -> dict[str, str]:
    """The settings of the cluster that the tests run."""
    nothing: Any = None
    cluster = Cluster(
        folder=Path("/f"),
        java=nothing,
        database=Postgres(Path("/f"), 5432, {}),
        store=Store("http://127.0.0.1"),
    )
    return cluster.settings


def manifests() -> list[dict[str, Any]]:
    return [one for kind in KINDS for one in yaml.safe_load_all((FOLDER / f"{kind}.yaml").open())]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The templates of pods, with the names of their owners."""
    for one in manifests():
        spec = one["spec"] if one["kind"] != "Namespace" else {}
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield one["metadata"]["name"], spec["template"]


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    spec = template["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


def test_settings_of_spark_are_those_that_are_tested() -> None:
    here, there = settings(), settings_of_tests()
    assert set(here) == set(there) - LEFT_OUT | ADDED
    same = set(here) - ELSEWHERE - ADDED
    assert {key: here[key] for key in same} == {key: there[key] for key in same}
    assert len(same) > 15


def test_settings_and_jars_are_those_of_the_page() -> None:
    text = (ROOT / "docs/deploy/cluster.md").read_text()
    here = settings()
    for line in re.findall(r"^\| (`spark\..*?) \|", text, re.MULTILINE):
        for written in re.findall(r"`(spark\.[^`]*)`", line):
            key, _, value = written.partition("=")
            if key not in LEFT_OUT | ELSEWHERE:
                assert here[key] == value or not value, key
    named = re.findall(r"^\| `[\w.]+:([\w.-]+):([\d.]+)` \|", text, re.MULTILINE)
    files = {f"{name}-{version}.jar" for name, version in named}
    assert len(files) == 4
    for key in ("spark.driver.extraClassPath", "spark.executor.extraClassPath"):
        assert {Path(one).name for one in here[key].split(":")} == files
    image = (FOLDER / "spark.Dockerfile").read_text()
    assert all(one in image for one in files)
    own = {jar.filename for jar in jars.required(postgres=True, kafka=False)}
    assert own < files


def test_profile_and_server_have_the_same_catalog() -> None:
    profile = yaml.safe_load((FOLDER / "profiles.yml").read_text())["shop"]["outputs"]["prod"]
    here = settings()
    assert profile["catalog_name"] == here["spark.sql.defaultCatalog"] == "lake"
    assert profile["catalog"]["warehouse"] == here[f"{LAKE}.warehouse"]
    assert profile["catalog"]["s3.region"] == here[f"{LAKE}.client.region"]
    assert str(profile["port"]) == here["spark.hadoop.hive.server2.thrift.port"]
    connect = f"sc://{profile['host']}:{here['spark.connect.grpc.binding.port']}"
    assert profile["connect_url"] == connect
    assert profile["host"] == here["spark.driver.host"]


def test_commands_are_commands() -> None:
    called = []
    for _, template in pods():
        for one in containers(template):
            line = [*one["command"], *one.get("args", ())] if "command" in one else []
            text = " ".join(line)
            called += (
                re.findall(r"sparkwap ((?:\w|-)[^;]*)", text)
                if "-c" not in text
                else (re.findall(r"sparkwap ((?:page|metrics)[^;]*)", text))
            )
    for line in called:
        cli._parser().parse_args(line.split())
    words = {line.split()[0] for line in called}
    assert words == {"build", "maintain", "sweep", "alerts", "page", "metrics"}


def test_all_that_is_referred_to_is_there() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert kustomization["resources"] == [f"{kind}.yaml" for kind in KINDS]
    maps = {one["name"]: one["files"] for one in kustomization["configMapGenerator"]}
    assert all((FOLDER / file).is_file() for files in maps.values() for file in files)
    made = " ".join(blocks(ROOT / "docs/deploy/kubernetes.md", "sh"))
    secrets = set(re.findall(r"create secret generic (\S+)", made))
    claims = {one["metadata"]["name"] for one in manifests() if one["kind"].endswith("VolumeClaim")}
    used = set()
    for name, template in pods():
        volumes = {one["name"]: one for one in template["spec"].get("volumes", ())}
        if name == "postgres":
            volumes["data"] = {}
        for one in volumes.values():
            assert one.get("configMap", {"name": "nginx"})["name"] in maps
            assert one.get("persistentVolumeClaim", {"claimName": "target"})["claimName"] in claims
            used |= {one["secret"]["secretName"]} if "secret" in one else set()
        for container in containers(template):
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)
            used |= {one["secretRef"]["name"] for one in container.get("envFrom", ())}
    assert used == secrets


def test_services_and_policies_choose_pods_that_are_there() -> None:
    labels = [template["metadata"]["labels"] for _, template in pods()]
    chosen = 0
    for one in manifests():
        spec = one.get("spec", {})
        wanted = [spec["selector"]] if one["kind"] == "Service" else []
        if one["kind"] in ("Deployment", "StatefulSet"):
            wanted = [spec["selector"]["matchLabels"]]
            assert wanted[0] == spec["template"]["metadata"]["labels"]
        if one["kind"] == "NetworkPolicy":
            rules = [peer for rule in spec.get("ingress", ()) for peer in rule.get("from", ())]
            peers = [spec, *rules]
            wanted = [peer["podSelector"].get("matchLabels", {}) for peer in peers]
        for match in wanted:
            assert any(match.items() <= each.items() for each in labels), match
            chosen += 1
    assert chosen > 15


def test_no_pod_has_more_rights_than_it_needs() -> None:
    for name, template in pods():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert name == "postgres" or spec["automountServiceAccountToken"] is False, name
        for one in containers(template):
            rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert one["securityContext"] == rights
            assert "memory" in one["resources"]["limits"]
            assert ":" in one["image"] or one["image"].startswith("lake-")


def test_the_proxy_is_that_of_the_page() -> None:
    (shown,) = blocks(ROOT / "docs/page.md", "nginx")
    wanted = [line.split("#")[0].strip() for line in shown.splitlines()]
    given = [line.strip() for line in (FOLDER / "nginx.conf").read_text().splitlines()]
    missing = [line for line in wanted if line not in given]
    assert missing == ["listen 443 ssl;"]
    assert "listen 8443 ssl;" in given


def test_the_first_container_creates_what_a_session_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server,) = [template for name, template in pods() if name == "spark-server"]
    (first,) = server["spec"]["initContainers"]
    uri = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setitem(os.environ, "DBT_ENV_SECRET_LAKE_CATALOG_URI", uri)
    for _ in range(2):
        exec(first["args"][0], {})
    catalog = SqlCatalog("lake", uri=uri, warehouse="s3://lake/warehouse")
    assert catalog.list_namespaces() == [("default",)]
    catalog.close()
    warehouse = settings()[f"{LAKE}.warehouse"]
    assert warehouse in first["args"][0]
