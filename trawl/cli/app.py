"""The commands of ``trawl`` with their options and help.

Each command imports its own modules when it is called, so that ``trawl --help`` loads no part of a crawl.

Length: typer reads each option and its help from the signature of the command, and all commands are defined here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from typer.main import get_command

from trawl import __version__
from trawl.cli import FAILED, OK, USAGE
from trawl.cli.group import Group, examples

if TYPE_CHECKING:
    from rich.console import Console

    from trawl.cli.crawl_entry import CrawlOptions
    from trawl.cli.view import CrawlWith

__all__ = ["app", "main"]

F = TypeVar("F", bound=Callable[..., Any])

SHELLS = ("bash", "zsh", "fish", "powershell")


def _option(metavar: str, help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, **more)


def _flag(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, **more)


def _argument(metavar: str, help: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, **more)


_SPIDER_HELP = "The spider's name, FILE.py or MODULE; add :CLASS if it holds several."

SpiderArgument = Annotated[str, _argument("SPIDER", _SPIDER_HELP)]
SettingOption = Annotated[
    list[str], _option("NAME=VALUE", "Set a setting; the value may be JSON. Repeatable.", "-s", "--set")
]
ArgumentOption = Annotated[list[str], _option("NAME=VALUE", "Pass an argument to the spider. Repeatable.", "-a")]
SpiderOption = Annotated[
    str | None, _option("SPIDER", "Use this spider's settings: FILE.py or MODULE, with :CLASS.", "--spider")
]
LevelOption = Annotated[
    str | None, _option("LEVEL", "DEBUG, INFO, WARNING (the default), ERROR or CRITICAL.", "--log-level")
]
LogLevelOption = Annotated[str | None, _option("LEVEL", "DEBUG, INFO, WARNING, ERROR or CRITICAL.", "--log-level")]
LogFileOption = Annotated[
    str | None, _option("FILE", "Write the log to this file instead of standard error.", "--log-file")
]
LogFormatOption = Annotated[
    str | None, _option("FORMAT", "json writes each entry as one line of JSON.", "--log-format")
]
QuietOption = Annotated[bool, _flag("Show warnings and errors only: no progress, no summary.", "--quiet", "-q")]
FailOnOption = Annotated[
    list[str],
    _option(
        "KIND",
        "Exit with status 3 on errors (in the spider's code, or lost items), no-items, unreachable, or"
        " fewer-items=30% (than in the last --stats file). Repeatable.",
        "--fail-on",
    ),
]
StatsOption = Annotated[
    str | None, _option("FILE", "Write the statistics to this file as JSON; - is standard output.", "--stats")
]
MetricsOption = Annotated[
    str | None,
    _option(
        "[HOST:]PORT",
        "Serve metrics for Prometheus at /metrics, by default for this machine only. Needs the extra metrics.",
        "--metrics",
    ),
]
MetricsScopesOption = Annotated[
    int | None,
    _option(
        "N",
        "Scopes with metrics of their own, the busiest first (default: 100). The others are summed up.",
        "--metrics-scopes",
        min=0,
    ),
]
AppendOption = Annotated[
    list[str],
    _option(
        "FEED",
        "Append items to this file: .jsonl .json .csv .xml .sqlite .parquet, also with .gz or .zst."
        " FEED:FORMAT sets another format; - is standard output. Replaces the setting FEEDS. Repeatable.",
        "-o",
    ),
]
OverwriteOption = Annotated[list[str], _option("FEED", "Like -o, but overwrite an existing file. Repeatable.", "-O")]
DurabilityOption = Annotated[
    str | None,
    _option(
        "LEVEL", "always, replicated or fast: the durability that the job's server must guarantee.", "--job-durability"
    ),
]
WaitOption = Annotated[bool, _flag("Retry while the request is refused or fails, as a crawl does.", "--wait")]
UrlArgument = Annotated[str, _argument("URL", "The URL to fetch.")]

app: typer.Typer = typer.Typer(
    name="trawl",
    cls=Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _command(*lines: str, name: str | None = None, of: typer.Typer = app) -> Callable[[F], F]:
    """Return a decorator that adds a command with these examples in its help."""
    return of.command(name, epilog=examples(*lines))


@_command(
    "trawl crawl quotes.py -O quotes.jsonl",
    "trawl crawl quotes.py -a tag=love -s DOWNLOAD_DELAY=2",
    "trawl crawl shop.spiders:Books -o books.csv --job jobs/books",
    "trawl crawl quotes.py -O -:csv --quiet > quotes.csv",
    "trawl crawl quotes.py shop.py -O '%(name)s.csv'",
)
def crawl(
    context: typer.Context,
    targets: Annotated[list[str], _argument("SPIDER", _SPIDER_HELP, show_default=False)] = [],
    *,
    takes_all: Annotated[
        bool, _flag("Crawl with every spider below this folder, as shown by `trawl list`.", "--all")
    ] = False,
    arguments: ArgumentOption = [],
    settings: SettingOption = [],
    appended: AppendOption = [],
    overwritten: OverwriteOption = [],
    job: Annotated[
        str | None,
        _option(
            "DIR|URL",
            "Keep the crawl's state in this directory or Redis server (redis://host/NAME), or resume from it."
            " %(name)s stands for the spider's name.",
        ),
    ] = None,
    job_durability: DurabilityOption = None,
    processes: Annotated[
        int | None,
        _option(
            "N",
            "Crawl with N processes on this machine. Without an address in --job, they use a Redis or Valkey"
            " server that this command starts.",
            min=1,
        ),
    ] = None,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
    log_format: LogFormatOption = None,
    is_quiet: QuietOption = False,
    fails_on: FailOnOption = [],
    stats: StatsOption = None,
    metrics: MetricsOption = None,
    metrics_scopes: MetricsScopesOption = None,
    receipt: Annotated[
        str | None,
        _option(
            "FILE",
            "Write the rate of each scope, and whether robots.txt and servers' waits were obeyed, to this .json"
            " or .html file.",
            "--receipt",
        ),
    ] = None,
    panel: Annotated[
        str | None,
        _option(
            "[HOST:]PORT",
            "Show and steer the crawl in a browser. On this machine alone, unless PANEL_TOKEN is set.",
            "--panel",
        ),
    ] = None,
) -> None:
    """Run a spider, or several at the same time that share the limits of a site."""
    from trawl.cli.crawl import crawl_command

    raise typer.Exit(crawl_command(*_crawling(context, processes=processes or 0)))


@_command(
    "trawl worker redis://store.internal/quotes",
    "trawl worker redis://store.internal/quotes --spider quotes.py -a tag=love",
)
def worker(
    context: typer.Context,
    job: Annotated[str | None, _argument("URL", "The job's address; by default the setting JOB_DIR.")] = None,
    *,
    spider: Annotated[
        str | None, _option("SPIDER", f"{_SPIDER_HELP} By default, the spider that the job names.", "--spider")
    ] = None,
    arguments: ArgumentOption = [],
    settings: SettingOption = [],
    job_durability: DurabilityOption = None,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
    log_format: LogFormatOption = None,
    is_quiet: QuietOption = False,
    fails_on: FailOnOption = [],
    stats: StatsOption = None,
    metrics: MetricsOption = None,
    metrics_scopes: MetricsScopesOption = None,
    leader: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Join a job in a server and work on it until it has finished. Writes no feeds: use `trawl export`."""
    from trawl.cli.crawl import crawl_command
    from trawl.cli.worker import job_of_leader

    others = {} if leader is None else {"job": job_of_leader()}
    raise typer.Exit(crawl_command(*_crawling(context, is_worker=True, **others)))


