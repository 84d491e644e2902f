"""The files under examples/deploy: systemd takes the units, kubectl reads the manifests, commands are understood."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from tests.cli.simulated import QUICK, crawl_on
from tests.docs.not_run import understood
from tests.servers.stores import running_store
from trawl.cli import main
from trawl.engine import EngineSettings
from trawl.engine.run import CLOSE_STEP_GRACE
from trawl.frontier.redis import Address, open_job
from trawl.settings import assignments, load
from trawl.testing import SimulatedWeb

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "examples" / "deploy" / "trawl.service"
CONTAINER = ROOT / "examples" / "deploy" / "Containerfile"
CRONTAB = ROOT / "examples" / "deploy" / "crontab"
LOGROTATE = ROOT / "examples" / "deploy" / "logrotate"
WORKER = ROOT / "examples" / "deploy" / "trawl-worker@.service"
COMPOSE = ROOT / "examples" / "deploy" / "compose.yaml"
KUBERNETES = ROOT / "examples" / "deploy" / "kubernetes.yaml"
MOST_CLOSING = 6
"""Steps of closing that may each take all of their time: pipelines, feeds, what was in flight, spider, wire, job."""


def unit(path: Path = UNIT) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


def instructions() -> list[tuple[str, str]]:
    """The Containerfile's instructions and what stands behind them."""
    lines = CONTAINER.read_text(encoding="utf-8").splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line and not line.startswith("#")]


LONGEST = EngineSettings().shutdown_timeout + MOST_CLOSING * CLOSE_STEP_GRACE
"""Seconds that a drain may take."""


@pytest.mark.parametrize("path", [UNIT, WORKER], ids=lambda path: path.name)
def test_the_units_wait_as_long_as_a_drain_may_take_and_tell_the_exit_statuses_apart(path: Path) -> None:
    service = unit(path)["Service"]
    assert int(service["TimeoutStopSec"]) >= LONGEST
    assert service["SuccessExitStatus"] == "130"
    assert service["RestartPreventExitStatus"] == "2"
    assert service["Restart"] == "on-failure"


def test_what_the_worker_unit_starts_is_understood() -> None:
    words = shlex.split(unit(WORKER)["Service"]["ExecStart"])
    understood(words)
    assert (ROOT / Path(words[words.index("--spider") + 1]).relative_to("/opt/trawl")).is_file()
    load(assignments([words[at + 1] for at, word in enumerate(words) if word == "-s"]))


def read_yaml(path: Path) -> list[Any]:
    """The documents of a file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_the_services_of_compose_run_commands_that_there_are_and_drain() -> None:
    (compose,) = read_yaml(COMPOSE)
    services = compose["services"]
    assert set(services) == {"store", "worker", "export"}
    for name in ("worker", "export"):
        understood(["trawl", *services[name]["command"]])
        assert float(services[name]["stop_grace_period"].removesuffix("s")) >= LONGEST
        assert services[name]["depends_on"] == {"store": {"condition": "service_healthy"}}
    assert {volume.partition(":")[0] for volume in services["store"]["volumes"]} == set(compose["volumes"])


@pytest.mark.servers
def test_the_store_of_compose_is_one_that_a_job_takes(tmp_path: Path) -> None:
    (compose,) = read_yaml(COMPOSE)
    _, *options = compose["services"]["store"]["command"]

    async def run(url: str) -> None:
        async with open_job(Address.parse(url)):
            pass

    with running_store("valkey", tmp_path, *options) as store:
        trio.run(run, store.url("compose"))


def test_the_pods_of_kubernetes_run_commands_that_there_are_and_drain() -> None:
    documents = read_yaml(KUBERNETES)
    for job in documents[:2]:
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        understood(["trawl", *container["args"]])
        assert pod["terminationGracePeriodSeconds"] >= LONGEST
        assert job["spec"].get("completions") is None
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]]
    assert claims == [documents[2]["metadata"]["name"]]


def test_kubectl_reads_the_manifests(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here")
    shutil.copy(KUBERNETES, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{KUBERNETES.name}]\n", encoding="utf-8")
    done = subprocess.run([kubectl, "kustomize", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kind: Job\n") == 2


def test_what_the_unit_starts_is_a_crawl_of_an_example_with_settings_that_there_are() -> None:
    words = shlex.split(unit()["Service"]["ExecStart"])
    assert words[:2] == ["/opt/trawl/.venv/bin/trawl", "crawl"]
    assert (ROOT / Path(words[2]).relative_to("/opt/trawl")).is_file()
    load(assignments([words[at + 1] for at, word in enumerate(words) if word == "-s"]))


def test_a_good_night_of_the_crontab_prints_nothing_and_its_log_is_what_logrotate_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    *_, line = CRONTAB.read_text(encoding="utf-8").splitlines()
    assert "%" not in line  # cron ends the line there
    words = shlex.split(line.replace("||", " || ").replace("&&", " && "))
    folder = Path(words[words.index("cd") + 1])
    typed = words[words.index("crawl") : words.index("mv") - 1]
    spider = "import trawl\n\nclass Books(trawl.Spider):\n    name = 'books'\n    start_urls = ['http://a.example/']\n"
    (tmp_path / "books.py").write_text(f"{spider}    def parse(self, response):\n        yield {{'n': 1}}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    web = SimulatedWeb()
    web.add_host("a.example")
    assert main([*typed, *QUICK], crawl_with=crawl_on(web)) == 0
    assert capfd.readouterr() == ("", "")
    assert words[words.index("mv") + 1] == typed[typed.index("-O") + 1] == "new.csv"
    assert (tmp_path / "new.csv").read_text("utf-8").splitlines() == ["n", "1"]
    assert '"item_scraped_count": 1' in (tmp_path / "stats.json").read_text("utf-8")
    log = typed[typed.index("--log-file") + 1]
    assert "1 items written as csv" in (tmp_path / log).read_text("utf-8")
    rotated = LOGROTATE.read_text(encoding="utf-8")
    assert f"\n{folder / log} {{" in rotated
    assert "copytruncate" not in rotated.partition("{")[2]


@pytest.mark.parametrize(("unit", "name"), [(UNIT, "trawl-books.service"), (WORKER, "trawl-worker@1.service")])
def test_systemd_takes_the_unit(tmp_path: Path, unit: Path, name: str) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not here")
    path = tmp_path / name
    path.write_text(unit.read_text(encoding="utf-8").replace("/opt/trawl/.venv/bin/trawl", "/bin/true"), "utf-8")
    done = subprocess.run([verify, "verify", "--man=no", path], capture_output=True, text=True, check=False)
    about_it = [line for line in done.stderr.splitlines() if path.name in line]
    assert about_it == []


def test_the_image_is_made_as_the_readme_says() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.search(r"^```sh\n(.*?)^```$", readme, re.M | re.S)
    assert said is not None
    make, install, crawl = said[1].strip().split(" && ")
    runs = [text.replace(" --no-cache-dir", "") for name, text in instructions() if name == "RUN"]
    assert runs[:2] == [make, install]
    told = CONTAINER.read_text(encoding="utf-8").replace("/trawl/examples", "examples")
    assert crawl.removeprefix(".venv/bin/") in told


def test_the_crawl_is_the_first_process_of_its_container() -> None:
    given = dict(instructions())
    assert json.loads(given["ENTRYPOINT"]) == ["/trawl/.venv/bin/trawl"]  # a list: no shell before it
    assert json.loads(given["CMD"]) == ["--help"]
    assert given["STOPSIGNAL"] == "SIGTERM"
    assert given["USER"] == "crawler"
    assert given["WORKDIR"] == "/data"
