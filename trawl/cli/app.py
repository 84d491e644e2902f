"""The command ``trawl``: its words and options.

What a word does is imported when it is called: ``trawl --help`` waits for no part of a crawl.

The words of ``trawl`` that try things out or begin something: fetch, parse, shell, new, completion.

What a word does is imported when it is called, as in :mod:`trawl.cli.app`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer._completion_classes import completion_init

from trawl import __version__
from trawl.cli import FAILED, OK, USAGE
from trawl.cli.group import CRAWLING, STARTING, TRAWL, TRYING, Group, examples

if TYPE_CHECKING:
    from trawl.cli.single_run import SingleRunOptions
    from trawl.cli.view import CrawlWith

__all__ = ["ArgumentOption", "SettingOption", "add_words", "app", "chosen_crawl", "main"]

SettingOption = Annotated[
    list[str],
    typer.Option("-s", "--set", metavar="NAME=VALUE", help="A setting; JSON where the value is JSON. Repeatable."),
]

ArgumentOption = Annotated[
    list[str], typer.Option("-a", metavar="NAME=VALUE", help="An argument for the spider. Repeatable.")
]

SpiderOption = Annotated[
    str | None,
    typer.Option("--spider", metavar="SPIDER", help="Whose settings count: FILE.py or MODULE, with :CLASS."),
]

LevelOption = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="DEBUG, INFO, WARNING (as it is), ERROR or CRITICAL.")
]

WaitOption = Annotated[
    bool,
    typer.Option("--wait", help="Send it again while it is refused or fails, as a crawl does, instead of once."),
]

UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="What to fetch.")]

SHELLS = ("bash", "zsh", "fish", "powershell")


def add_words(app: typer.Typer) -> None:
    """Give ``app`` the words of this module."""
    app.command(
        rich_help_panel=TRYING,
        epilog=examples(
            "trawl fetch https://quotes.toscrape.com/ > page.html",
            "trawl fetch https://quotes.toscrape.com/ --headers",
            "trawl fetch https://shop.example/ --spider shop.py -s ROBOTSTXT_OBEY=false",
        ),
    )(fetch)
    app.command(
        rich_help_panel=TRYING,
        epilog=examples(
            "trawl parse https://quotes.toscrape.com/ --spider quotes.py",
            "trawl parse https://quotes.toscrape.com/ --spider quotes.py --callback parse",
            "trawl parse https://quotes.toscrape.com/ --spider quotes.py --depth 2",
            "trawl parse https://shop.example/1 --spider shop.py --cb-kwargs '{\"n\": 1}'",
        ),
    )(parse)
    app.command(
        rich_help_panel=TRYING,
        epilog=examples(
            "trawl shell https://quotes.toscrape.com/",
            "trawl shell --spider shop.py -s DOWNLOAD_DELAY=3",
            "trawl shell https://quotes.toscrape.com/ -c 'response.css(\"h1\").getall()'",
        ),
    )(shell)
    app.add_typer(_new(), rich_help_panel=STARTING)
    app.command(
        rich_help_panel=TRAWL,
        epilog=examples(
            "trawl completion bash >> ~/.bashrc",
            "trawl completion zsh >> ~/.zshrc",
            "trawl completion fish > ~/.config/fish/completions/trawl.fish",
        ),
    )(completion)


def fetch(
    context: typer.Context,
    url: UrlArgument,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print headers, redirects and what throttled it in place of the body.")
    ] = False,
    no_redirect: Annotated[bool, typer.Option("--no-redirect", help="Do not follow redirects.")] = False,
    spider: SpiderOption = None,
    argument: ArgumentOption = [],  # noqa: B006  # typer's way to say "none"
    setting: SettingOption = [],  # noqa: B006
    wait: WaitOption = False,
    log_level: LevelOption = None,
) -> None:
    """Fetch a URL as a crawl would, robots.txt and throttle included; the body goes to standard output."""
    from trawl.cli.fetch import fetch_command  # noqa: PLC0415
    from trawl.cli.run import stderr_console  # noqa: PLC0415

    options = _visit(spider, argument, setting, log_level, waits=wait)
    crawl = chosen_crawl(context.obj)
    status = fetch_command(url, options, crawl, stderr_console(), has_headers=headers, follows=not no_redirect)
    raise typer.Exit(status)


def parse(
    context: typer.Context,
    url: UrlArgument,
    spider: Annotated[
        str,
        typer.Option("--spider", metavar="SPIDER", help="Its name, FILE.py or MODULE; :CLASS where there are several."),
    ],
    callback: Annotated[
        str | None, typer.Option(metavar="NAME", help="The method that gets the page; else what start URLs go to.")
    ] = None,
    depth: Annotated[int, typer.Option(min=1, metavar="N", help="Follow requests, so many pages deep.")] = 1,
    meta: Annotated[str | None, typer.Option(metavar="JSON", help="The request's meta.")] = None,
    cb_kwargs: Annotated[
        str | None, typer.Option(metavar="JSON", help="What the callback is given besides the page.")
    ] = None,
    argument: ArgumentOption = [],  # noqa: B006
    setting: SettingOption = [],  # noqa: B006
    wait: WaitOption = False,
    log_level: LevelOption = None,
) -> None:
    """Fetch a URL, give it to a callback of a spider, and show the items and requests that come of it."""
    from trawl.cli.parse import parse_command  # noqa: PLC0415
    from trawl.cli.run import stderr_console  # noqa: PLC0415

    options = _visit(spider, argument, setting, log_level, waits=wait)
    status = parse_command(
        url,
        options,
        chosen_crawl(context.obj),
        stderr_console(),
        callback=callback,
        depth=depth,
        meta=meta,
        cb_kwargs=cb_kwargs,
    )
    raise typer.Exit(status)


def shell(
    context: typer.Context,
    url: Annotated[str | None, typer.Argument(metavar="URL|FILE", help="What to look at first.")] = None,
    code: Annotated[
        str | None, typer.Option("-c", metavar="CODE", help="Run this, print its value, and leave.")
    ] = None,
    spider: SpiderOption = None,
    argument: ArgumentOption = [],  # noqa: B006
    setting: SettingOption = [],  # noqa: B006
    wait: WaitOption = False,
    log_level: LevelOption = None,
) -> None:
    """Look at pages interactively: response, fetch(url), view(), await; in IPython where that is installed."""
    from trawl.cli.run import stderr_console  # noqa: PLC0415
    from trawl.cli.shell import shell_command  # noqa: PLC0415

    options = _visit(spider, argument, setting, log_level, waits=wait)
    raise typer.Exit(shell_command(url, options, chosen_crawl(context.obj), stderr_console(), code=code))


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"One of {', '.join(SHELLS)}.")],
) -> None:
    """Print what makes a shell complete trawl's words and options."""
    from typer._completion_shared import get_completion_script  # noqa: PLC0415

    if shell not in SHELLS:
        typer.echo(f"trawl: no completion for {shell!r}: there is one for {', '.join(SHELLS)}", err=True)
        raise typer.Exit(USAGE)
    typer.echo(get_completion_script(prog_name="trawl", complete_var="_TRAWL_COMPLETE", shell=shell))
    raise typer.Exit(OK)