@_command(
    "trawl export redis://store.internal/quotes -o quotes.jsonl",
    "trawl export redis://store.internal/quotes -o quotes.csv.gz -f",
)
def export(
    context: typer.Context,
    job: Annotated[
        str | None,
        _argument("JOB", "The job's address, or its directory with --processes; by default the setting JOB_DIR."),
    ] = None,
    *,
    appended: AppendOption = [],
    overwritten: OverwriteOption = [],
    follow: Annotated[
        bool, _flag("Continue until the job has finished; wait for a missing job.", "--follow", "-f")
    ] = False,
    settings: SettingOption = [],
    job_durability: DurabilityOption = None,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
    log_format: LogFormatOption = None,
    is_quiet: QuietOption = False,
) -> None:
    """Write the items of a job in a server to files, each item once, even if it is killed and run again."""
    from trawl.cli.export import export_command

    options, _, console = _crawling(context)
    raise typer.Exit(export_command(options, console, follows=follow))


@_command(
    "trawl job jobs/books",
    "trawl job jobs/books --requeue-failed",
    "trawl job jobs/books --export-pending > pending.jsonl",
    "trawl job jobs/books --why",
    "trawl job jobs/books --set shop.example 'delay=2 concurrency=1'",
)
def job(
    job: Annotated[str, _argument("JOB", "The directory or address given to --job.")],
    requeue_failed: Annotated[bool, _flag("Queue failed requests again.", "--requeue-failed")] = False,
    export_pending: Annotated[
        bool, _flag("Print the pending requests as JSON, one per line.", "--export-pending")
    ] = False,
    workers: Annotated[bool, _flag("Show the processes of a running job.", "--workers")] = False,
    why: Annotated[bool, _flag("Show what requests of a running job wait for.", "--why")] = False,
    json: Annotated[bool, _flag("Print the status of a running job as JSON.", "--json")] = False,
    pause: Annotated[bool, _flag("Send nothing until --resume.", "--pause")] = False,
    stop: Annotated[bool, _flag("End the crawl, like Ctrl-C.", "--stop")] = False,
    resume: Annotated[bool, _flag("Undo --pause or --stop.", "--resume")] = False,
    set: Annotated[
        tuple[str, str] | None, _option("SCOPE KEY=VALUE", "Set limits, with the keys of THROTTLING_SCOPES.", "--set")
    ] = None,
    add: Annotated[str | None, _option("URL|-", "Add a request; - reads URLs from standard input.")] = None,
    drop: Annotated[str | None, _option("HOST", "Drop the pending pages of a host.")] = None,
) -> None:
    """Show the state of a job: pending requests by scope, failed requests, positions in its feeds.

    Or change a job while it runs.
    """
    from trawl.cli.job import job_command, orders_of

    orders = orders_of(pause=pause, stop=stop, resume=resume, limits=set, add=add, drop=drop)
    parts = [part for part, is_wanted in (("workers", workers), ("why", why), ("json", json)) if is_wanted]
    job_command(job, requeues=requeue_failed, exports=export_pending, orders=orders, parts=parts)


