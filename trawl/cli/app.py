"""The command ``trawl``: its words and options."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from typing import Annotated, cast

import trio
import typer
from rich.console import Console

from trawl import __version__
from trawl.cli.exits import FAILED, OK, USAGE
from trawl.cli.load import load_spider
from trawl.cli.run import Order, crawl_command, stderr_console
from trawl.cli.show import print_all, print_one
from trawl.cli.simulate import simulate
from trawl.cli.view import CrawlWith
from trawl.errors import TrawlError, UsageError
from trawl.observe import printable
from trawl.settings import ambient, assignments, load, of_spider

__all__ = ["app", "main"]

app: typer.Typer = typer.Typer(
    name="trawl",
    help="A polite, fast web crawler.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SettingOption = Annotated[
    list[str],
    typer.Option("-s", "--set", metavar="NAME=VALUE", help="A setting; JSON where the value is JSON. Repeatable."),
]


@app.command()
def crawl(
    context: typer.Context,
    spider: Annotated[
        str, typer.Argument(metavar="SPIDER", help="FILE.py or MODULE; with :CLASS where there are several.")
    ],
    argument: Annotated[
        list[str], typer.Option("-a", metavar="NAME=VALUE", help="An argument for the spider. Repeatable.")
    ] = [],  # noqa: B006  # typer's way to say "none"
    setting: SettingOption = [],  # noqa: B006
    append: Annotated[
        list[str],
        typer.Option(
            "-o",
            metavar="FEED",
            help="Append items to this file (.jsonl .json .csv .xml; FEED:FORMAT says otherwise; - is standard output)."
            " Replaces the setting FEEDS. Repeatable.",
        ),
    ] = [],  # noqa: B006
    overwrite: Annotated[
        list[str], typer.Option("-O", metavar="FEED", help="The same, but an existing file is overwritten. Repeatable.")
    ] = [],  # noqa: B006
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
    order = Order(
        target=spider,
        arguments=tuple(argument),
        settings=tuple(setting),
        appended=tuple(append),
        overwritten=tuple(overwrite),
        log_level=log_level,
        log_file=log_file,
        is_quiet=quiet,
    )
    raise typer.Exit(crawl_command(order, context.obj or _real_crawl(), stderr_console()))


@app.command()
def settings(
    spider: Annotated[
        str | None,
        typer.Argument(metavar="[SPIDER]", help="Count this spider's custom_settings in.", show_default=False),
    ] = None,
    get: Annotated[str | None, typer.Option(metavar="NAME", help="Print the value of this setting only.")] = None,
    setting: SettingOption = [],  # noqa: B006
) -> None:
    """Show every setting, its value here, and where the value came from."""
    console = Console(force_terminal=sys.stdout.isatty(), highlight=False, markup=False, emoji=False)
    try:
        custom = of_spider(load_spider(spider) if spider else None)
        values = load(*ambient(), custom, assignments(setting))
        if get is not None:
            print_one(values, get, console)
        else:
            print_all(values, console)
    except TrawlError as error:
        stderr_console().print(f"trawl: {printable(str(error))}", style="red", soft_wrap=True)
        raise typer.Exit(USAGE if isinstance(error, UsageError) else FAILED) from None


@app.command()
def version() -> None:
    """Show the versions of trawl and of what it runs on."""
    typer.echo(
        f"trawl {__version__} (Python {platform.python_version()}, Trio {trio.__version__}, {platform.system()})"
    )


app.command()(simulate)


def main(arguments: Sequence[str] | None = None, *, crawl_with: CrawlWith | None = None) -> int:
    """Run the command; the exit status.

    Args:
        arguments: What was typed after ``trawl``; the process's own if None.
        crawl_with: Runs the crawl in place of the real engine, in tests.
    """
    try:
        app(None if arguments is None else list(arguments), obj=crawl_with, prog_name="trawl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK if end.code is None else FAILED
    return OK


def _real_crawl() -> CrawlWith:
    from trawl.crawl import crawl_with  # noqa: PLC0415  # `trawl version` and `--help` need no engine

    return cast("CrawlWith", crawl_with)
