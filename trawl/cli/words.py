"""The words of ``trawl`` that try things out or begin something: fetch, parse, shell, new, completion.

What a word does is imported when it is called, as in :mod:`trawl.cli.app`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from trawl.cli.exits import OK, USAGE
from trawl.cli.group import STARTING, TRAWL, TRYING, examples

if TYPE_CHECKING:
    from trawl.cli.view import CrawlWith
    from trawl.cli.visiting import Visit

__all__ = ["ArgumentOption", "SettingOption", "add_words", "chosen_crawl"]

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

    visit = _visit(spider, argument, setting, log_level, waits=wait)
    crawl = chosen_crawl(context.obj)
    status = fetch_command(url, visit, crawl, stderr_console(), has_headers=headers, follows=not no_redirect)
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

    visit = _visit(spider, argument, setting, log_level, waits=wait)
    status = parse_command(
        url,
        visit,
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

    visit = _visit(spider, argument, setting, log_level, waits=wait)
    raise typer.Exit(shell_command(url, visit, chosen_crawl(context.obj), stderr_console(), code=code))


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
) -> Visit:
    from trawl.cli.visiting import Visit  # noqa: PLC0415

    return Visit(target=spider, arguments=tuple(arguments), settings=tuple(settings), log_level=log_level, waits=waits)


def chosen_crawl(given: Any) -> CrawlWith:
    """What runs a crawl: what ``main`` was given, or the real engine, which ``--help`` does not need."""
    from trawl._run import crawl_with  # noqa: PLC0415

    return cast("CrawlWith", given or crawl_with)