@_command("trawl panel jobs/books", "trawl panel redis://store.internal/quotes --listen 8100")
def panel(
    job: Annotated[str, _argument("JOB", "The job's directory or address.")],
    listen: Annotated[str, _option("[HOST:]PORT", "Where the panel listens, by default for this machine only.")] = "0",
) -> None:
    """Show and steer a job in a browser, whichever processes work on it."""
    from trawl.cli.job import panel_command

    panel_command(job, listen)


@_command("trawl top redis://store.internal/quotes")
def top(job: Annotated[str, _argument("JOB", "The job's address, or its directory with --processes.")]) -> None:
    """Show the processes of a job in a server while they work: pages, rates, and what requests wait for."""
    from trawl.cli.job import top_command
    from trawl.cli.view import stdout_console

    top_command(job, stdout_console())


@_command(
    "trawl settings",
    "trawl settings quotes.py",
    "trawl settings --get DOWNLOAD_DELAY -s DOWNLOAD_DELAY=2",
    "trawl settings --move shop/settings.py >> pyproject.toml",
)
def settings(
    spider: Annotated[
        str | None, _argument("SPIDER", "Include the custom_settings of this spider.", show_default=False)
    ] = None,
    get: Annotated[str | None, _option("NAME", "Print only the value of this setting.")] = None,
    settings: SettingOption = [],
    move: Annotated[
        str | None, _option("FILE.py", "Convert Scrapy's settings.py to pyproject.toml and print the result.")
    ] = None,
) -> None:
    """Show every setting with its value and the source of the value."""
    from trawl.cli.settings import move_command, settings_command

    if move is None:
        settings_command(spider, get, settings)
    else:
        move_command(move)