def _new() -> typer.Typer:
    app = typer.Typer(
        name="new",
        help="Begin a project or a spider, with a test on the virtual clock.",
        no_args_is_help=True,
        rich_markup_mode=None,
        epilog=examples("trawl new project books", "trawl new spider quotes quotes.toscrape.com"),
    )

    @app.command(epilog=examples("trawl new project books", "trawl new project ."))
    def project(
        directory: Annotated[str, typer.Argument(metavar="DIR", help="Where; nothing in it is overwritten.")],
    ) -> None:
        """Write a project: settings, a first spider, its test. It runs as it is."""
        from trawl.cli.new import new_project  # noqa: PLC0415

        raise typer.Exit(new_project(directory))

    @app.command(
        epilog=examples(
            "trawl new spider quotes quotes.toscrape.com",
            "trawl new spider books books.toscrape.com -t crawl",
            "trawl new spider news news.example -t sitemap",
        )
    )
    def spider(
        name: Annotated[str, typer.Argument(metavar="NAME", help="Of the spider and its file.")],
        domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="What it crawls.")],
        template: Annotated[
            str, typer.Option("-t", "--template", metavar="KIND", help="basic, crawl (rules) or sitemap.")
        ] = "basic",
    ) -> None:
        """Write a spider and its test.

        They go into spiders/ and tests/ where these are there.
        """
        from trawl.cli.new import new_spider  # noqa: PLC0415

        raise typer.Exit(new_spider(name, domain, template))

    return app


