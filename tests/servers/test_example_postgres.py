"""examples/postgres.py with a PostgreSQL of its own, which listens on no network, and the site of ``trawl demo``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.test_demo import demo
from tests.docs.given import ROOT
from tests.servers.nginx import unavailable

pytestmark = pytest.mark.servers
NOBODY = "nobody"  # the server does not run as root
START_WITHIN = 120


def program(name: str) -> str:
    """The path of a program of PostgreSQL's: Debian has those of each version in a folder of its own."""
    places = [os.environ["PATH"], *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    found = shutil.which(name, path=os.pathsep.join(places))
    return found if found is not None else unavailable("PostgreSQL", "postgresql")


@pytest.fixture
def database() -> Iterator[str]:
    """Where a server with an empty database is."""
    try:
        import psycopg  # noqa: F401 - the group "servers" has it
    except ImportError:
        unavailable("psycopg", "python3-psycopg")
    owner = NOBODY if os.geteuid() == 0 else None
    initdb, control = program("initdb"), program("pg_ctl")
    with tempfile.TemporaryDirectory(dir="/tmp") as name, suppress(FileNotFoundError):
        folder = Path(name)
        if owner is not None:
            shutil.chown(folder, owner)
        cluster = str(folder / "cluster")

        def run(*command: str) -> None:
            subprocess.run(command, user=owner, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=START_WITHIN)

        run(initdb, "--auth=trust", "--username=me", "--no-sync", "--pgdata", cluster)
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        run(control, "start", "--wait", "--pgdata", cluster, "--log", str(folder / "log"), "--options", options)
        try:
            yield f"postgresql:///postgres?host={folder}&user=me"
        finally:
            run(control, "stop", "--mode=immediate", "--pgdata", cluster)


def test_each_book_is_in_the_table_once_after_two_crawls(database: str, tmp_path: Path) -> None:
    import psycopg

    with demo() as (_, site):
        text = (ROOT / "examples" / "postgres.py").read_text("utf-8")
        (tmp_path / "postgres.py").write_text(text.replace("http://127.0.0.1:8765/", site), "utf-8")
        quick = [word for name in ("DOWNLOAD_DELAY", "DOWNLOAD_DELAY_PER_SLOT") for word in ("-s", f"{name}=0.01")]
        command = [sys.executable, "-m", "trawl", "crawl", "postgres.py", "-s", f"POSTGRES={database}", *quick]
        for _again in range(2):
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == 0, done.stderr
            assert "items          86" in done.stderr, done.stderr
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT title, price, seen < now() FROM books").fetchall()
    assert len(rows) == 86
    assert all(price >= 5 and was_before for _, price, was_before in rows)
    assert "Emma" in {title for title, _, _ in rows}
