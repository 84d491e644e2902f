"""Jobs in real servers that let a user do little, and over TLS."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trustme

from tests.cli.trees import PAGES, SPIDER, WITHIN, assert_whole, pids, site
from tests.servers.nginx import free_port
from tests.servers.stores import KINDS, StoreProcess, running_store
from trawl.errors import JobError
from trawl.frontier.redis.client import Address
from trawl.frontier.redis.report import inspect_job
from trawl.frontier.redis.startup import open_job

__all__ = ["site"]

pytestmark = pytest.mark.servers

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "many-machines.md").read_text(encoding="utf-8")
RULE = PAGE[PAGE.index("user trawl ") :].partition("```")[0].replace("PASSWORD", "sesame").split()[1:]
"""The user of the how-to."""

SHARED = SPIDER.replace(
    '"RETRY_TIMES": 20', '"RETRY_TIMES": 20, "THROTTLING_SCOPES": {"account": {"delay": 0.02, "shared": True}}'
).replace(
    'yield from response.follow_all(css="a")',
    """scopes = {response.url.split("/")[2]: None, "account": None}
        yield from response.follow_all(css="a", meta={"throttling_scopes": scopes})""",
)


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a command."""
    command = [sys.executable, "-P", "-m", "trawl", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for the end of a command. Returns what it printed."""
    out, err = process.communicate(timeout=WITHIN)
    assert process.returncode == status, err
    return out + err


def until_asked(folder: Path, wanted: int) -> None:
    """Return when so many processes have crawled pages."""
    deadline = time.monotonic() + WITHIN
    while len(pids(folder)) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def as_user(store: StoreProcess, job: str = "quotes") -> str:
    """The address of a job, for the user of the how-to."""
    return store.url(job).replace("//", "//trawl:sesame@")


async def join(url: str) -> None:
    """Take part in a job for a moment, and store something."""
    async with open_job(Address.parse(url), lease=0.3) as job:
        job.keep("name", b"value")
        await job.commit()


@pytest.fixture(scope="module", params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    """A server with the user, whom others may set again."""
    with running_store(request.param, tmp_path_factory.mktemp(request.param), "--user", *RULE) as running:
        yield running


def test_the_user_of_the_how_to_may_run_every_command(tmp_path: Path, site: list[str]) -> None:
    (tmp_path / "tree.py").write_text(SHARED, encoding="utf-8")
    sites = ("-a", f"sites={' '.join(site[:3])}", "-s", "DOWNLOAD_DELAY=0.05")
    with running_store("redis", tmp_path, "--user", *RULE) as store:
        url = as_user(store, "all%20of%20it")
        store.ask("ACL", "SETUSER", "trawl", "~{all%20of%20it}:*")
        crawling = start(tmp_path, "crawl", "tree.py", "--job", url, *sites)
        until_asked(tmp_path, 1)
        others = [start(tmp_path, "worker", url, "--spider", "tree.py", *sites)]
        others += [
            start(tmp_path, "job", url, "--why"),
            start(tmp_path, "top", url),
            start(tmp_path, "job", url, "--resume"),
        ]
        assert re.search(r"^ ended +finished *$", said(crawling), re.M)
        exporting = start(tmp_path, "export", url, "-o", "items.jsonl")
        for each in others:
            said(each)
        assert f"{PAGES * 3} items copied" in said(exporting)
        assert_whole(tmp_path, site[:3])


def test_what_a_user_lacks_is_told_when_a_process_starts(store: StoreProcess) -> None:
    trio.run(join, as_user(store))
    before = inspect_job(store.url("quotes"))
    for command in [word for word in RULE if word.startswith("+") and word != "+config|get"]:
        lacking = f"-{command[1:]}"
        store.ask("SCRIPT", "FLUSH")
        answer = store.ask("ACL", "SETUSER", "trawl", lacking)
        assert answer.startswith(b"+OK"), (lacking, answer)
        if command != "+wait":  # only with the durability `replicated`
            with pytest.raises(JobError, match="the server refuses") as caught:
                trio.run(join, as_user(store))
            words = str(caught.value)
            assert "\n" not in words
            assert command[1:].partition("|")[0] in words.lower(), words
            assert words.endswith("grant its user the rights in the docs' `Many machines`"), words
        store.ask("ACL", "SETUSER", "trawl", command)
    after = inspect_job(store.url("quotes"))
    assert (after.pending, after.kept) == (before.pending, before.kept)
    trio.run(join, as_user(store))
    with pytest.raises(JobError, match="grant its user the rights"):
        trio.run(join, as_user(store, "others"))
    with pytest.raises(JobError, match=r"the server refuses: .*invalid username-password pair"):
        trio.run(join, as_user(store).replace("sesame", "open"))


def test_a_job_is_worked_on_over_tls_and_an_authority_that_nobody_knows_is_refused(
    tmp_path: Path, site: list[str]
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    (tmp_path / "tree.py").write_text(SPIDER, encoding="utf-8")
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no", "--tls-ca-cert-file", str(tmp_path / "ca.pem")]
    options += ["--tls-cert-file", str(tmp_path / "cert.pem"), "--tls-key-file", str(tmp_path / "key.pem")]
    with running_store("redis", tmp_path, *options, "--user", *RULE) as store:
        url = f"rediss://trawl:sesame@localhost:{port}/quotes?ca="
        words = ("tree.py", "-a", f"sites={site[0]}", "-o", "items.jsonl", "-s", "DOWNLOAD_DELAY=0.01")
        unknown = start(tmp_path, "crawl", *words, "--job", f"{url}other.pem")
        missing = start(tmp_path, "crawl", *words, "--job", f"{url}no.pem")
        plain = start(tmp_path, "crawl", *words, "--job", f"rediss://127.0.0.1:{store.port}/quotes")
        assert f"{PAGES} " in said(start(tmp_path, "crawl", *words, "--job", f"{url}ca.pem"))
        assert_whole(tmp_path, site[:1])
        assert re.search(r"the server's certificate is refused \(.*name its authority with", one_line(unknown, 1))
        assert "its certificates 'no.pem' can't be read" in one_line(missing, 2)
        assert "its server can't be reached: " in one_line(plain, 1)


def one_line(process: subprocess.Popen[str], status: int) -> str:
    """Wait for the end of a command that says one thing. Returns that."""
    words = said(process, status)
    assert words.strip().count("\n") == 0, words
    assert "sesame" not in words
    return words