def _visit(
    spider: str | None, arguments: list[str], settings: list[str], log_level: str | None, *, waits: bool
) -> SingleRunOptions:
    from trawl.cli.single_run import SingleRunOptions  # noqa: PLC0415

    return SingleRunOptions(
        target=spider, arguments=tuple(arguments), settings=tuple(settings), log_level=log_level, waits=waits
    )


def chosen_crawl(given: Any) -> CrawlWith:
    """What runs a crawl: what ``main`` was given, or the real engine, which ``--help`` does not need."""
    from trawl._run import crawl_with  # noqa: PLC0415

    return cast("CrawlWith", given or crawl_with)


app: typer.Typer = typer.Typer(
    name="trawl",
    cls=Group,
    help="A polite, fast web crawler.",
    epilog=examples(
        "trawl new project books         begin",
        "trawl crawl spider.py -O items.jsonl",
        "trawl COMMAND --help            more about each, with examples",
    ),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(
    rich_help_panel=CRAWLING,
    epilog=examples(
        "trawl crawl quotes.py -O quotes.jsonl",
        "trawl crawl quotes.py -a tag=love -s DOWNLOAD_DELAY=2",
        "trawl crawl shop.spiders:Books -o books.csv --job jobs/books",
        "trawl crawl quotes.py -O -:csv --quiet > quotes.csv",
    ),
)
def crawl(
    context: typer.Context,
    spider: Annotated[
        str, typer.Argument(metavar="SPIDER", help="Its name, FILE.py or MODULE; :CLASS where there are several.")
    ],
    argument: ArgumentOption = [],  # noqa: B006  # typer's way to say "none"
    setting: SettingOption = [],  # noqa: B006
    append: Annotated[
        list[str],
        typer.Option(
            "-o",
            metavar="FEED",
            help="Append items to this file (.jsonl .json .csv .xml .sqlite .parquet, with .gz or .zst after it;"
            " FEED:FORMAT says otherwise; - is standard output). Replaces the setting FEEDS. Repeatable.",
        ),
    ] = [],  # noqa: B006
    overwrite: Annotated[
        list[str], typer.Option("-O", metavar="FEED", help="The same, but an existing file is overwritten. Repeatable.")
    ] = [],  # noqa: B006
    job: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Keep all that the crawl needs to go on later in this directory, or go on from it."
        ),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="DEBUG, INFO, WARNING, ERROR or CRITICAL.")
    ] = None,
    log_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the log there in place of standard error.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No panel, no progress, no summary; only warnings.")
    ] = False,
) -> None:
    """Run a spider."""
    from trawl.cli.run import CrawlOptions, crawl_command, stderr_console  # noqa: PLC0415

    options = CrawlOptions(
        target=spider,
        arguments=tuple(argument),
        settings=tuple(setting),
        appended=tuple(append),
        overwritten=tuple(overwrite),
        job=job,
        log_level=log_level,
        log_file=log_file,
        is_quiet=quiet,
    )
    raise typer.Exit(crawl_command(options, chosen_crawl(context.obj), stderr_console()))


@app.command(
    rich_help_panel=CRAWLING,
    epilog=examples(
        "trawl job jobs/books",
        "trawl job jobs/books --requeue-failed",
        "trawl job jobs/books --export-pending > pending.jsonl",
    ),
)
def job(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A directory that --job was given.")],
    requeue_failed: Annotated[
        bool, typer.Option("--requeue-failed", help="Queue the requests again that ended in an error.")
    ] = False,
    export_pending: Annotated[
        bool, typer.Option("--export-pending", help="Print the pending requests, a line of JSON each.")
    ] = False,
) -> None:
    """Show how far a job is: its state, what is pending and where, what failed, how far its feeds are."""
    from trawl.cli.job import job_command  # noqa: PLC0415

    raise typer.Exit(job_command(directory, requeues=requeue_failed, exports=export_pending))


