"""The files with which a team runs the service: what can be seen of them without a cluster."""

from __future__ import annotations

import configparser
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import Block, faults

from atlasc.cli.commands.serve import serve
from atlasc.passes.lowering.keys.sizes import parse_size
from atlasc.service import v2
from atlasc.service.edge.door import PLACES, SPARE

yaml: Any = pytest.importorskip("yaml", reason="the files are YAML: pip install pyyaml")
ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "systemd" / "atlasc.service"
DROP_IN = UNIT.with_name("gpu.conf")
KUBERNETES = PACKAGING / "kubernetes"
ALERTS = PACKAGING / "prometheus" / "alerts.yaml"
NGINX = PACKAGING / "nginx" / "atlasc.conf"
HEALTH = {route.path for route in v2.router.routes if "/health/" in route.path}  # type: ignore[attr-defined]
GRACE = "--grace"


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def options(words: list[str]) -> dict[str, str]:
    """The options of a command, each with its value."""
    text = " ".join(words).replace("=", " ")
    return dict(re.findall(r"(--[\w-]+)(?: (?!--)(\S+))?", text))


def require_command(words: list[str]) -> dict[str, str]:
    """The options of an ``atlasc`` command, all of which exist."""
    name = Path(words[0]).name
    line = " ".join([name, *words[1:]]).replace("=", " ")
    assert faults(Block("unit", 1, "", line, "")) == []
    return options(words)


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(UNIT)
    return found


@pytest.fixture(scope="module")
def objects() -> dict[str, dict[str, Any]]:
    """Kind -> object; each kind is there once."""
    texts = [path.read_text() for path in sorted(KUBERNETES.glob("*.yaml"))]
    found = [one for text in texts for one in yaml.safe_load_all(text)]
    assert all(one["apiVersion"] and one["kind"] for one in found)
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


@pytest.fixture(scope="module")
def pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = objects["StatefulSet"]["spec"]["template"]["spec"]
    return found


