"""The crawled pages, and an nginx with one worker that serves them on loopback, plain and over TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

PAGES = 5_000
SMALL_SITES = (300, 900)
"""Numbers of pages of two small sites. The difference between their costs is the cost of the additional pages."""

LINKS = 10
SIZE = 5_500
"""Approximate size of a page in bytes."""

START_WITHIN = 10.0
"""Maximum number of seconds for nginx to start."""

SENTENCE = "The sea was quiet that morning, and the boats lay close to the shore with their nets half drawn. "

CONFIGURATION = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 100000000; keepalive_timeout 75s; types {{ text/html html; }}
    sendfile on; tcp_nopush on; open_file_cache max=20000; open_file_cache_valid 1h;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/cert.pem; ssl_session_cache builtin:1000;
    client_body_temp_path {folder}/b; proxy_temp_path {folder}/x; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{
        listen {plain} backlog=4096; listen {secure} ssl backlog=4096;
        root {folder}/root;
        location ~ ^/round/[0-9]+/(.*)$ {{ alias {folder}/root/five/$1; }}
        location /small/ {{ try_files /small.html =404; }}
        location /free/ {{ try_files /large.html =404; limit_rate 100k; sendfile_max_chunk 20k; }}
    }}
}}
"""
"""``/p/N.html`` has ten links. ``/round/R/N.html`` has five, so 40 rounds have 200,000 pages with a million links.

``/300/N.html`` and ``/900/N.html`` have ten links to pages of the same site.

A page below ``/free/`` is sent in two parts, the second 0.2 s after the first (20 kB at 100 kB/s).
"""


@attrs.frozen
class Site:
    """A running nginx.

    Attributes:
        port: Port for HTTP. Every loopback address has it.
        secure_port: Port of HTTPS.
        authority: File with the authority that signed the certificate.
    """

    port: int
    secure_port: int
    authority: Path

    def url(self, path: str = "/p/0.html", *, secure: bool = False) -> str:
        """Return the URL of a path."""
        return f"https://127.0.0.1:{self.secure_port}{path}" if secure else f"http://127.0.0.1:{self.port}{path}"

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the certificate of the site."""
        return ssl.create_default_context(cafile=str(self.authority))


def page(number: int, links: int = LINKS, pages: int = PAGES) -> str:
    """Return page ``number`` of ``pages``, with a title, links to ``links`` other pages, and text.

    All pages can be reached from the first one. No page links to the first one, because Scrapy does not mark start URLs
    as seen.
    """
    targets = [(number * links + step) % pages or 1 for step in range(1, links + 1)]
    anchors = "\n".join(f'<li><a href="{target}.html">To page {target}</a></li>' for target in targets)
    head = f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Page {number}</title></head>\n'
    start = f"{head}<body><h1>Page {number}</h1>\n<ul>\n{anchors}\n</ul>\n"
    end = "</body></html>\n"
    paragraph = f"<p>{SENTENCE * 4}</p>\n"
    return start + paragraph * ((SIZE - len(start) - len(end)) // len(paragraph) + 1) + end


def write_pages(root: Path) -> None:
    """Write all pages below ``root``."""
    small = ((str(pages), LINKS, pages) for pages in SMALL_SITES)
    for name, links, pages in (("p", LINKS, PAGES), ("five", 5, PAGES), *small):
        folder = root / name
        folder.mkdir(parents=True)
        for number in range(pages):
            (folder / f"{number}.html").write_text(page(number, links, pages), encoding="utf-8")
    (root / "small.html").write_text("<title>a small page</title>", encoding="utf-8")
    (root / "large.html").write_text("<title>a page</title>" + "x" * 21_000, encoding="utf-8")


def nginx() -> tuple[str, str]:
    """Return the path of nginx and its version."""
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if binary is None:
        raise SystemExit("nginx is not installed: apt-get install nginx-light")
    said = subprocess.run([binary, "-v"], capture_output=True, text=True, check=True).stderr
    return binary, said.strip().rpartition("/")[2].partition(" ")[0]


@contextmanager
def serving() -> Iterator[Site]:
    """Run an nginx with the pages until the block ends."""
    import trustme  # noqa: PLC0415 - only needed to serve a site

    binary, _ = nginx()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # nginx may run as another user
        write_pages(folder / "root")
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_and_cert_chain_pem.write_to_path(f"{folder}/cert.pem")
        authority.cert_pem.write_to_path(f"{folder}/authority.pem")
        plain, secure = free_port(), free_port()
        (folder / "conf").write_text(CONFIGURATION.format(folder=folder, plain=plain, secure=secure), encoding="utf-8")
        command = [binary, "-e", f"{folder}/error.log", "-p", str(folder), "-c", f"{folder}/conf"]
        with subprocess.Popen(command) as process:
            try:
                wait_for(plain, process)
                yield Site(plain, secure, folder / "authority.pem")
            finally:
                process.terminate()


def free_port() -> int:
    """Return a port that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process listens on the port. End the program if it does not."""
    deadline = time.monotonic() + START_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit("nginx did not start")