@_command("trawl move shop", "trawl move shop --write", "trawl move quotes.py --write")
def move(
    project: Annotated[str, _argument("PROJECT", "The folder of a Scrapy project, or a file.")],
    write: Annotated[bool, _flag("Write the changes instead of showing them.", "--write")] = False,
    dirty: Annotated[bool, _flag("Also write files that are not committed to git.", "--dirty")] = False,
    both: Annotated[bool, _flag("Keep the code working with Scrapy too.", "--both")] = False,
) -> None:
    """Change a Scrapy project so that it runs on trawl, and list what to decide yourself."""
    from trawl.cli.move import move_command

    raise typer.Exit(move_command(project, writes=write, takes_uncommitted=dirty, is_for_both=both))


@_command("trawl check quotes.py", "trawl check shop.spiders:Books")
def check(
    spiders: Annotated[
        list[str], _argument("SPIDER", "FILE.py, MODULE or folder: all spiders in it. Add :CLASS for a single one.")
    ],
) -> None:
    """Find errors in spiders without running them: names, settings, URLs, annotations."""
    from trawl.cli.checks import check_command

    raise typer.Exit(check_command(spiders))


@_command("trawl list", "trawl list spiders", name="list")
def list_spiders(
    places: Annotated[list[str], _argument("PLACE", "Files or folders, including subfolders.", show_default=False)] = [
        "."
    ],
) -> None:
    """List the spiders in files and folders without running them: name, and target for `trawl crawl`."""
    from trawl.cli.list import list_command

    raise typer.Exit(list_command(places))


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        version()
        raise typer.Exit()