@app.command(
    rich_help_panel=TRAWL,
    epilog=examples(
        "trawl settings",
        "trawl settings quotes.py",
        "trawl settings --get DOWNLOAD_DELAY -s DOWNLOAD_DELAY=2",
        "trawl settings --move shop/settings.py >> pyproject.toml",
    ),
)
def settings(
    spider: Annotated[
        str | None,
        typer.Argument(metavar="SPIDER", help="Count this spider's custom_settings in.", show_default=False),
    ] = None,
    get: Annotated[str | None, typer.Option(metavar="NAME", help="Print the value of this setting only.")] = None,
    setting: SettingOption = [],  # noqa: B006
    move: Annotated[
        str | None,
        typer.Option(metavar="FILE.py", help="Print what Scrapy's settings.py says as pyproject.toml is to say it."),
    ] = None,
) -> None:
    """Show every setting, its value here, and where the value came from."""
    from trawl.cli.settings import move_command, settings_command  # noqa: PLC0415

    if move is not None:
        raise typer.Exit(move_command(move))

    raise typer.Exit(settings_command(spider, get, setting))


@app.command(
    rich_help_panel=TRYING,
    epilog=examples(
        "trawl check quotes.py",
        "trawl check shop.spiders:Books",
    ),
)
def check(
    spiders: Annotated[
        list[str],
        typer.Argument(metavar="SPIDER", help="FILE.py, MODULE or folder, all spiders in it; or one with :CLASS."),
    ],
) -> None:
    """Say what is wrong with spiders before they crawl: names, settings, URLs, annotations. Sends nothing."""
    from trawl.cli.check import check_command  # noqa: PLC0415

    raise typer.Exit(check_command(spiders))


@app.command(
    "list",
    rich_help_panel=TRYING,
    epilog=examples(
        "trawl list",
        "trawl list spiders",
    ),
)
def list_spiders(
    places: Annotated[
        list[str],
        typer.Argument(metavar="PLACE", help="Files, or folders and all below them.", show_default=False),
    ] = ["."],  # noqa: B006
) -> None:
    """List the spiders in files and folders: the name of each, and what `trawl crawl` takes for it. Runs nothing."""
    from trawl.cli.list import list_command  # noqa: PLC0415

    raise typer.Exit(list_command(places))


@app.command(
    rich_help_panel=TRAWL,
    epilog=examples(
        "trawl version",
    ),
)
def version() -> None:
    """Show the versions of trawl and of what it runs on."""
    import trio  # noqa: PLC0415

    typer.echo(
        f"trawl {__version__} (Python {platform.python_version()}, Trio {trio.__version__}, {platform.system()})"
    )


@app.command(
    rich_help_panel=TRYING,
    epilog=examples(
        "trawl simulate quotes.py --web web.toml",
        "trawl simulate shop.py --web a.toml -s DOWNLOAD_DELAY=1 -s DOWNLOAD_DELAY=2",
        "trawl simulate quotes.py --web web.toml --timeline --svg sends.svg",
    ),
)
def simulate(
    spider: Annotated[
        str, typer.Argument(metavar="SPIDER", help="Its name, FILE.py or MODULE; :CLASS where there are several.")
    ],
    web: Annotated[str, typer.Option(metavar="FILE.toml", help="The web to crawl: hosts, latencies, limits, pages.")],
    setting: Annotated[
        list[str],
        typer.Option(
            "-s",
            "--set",
            metavar="NAME=VALUE",
            help="A setting. Repeatable; a name that comes again begins another group, and the groups are compared.",
        ),
    ] = [],  # noqa: B006  # typer's way to say "none"
    argument: ArgumentOption = [],  # noqa: B006
    svg: Annotated[
        str | None, typer.Option(metavar="OUT", help="Draw the sends there; with several groups OUT-1.svg and so on.")
    ] = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Print every send.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="For everything that is drawn.")] = 0,
) -> None:
    """Run a spider against a simulated web in virtual time: how long, how fast, limited by what. No feed is written."""
    from trawl.cli.simulate import simulate_command  # noqa: PLC0415

    raise typer.Exit(simulate_command(spider, web, setting, argument, svg=svg, has_timeline=timeline, seed=seed))


add_words(app)


def main(arguments: Sequence[str] | None = None, *, crawl_with: CrawlWith | None = None) -> int:
    """Run the command; the exit status.

    Args:
        arguments: What was typed after ``trawl``; the process's own if None.
        crawl_with: Runs the crawl in place of the real engine, in tests.
    """
    if os.environ.get("_TRAWL_COMPLETE"):
        completion_init()
    try:
        app(None if arguments is None else list(arguments), obj=crawl_with, prog_name="trawl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK if end.code is None else FAILED
    return OK