def test_the_unit_starts_a_service_without_rights(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    given = require_command(service["ExecStart"].split())
    assert given["--state"] == f"/var/lib/{service['StateDirectory']}"
    assert service["User"] != "root" and int(service["StateDirectoryMode"], 8) == 0o700
    assert int(service["UMask"], 8) == 0o077 and service["CapabilityBoundingSet"] == ""
    assert service["ProtectSystem"] == "strict" and service["NoNewPrivileges"] == "yes"
    assert service["OOMPolicy"] == "continue", "a worker that is killed does not end the service"
    assert service["KillMode"] == "mixed" and service["RestartPreventExitStatus"] == "2"
    assert int(service["TimeoutStopSec"]) > int(given[GRACE]) + 10
    assert int(service["LimitNOFILE"]) > 2 * (PLACES + SPARE)
    assert parse_size(given["--memory"]) < parse_size(service["MemoryMax"])


def test_the_drop_in_gives_the_unit_its_gpus_alone(unit: configparser.ConfigParser) -> None:
    lines = DROP_IN.read_text().splitlines()
    assert lines.count("ExecStart=") == 1, "the unit's own command is taken back"
    found = dict(one.split("=", 1) for one in lines if re.match(r"[A-Z]\w+=.", one))
    given, before = (options(one["ExecStart"].split()) for one in (found, unit["Service"]))
    assert require_command(found["ExecStart"].split()) == given
    assert {name: before[name] for name in before if name != "--memory"} == given
    assert found["PrivateDevices"] == "no" and found["DevicePolicy"] == "closed"
    assert found["DeviceAllow"] == "char-nvidia* rw"
    kept = {"ExecStart", "PrivateDevices", "MemoryDenyWriteExecute"}
    assert kept == found.keys() & unit["Service"].keys(), "it changes nothing else of the unit"


@needs("systemd-analyze")
@pytest.mark.parametrize("gpu", [False, True])
def test_systemd_takes_the_unit(gpu: bool, tmp_path: Path) -> None:
    """With the drop-in it still has few rights."""
    place = tmp_path / UNIT.name
    changed = {UNIT: place}
    if gpu:
        (tmp_path / f"{UNIT.name}.d").mkdir()
        changed[DROP_IN] = tmp_path / f"{UNIT.name}.d" / DROP_IN.name
    for given, copy in changed.items():
        copy.write_text(re.sub(r"(?<=[=+])/\S+(?= )", sys.executable, given.read_text()))
    for words in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        done = subprocess.run(
            ["systemd-analyze", *words, place], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown key" not in done.stderr, done.stderr


def test_probes_ask_what_the_service_answers(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    [port] = container["ports"]
    given = require_command([*container["command"], *container["args"]])
    assert port["containerPort"] == int(given["--port"])
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[name]["httpGet"]
        assert asked["path"] in HEALTH and asked["port"] == port["name"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
    assert pod["terminationGracePeriodSeconds"] > int(given[GRACE]) + 10


def test_the_pod_has_no_rights_and_its_own_state(
    objects: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    stateful = objects["StatefulSet"]["spec"]
    [container] = pod["containers"]
    assert stateful["replicas"] == 1, "one service has the folder"
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    user = re.search(r"^USER (\d+):", (PACKAGING / "docker/server.Dockerfile").read_text(), re.M)
    assert user and pod["securityContext"]["runAsUser"] == int(user[1])
    claims = {one["metadata"]["name"] for one in stateful["volumeClaimTemplates"]}
    volumes = {one["name"] for one in pod["volumes"]} | claims
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    [state] = [one["mountPath"] for one in container["volumeMounts"] if one["name"] in claims]
    given = options(container["args"])
    assert given["--state"].startswith(f"{state}/"), "the root of a volume belongs to its group"
    limits, requests = (container["resources"][name] for name in ("limits", "requests"))
    assert limits["memory"] == requests["memory"]
    assert parse_size(given["--memory"]) < parse_size(limits["memory"].removesuffix("i"))
    [bundle] = [one for one in pod["volumes"] if one["name"] == "bundle"]
    named = bundle["persistentVolumeClaim"]["claimName"]
    assert named == objects["PersistentVolumeClaim"]["metadata"]["name"]


def test_objects_name_each_other(objects: dict[str, dict[str, Any]], pod: dict[str, Any]) -> None:
    labels = objects["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    [rule] = objects["Ingress"]["spec"]["rules"]
    [path] = rule["http"]["paths"]
    service = path["backend"]["service"]
    assert service["name"] == objects["Service"]["metadata"]["name"]
    [port] = objects["Service"]["spec"]["ports"]
    assert service["port"]["name"] == port["name"]
    assert port["targetPort"] == pod["containers"][0]["ports"][0]["name"]
    listed = objects["Kustomization"]["resources"]
    assert all((KUBERNETES / name).is_file() for name in listed)
    token = objects["Secret"]["stringData"]["token"]
    assert token == "REPLACE", "no token lies in the repository"


def test_the_overlay_asks_for_a_gpu(
    objects: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    overlay = yaml.safe_load((PACKAGING / "kubernetes-gpu/kustomization.yaml").read_text())
    [base], [change] = overlay["resources"], overlay["patches"]
    assert (PACKAGING / "kubernetes-gpu" / base).resolve() == KUBERNETES
    patch = yaml.safe_load(change["patch"])
    stateful = objects["StatefulSet"]
    for name in ("apiVersion", "kind"):
        assert patch[name] == stateful[name]
    assert patch["metadata"]["name"] == stateful["metadata"]["name"]
    [changed], [container] = patch["spec"]["template"]["spec"]["containers"], pod["containers"]
    assert changed["name"] == container["name"]
    assert changed["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    require_command([*container["command"], *changed["args"]])
    given, before = options(changed["args"]), options(container["args"])
    assert given == {name: before[name] for name in before if name != "--memory"}
    image = PACKAGING / "docker" / f"{changed['image'].removeprefix('atlasc-')}.Dockerfile"
    assert f"-t {changed['image']} " in image.read_text()


@needs("kubectl")
@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes-gpu"])
def test_kubectl_takes_the_objects(folder: str, objects: dict[str, dict[str, Any]]) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", PACKAGING / folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    built = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    assert set(built) == set(objects) - {"Kustomization", "Secret"}
    [container] = built["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert ("nvidia.com/gpu" in container["resources"]["limits"]) == (folder == "kubernetes-gpu")
    assert "memory" in container["resources"]["limits"]


def test_proxies_let_uploads_and_answers_through(objects: dict[str, dict[str, Any]]) -> None:
    """Both proxies bound what docs/deploy.md says, and nothing that the service itself bounds."""
    text = NGINX.read_text()
    annotations = objects["Ingress"]["metadata"]["annotations"]
    prefix = "nginx.ingress.kubernetes.io/"
    waits = infer_seconds()
    for name, key, wanted in (
        ("client_max_body_size", "proxy-body-size", "0"),
        ("proxy_request_buffering", "proxy-request-buffering", "off"),
        ("proxy_max_temp_file_size", "proxy-max-temp-file-size", "0"),
        ("proxy_http_version", "proxy-http-version", "1.1"),
    ):
        [found] = re.findall(rf"^\s*{name} (\S+);", text, re.MULTILINE)
        assert found == annotations[prefix + key] == wanted
    [seconds] = re.findall(r"proxy_read_timeout (\d+)s;", text)
    assert int(seconds) == int(annotations[prefix + "proxy-read-timeout"]) > waits


def infer_seconds() -> float:
    """Seconds that infer waits for its answer, unless told otherwise."""
    found = inspect.signature(serve).parameters["infer_timeout"].default
    return float(getattr(found, "default", found))


def test_alerts_are_rules_of_prometheus() -> None:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) > 8
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["labels"]["severity"] in ("page", "ticket", "info")
        assert rule["annotations"]["summary"] and rule["annotations"]["action"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


@needs("promtool")
def test_promtool_takes_the_alerts() -> None:
    done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_dashboard_is_one_of_grafana() -> None:
    board = json.loads((PACKAGING / "grafana" / "dashboard.json").read_text())
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places) and all(x + w <= 24 for x, _, w, _ in places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
    variables = {one["name"] for one in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board))) - {"__rate_interval"}
    assert used == variables