@app.callback()
def before_the_command(
    has_version: Annotated[
        bool, _flag("Show the versions and exit.", "--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Process the options that precede a command."""


@_command("trawl help summary", "trawl help crawl", name="help")
def explain(topic: Annotated[str | None, _argument("TOPIC", "summary, or a command.")] = None) -> None:
    """Explain the words of the summary, or show the help of a command."""
    if topic != "summary":
        raise typer.Exit(main([*([topic] if topic else []), "--help"]))
    from trawl.cli.summary import summary_help

    typer.echo(summary_help())


@_command("trawl version", "trawl version --browser")
def version(browser: Annotated[bool, _flag("Show the Chromium that renders pages.", "--browser")] = False) -> None:
    """Show the versions of trawl, Python and Trio, and the number of compiled modules if there are any."""
    import platform
    from importlib.machinery import EXTENSION_SUFFIXES
    from pathlib import Path

    import trio

    compiled = len([*Path(__file__).parents[1].rglob(f"*{EXTENSION_SUFFIXES[0]}")])
    typer.echo(
        f"trawl {__version__} (Python {platform.python_version()}, Trio {trio.__version__}, {platform.system()}"
        f"{f', {compiled} modules compiled' if compiled else ''})"
    )
    if browser:
        from trawl.cli.fetch import browser_version

        typer.echo(browser_version())


@_command(
    "trawl simulate quotes.py --web web.toml",
    "trawl simulate shop.py --web a.toml -s DOWNLOAD_DELAY=1 -s DOWNLOAD_DELAY=2",
    "trawl simulate quotes.py --web web.toml --plot rates.svg",
    "trawl simulate quotes.py --web web.toml --timeline --svg sends.svg",
    "trawl simulate quotes.py --web crawl.warc.gz -s CONCURRENT_REQUESTS=8",
)
def simulate(
    spider: SpiderArgument,
    web: Annotated[
        str, _option("FILE", "The simulated web: hosts, latencies, limits, pages (.toml), or a recording (.warc.gz).")
    ],
    setting: Annotated[
        list[str],
        _option(
            "NAME=VALUE",
            "Set a setting. Repeatable; a repeated name starts another group, and the groups are compared.",
            "-s",
            "--set",
        ),
    ] = [],
    arguments: ArgumentOption = [],
    svg: Annotated[
        str | None, _option("OUT", "Draw the sends into this file; with several groups OUT-1.svg and so on.")
    ] = None,
    plot: Annotated[
        str | None,
        _option(
            "OUT",
            "Draw the rate over time and the servers' limits into this file, .svg or .png; with several groups "
            "OUT-1.svg and so on.",
        ),
    ] = None,
    timeline: Annotated[bool, _flag("Print every send.", "--timeline")] = False,
    seed: Annotated[int, _option("N", "The seed of all random numbers.")] = 0,
) -> None:
    """Run a spider against a simulated web in virtual time: duration, speed, limits. Writes no feed."""
    from trawl.cli.simulate import simulate_command

    pictures = {"svg": svg, "plot": plot}
    raise typer.Exit(simulate_command(spider, web, setting, arguments, has_timeline=timeline, seed=seed, **pictures))


@_command("trawl plan quotes.py --urls urls.txt", "trawl plan quotes.py --job jobs/quotes -s CONCURRENT_REQUESTS=32")
def plan(
    spider: SpiderArgument,
    urls: Annotated[str | None, _option("FILE", "The URLs of the crawl, one per line; - is standard input.")] = None,
    job: Annotated[str | None, _option("DIR|URL", "Plan the pending requests of this job.")] = None,
    setting: Annotated[
        list[str],
        _option(
            "NAME=VALUE",
            "Show the effect of another setting. Repeatable; a repeated name starts another group.",
            "-s",
            "--set",
        ),
    ] = [],
    web: Annotated[str | None, _option("FILE", "Latencies and limits of the servers, as in `trawl simulate`.")] = None,
    latency: Annotated[float, _option("SECONDS", "The latency of hosts that are not in --web.", min=0.0)] = 0.5,
    seed: Annotated[int, _option("N", "The seed of all random numbers.")] = 0,
) -> None:
    """Estimate the end of a crawl and of each host before it starts, on the virtual clock. Sends nothing."""
    from trawl.cli.simulate import plan_command

    raise typer.Exit(plan_command(spider, setting, urls=urls, job=job, web=web, latency=latency, seed=seed))


@_command("trawl receipt --check crawl.warc.gz", "trawl receipt --check access.log -o receipt.html")
def receipt(
    check: Annotated[
        list[str],
        _option(
            "WARC|LOG",
            "The sends: a WARC file, or a log in the combined format or as JSON lines. Repeatable.",
            "--check",
        ),
    ],
    output: Annotated[str | None, _option("FILE", "Write the receipt to this .json or .html file too.", "-o")] = None,
) -> None:
    """Check the crawl of any program: its rates, robots.txt, Crawl-delay and Retry-After. Status 1 on violations."""
    from trawl.cli.simulate import receipt_command

    raise typer.Exit(receipt_command(check, output))


@_command(
    "trawl fetch http://127.0.0.1:8765/ > page.html",
    "trawl fetch http://127.0.0.1:8765/ --headers",
    "trawl fetch http://127.0.0.1:8765/scroll --browser --requests",
    "trawl fetch https://shop.example/ --spider shop.py -s ROBOTSTXT_OBEY=false",
)
def fetch(
    context: typer.Context,
    url: UrlArgument,
    headers: Annotated[bool, _flag("Print headers, redirects and delays instead of the body.", "--headers")] = False,
    no_redirect: Annotated[bool, _flag("Do not follow redirects.", "--no-redirect")] = False,
    browser: Annotated[bool, _flag("Render the page in Chromium.", "--browser")] = False,
    requests: Annotated[
        bool, _flag("With --browser: print the requests of the page instead of the body.", "--requests")
    ] = False,
    screenshot: Annotated[str | None, _option("FILE", "With --browser: write a picture of the page (PNG).")] = None,
    spider: SpiderOption = None,
    arguments: ArgumentOption = [],
    settings: SettingOption = [],
    waits: WaitOption = False,
    log_level: LevelOption = None,
) -> None:
    """Fetch a URL as a crawl would, with robots.txt and throttling, and print the body."""
    from trawl.cli.fetch import fetch_command

    if (requests or screenshot is not None) and not browser:
        raise typer.BadParameter("use it with --browser", param_hint="--requests" if requests else "--screenshot")
    meta: dict[str, Any] = {"dont_redirect": True} if no_redirect else {}
    if browser:
        meta["browser"] = {"screenshot": True} if screenshot is not None else True
    given: dict[str, Any] = {"has_headers": headers, "has_requests": requests, "screenshot": screenshot, "meta": meta}
    raise typer.Exit(fetch_command(url, *_crawling(context), **given))


@_command(
    "trawl parse http://127.0.0.1:8765/ --spider quotes.py",
    "trawl parse http://127.0.0.1:8765/ --spider quotes.py --callback parse",
    "trawl parse http://127.0.0.1:8765/ --spider quotes.py --depth 2",
    "trawl parse https://shop.example/1 --spider shop.py --cb-kwargs '{\"n\": 1}'",
)
def parse(
    context: typer.Context,
    url: UrlArgument,
    spider: Annotated[str, _option("SPIDER", _SPIDER_HELP, "--spider")],
    callback: Annotated[str | None, _option("NAME", "The callback; by default the callback for start URLs.")] = None,
    depth: Annotated[int, _option("N", "Follow requests to this depth, in pages.", min=1)] = 1,
    meta: Annotated[str | None, _option("JSON", "The request's meta.")] = None,
    cb_kwargs: Annotated[str | None, _option("JSON", "The callback's keyword arguments.")] = None,
    arguments: ArgumentOption = [],
    settings: SettingOption = [],
    waits: WaitOption = False,
    log_level: LevelOption = None,
) -> None:
    """Fetch a URL, run a spider's callback on it, and print its items and requests."""
    from trawl.cli.fetch import parse_command

    given: dict[str, Any] = {"callback": callback, "depth": depth, "meta": meta, "cb_kwargs": cb_kwargs}
    raise typer.Exit(parse_command(url, *_crawling(context), **given))


@_command(
    "trawl shell http://127.0.0.1:8765/",
    "trawl shell --spider shop.py -s DOWNLOAD_DELAY=3",
    "trawl shell http://127.0.0.1:8765/ -c 'response.css(\"h1\").getall()'",
)
def shell(
    context: typer.Context,
    url: Annotated[str | None, _argument("URL|FILE", "The page to fetch first.")] = None,
    code: Annotated[str | None, _option("CODE", "Run this code, print its value, exit.", "-c")] = None,
    spider: SpiderOption = None,
    arguments: ArgumentOption = [],
    settings: SettingOption = [],
    browser: Annotated[bool, _flag("Render the first page in Chromium.", "--browser")] = False,
    waits: WaitOption = False,
    log_level: LevelOption = None,
) -> None:
    """Look at pages interactively: response, fetch(url), view(), await; in IPython if it is installed."""
    from trawl.cli.shell import shell_command

    raise typer.Exit(shell_command(url, *_crawling(context), code=code, is_rendered=browser))


@_command("trawl demo", "trawl demo --port 0 --verbose")
def demo(
    port: Annotated[int, _option("N", "The port to listen on; 0 for a free one.", min=0, max=65_535)] = 8765,
    bind: Annotated[
        str, _option("ADDRESS", "The address to listen on; by default, only for this machine.")
    ] = "127.0.0.1",
    verbose: Annotated[bool, _flag("Print each request to standard error.", "--verbose", "-v")] = False,
) -> None:
    """Serve a site of quotes and books on this machine to try spiders on, until Ctrl-C."""
    from trawl.cli.demo import demo_command

    demo_command(bind, port, is_verbose=verbose)


new: typer.Typer = typer.Typer(
    name="new",
    help="Create a project or a spider, with a test on a virtual clock.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples("trawl new project books", "trawl new spider quotes 127.0.0.1:8765"),
)
app.add_typer(new)


@_command("trawl new project books", "trawl new project .", of=new)
def project(directory: Annotated[str, _argument("DIR", "The project's folder. Existing files stay.")]) -> None:
    """Write a project that runs: settings, a first spider, its test."""
    from trawl.cli.new import new_project

    new_project(directory)


@_command(
    "trawl new spider quotes 127.0.0.1:8765",
    "trawl new spider books 127.0.0.1:8765 -t crawl",
    "trawl new spider news news.example -t sitemap",
    of=new,
)
def spider(
    name: Annotated[str, _argument("NAME", "The name of the spider and of its file.")],
    domain: Annotated[str, _argument("DOMAIN", "The domain to crawl.")],
    template: Annotated[str, _option("KIND", "basic, crawl (rules) or sitemap.", "-t", "--template")] = "basic",
) -> None:
    """Write a spider and its test.

    They go into spiders/ and tests/ if these exist.
    """
    from trawl.cli.new import new_spider

    new_spider(name, domain, template)


@_command(
    "trawl completion bash >> ~/.bashrc",
    "trawl completion zsh >> ~/.zshrc",
    "trawl completion fish > ~/.config/fish/completions/trawl.fish",
)
def completion(shell: Annotated[str, _argument("SHELL", f"One of {', '.join(SHELLS)}.")]) -> None:
    """Print a script that completes trawl's commands and options in a shell."""
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        typer.echo(f"trawl: no completion for {shell!r}; choose one of {', '.join(SHELLS)}", err=True)
        raise typer.Exit(USAGE)
    typer.echo(get_completion_script(prog_name="trawl", complete_var="_TRAWL_COMPLETE", shell=shell))


def _crawling(context: typer.Context, **others: object) -> tuple[CrawlOptions, CrawlWith, Console]:
    """Return the options of a command, the function that runs its crawl, and standard error.

    The parameters of the command have the names of the options. ``--spider`` names the only target.
    """
    import attrs

    from trawl._run import crawl_with
    from trawl.cli.crawl_entry import CrawlOptions, LogOptions
    from trawl.cli.view import stderr_console

    typed: dict[str, Any] = {**context.params, **others}
    if typed.get("spider") is not None:
        typed["targets"] = [typed["spider"]]
    typed["log"] = LogOptions(*[typed.get(name) for name in ("log_level", "log_file", "log_format")])
    options = CrawlOptions(**{name: typed[name] for name in attrs.fields_dict(CrawlOptions) if name in typed})
    given: Any = context.obj  # the argument of main()
    return options, cast("CrawlWith", given or crawl_with), stderr_console()


@cache  # reading the annotations of all commands takes 30 ms
def _parser() -> Any:
    return get_command(app)


def main(arguments: Sequence[str] | None = None, *, crawl_with: CrawlWith | None = None) -> int:
    """Run the command; see :func:`trawl.cli.main`."""
    if os.environ.get("_TRAWL_COMPLETE"):
        from typer._completion_classes import completion_init

        completion_init()
    try:
        _parser()(None if arguments is None else list(arguments), obj=crawl_with, prog_name="trawl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK if end.code is None else FAILED
    return OK
