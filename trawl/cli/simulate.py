"""The commands ``trawl simulate``, ``trawl plan`` and ``trawl receipt``.

Length: ``simulate`` and ``plan`` share the simulations, their errors and their tables.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trawl.cli import FAILED, OK, exit_status
from trawl.cli.job import store_of
from trawl.cli.load import load_spider, spider_arguments
from trawl.cli.logs import Logs
from trawl.cli.summary import MAX_SCOPES, scopes_table, waited_words
from trawl.cli.view import add_rest, plain_table, stderr_console, stdout_console
from trawl.errors import TrawlError, UsageError
from trawl.http import Request, host_scope
from trawl.observe import (
    ObserveSettings,
    came_to_nothing,
    clipped,
    counted,
    duration_words,
    number_words,
    printable,
    rate_words,
)
from trawl.settings import Layer, ambient, assignments, load, of_spider
from trawl.spiders import Spider
from trawl.testing import receipt as receipts
from trawl.testing.clock import NotSimulated, Stuck
from trawl.testing.rates import Rate, check_picture_name, window_for
from trawl.testing.sends import REFUSALS
from trawl.testing.simulation import Simulation, simulate
from trawl.testing.warc import HostFit, Recording
from trawl.testing.web import SimulatedWeb
from trawl.testing.web_file import load_web
from trawl.throttling import limit_words
from trawl.tracebacks import describe_error

__all__ = [
    "comparison_table",
    "figures",
    "fit_words",
    "groups_of",
    "plan_command",
    "receipt_command",
    "simulate_command",
]

_BETWEEN_PAIRS = re.compile(r"\s+(?=[A-Z][A-Z0-9_]*=)")


def figures(simulation: Simulation, settings: str = "") -> dict[str, str]:
    """Return a row of the comparison table: the cells of one simulation by column. ``settings`` is the row's label."""
    limited: Counter[str] = Counter()
    for report in simulation.report:
        for limit, seconds in report.limited.items():
            limited[limit] += seconds  # type: ignore[assignment]
    sends, elapsed = simulation.sends, simulation.elapsed
    return {
        "settings": settings,
        "time": duration_words(elapsed),
        "sends": number_words(len(sends)),
        "rate": rate_words(len(sends) / elapsed if elapsed else 0.0),
        "items": number_words(len(simulation.items)),
        "429s": number_words(sum(send.status in REFUSALS for send in sends)),
        "no answer": number_words(sum(send.status is None for send in sends)),
        "at once": number_words(simulation.most_in_flight()),
        "waited": waited_words((limit, seconds) for limit, seconds in limited.most_common(2) if seconds > 0),
        "ended": simulation.reason,
    }


def groups_of(texts: Iterable[str]) -> list[tuple[str, ...]]:
    """Split the values of ``--set`` into groups to compare.

    A repeated name starts the next group: ``A=1 B=2 A=3`` makes the groups ``A=1 B=2`` and ``A=3``. One value with
    several settings, ``"A=1 B=2"``, is always a separate group. Without values there is one empty group.
    """
    groups: list[list[str]] = []
    names: set[str] = set()
    is_open = False
    for text in texts:
        pairs = _BETWEEN_PAIRS.split(text.strip())
        fresh = {pair.partition("=")[0].strip() for pair in pairs}
        if not is_open or len(pairs) > 1 or fresh & names:
            groups.append([])
            names = set()
        groups[-1] += pairs
        names |= fresh
        is_open = len(pairs) == 1
    return [tuple(group) for group in groups] or [()]


logger: logging.Logger = logging.getLogger("trawl")

_FAILURES_CHARACTERS = 500


def simulate_command(
    target: str,
    web: str,
    settings: Sequence[str],
    arguments: Sequence[str],
    *,
    svg: str | None,
    plot: str | None,
    has_timeline: bool,
    seed: int,
) -> int:
    """Simulate a spider once per group of settings, and print a comparison. Returns the highest exit status."""

    def act() -> int:
        try:
            if plot is not None:
                check_picture_name(plot)
        except (ValueError, ImportError) as error:
            raise UsageError(f"--plot: {error}") from error
        groups = groups_of(settings)
        simulated_web = load_web(web)
        spider = load_spider(target)
        runs = _simulated(spider, spider, simulated_web, groups, spider_arguments(arguments), seed)
        if svg is not None:
            _draw(runs, svg, Simulation.to_svg)
        if plot is not None:
            _draw(runs, plot, Simulation.plot)
        if has_timeline:
            for _, simulation in runs:
                simulation.timeline()
        console = stdout_console()
        _print_tables(runs, console)
        if simulated_web.recording is not None:
            _print_recording(simulated_web.recording, runs, console)
        return _status(runs)

    return _guarded(act)


Runs: TypeAlias = Sequence[tuple[str, Simulation]]
"""The simulations of a command with their settings as labels."""


def _guarded(act: Callable[[], int]) -> int:
    """Run a simulating command. Prints errors of the simulation, and returns the exit status."""
    errors = stderr_console()
    with Logs(errors) as logs:
        try:
            logs.apply(load(Layer("--log-level", {"LOG_LEVEL": "WARNING"})).of(ObserveSettings))
            return act()
        except TrawlError:
            raise
        except (NotSimulated, Stuck) as error:
            errors.print(f"trawl: {printable(str(error))}", style="red", soft_wrap=True)
        except Exception as error:  # probably a bug, for example in the spider's constructor
            logger.critical("the simulation failed", exc_info=error)
    return FAILED


def _status(runs: Runs) -> int:
    """Print the errors of the spider, and return the exit status."""
    failures = [describe_error(error) for _, simulation in runs for error in simulation.errors]
    if failures:
        words = f"{counted(len(failures), 'error')} in the spider: {'; '.join(dict.fromkeys(failures))}"
        stderr_console().print(f"trawl: {clipped(printable(words), _FAILURES_CHARACTERS)}", style="red", soft_wrap=True)
    return max([FAILED if failures else OK, *(exit_status(simulation.reason) for _, simulation in runs)])


def _simulated(
    spider: type[Spider],
    of: type[Spider],
    web: SimulatedWeb,
    groups: Sequence[Sequence[str]],
    values: Mapping[str, str],
    seed: int,
    **fixed: object,
) -> Runs:
    """Run ``spider`` once per group of settings, which override the settings of the spider ``of``."""
    unwritten = Layer("simulate", {"FEEDS": {}, **fixed})
    around = (*ambient(spider=of), of_spider(of))
    warnings: list[str] = []
    loaded = [load(*around, assignments(group, "--set"), unwritten, tell=warnings.append) for group in groups]
    for warning in dict.fromkeys(warnings):
        logger.warning("%s", warning)
    simulations = [simulate(spider, web, settings, seed, errors="collect", **values) for settings in loaded]
    return [(" ".join(group) or "unchanged", each) for group, each in zip(groups, simulations, strict=True)]


def _draw(runs: Runs, out: str, draw: Callable[..., str]) -> None:
    path = Path(out)
    for number, (label, simulation) in enumerate(runs, 1):
        place = path if len(runs) == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        try:
            draw(simulation, place, title=f"{simulation.title}: {label}" if len(runs) > 1 else None)
        except OSError as error:
            raise UsageError(f"can't write the picture {str(place)!r}: {error.strerror}") from error


def _print_tables(runs: Runs, console: Console) -> None:
    console.print(comparison_table([figures(simulation, label) for label, simulation in runs], console.width))
    for label, simulation in runs:
        if (table := scopes_table(simulation.report, console.width)) is not None:
            if len(runs) > 1:
                console.print(printable(label), style="bold", soft_wrap=True)
            console.print(table)
        if (rates := rates_table(simulation, console.width, is_ascii=console.options.ascii_only)) is not None:
            console.print(rates)


_UNWRITTEN: Mapping[str, object] = {
    "ITEM_PIPELINES": {},
    "JOB_DIR": "",
    "WARC_FILE": "",
    "HTTPCACHE_ENABLED": False,
    "WATCHERS": {},
}
"""Settings of a plan, which has no items, writes nothing and notifies nobody."""


def plan_command(
    target: str,
    settings: Sequence[str],
    *,
    urls: str | None,
    job: str | None,
    web: str | None,
    latency: float,
    seed: int,
) -> int:
    """Estimate the end of a crawl and of each host, on a simulated web. Returns the exit status."""

    def act() -> int:
        if (urls is None) == (job is None):
            raise UsageError("a plan needs --urls FILE or --job DIR: one of them says what is pending")
        requests = _requests(urls) if urls is not None else _pending(job or "")
        if not requests:
            raise UsageError(f"{urls or job}: nothing is pending")
        spider = load_spider(target)
        planned = load_web(web) if web is not None else SimulatedWeb()
        for host in dict.fromkeys(host_scope(request.url) for request in requests):
            if planned.host_of(f"http://{host}/") is None:
                planned.add_host(host, latency=latency)
        groups = groups_of(settings)
        groups = [(), *groups] if len(groups) == 1 and groups[0] else groups
        runs = _simulated(_planned(spider, requests), spider, planned, groups, {}, seed, **_UNWRITTEN)
        console = stdout_console()
        for label, simulation in runs:
            if ends := host_ends(simulation):
                console.print(_ends_table(ends))
                _, seconds, last, reason = ends[0]
                by = f"{last} ({reason})" if reason else last
                words = f"{counted(len(requests), 'request')} end in {duration_words(seconds)}, last {by}"
                if simulation.reason != "finished":
                    sends = counted(len(simulation.sends), "send")
                    words = f"ends with {simulation.reason} in {duration_words(seconds)}, after {sends}"
            else:
                words = came_to_nothing(simulation.reason, simulation.stats)
                words = words or f"nothing was sent: the crawl ended with {simulation.reason}"
            _print_lines([f"{label}: {words}"], console)
        return max(_status(runs), OK if all(simulation.sends for _, simulation in runs) else FAILED)

    return _guarded(act)


def _requests(path: str) -> list[Request]:
    """Return a request for each line of a file of URLs; ``-`` is standard input."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--urls {path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    requests = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            try:
                requests.append(Request(line.strip()))
            except ValueError as error:
                raise UsageError(f"--urls {path}, line {number}: {error}") from error
    return requests


def _pending(job: str) -> list[Request]:
    """Return the pending requests of a job. They are not filtered, because without bodies they may look the same."""
    lines = [msgspec.json.decode(line) for line in store_of(job).export_pending(job)]
    return [Request(each["url"], method=each["method"], meta=each.get("meta"), dont_filter=True) for each in lines]


def _planned(spider: type[Spider], requests: Sequence[Request]) -> type[Spider]:
    """Return a spider that sends these requests at the pace of ``spider``, and does nothing with the responses."""

    class Planned(Spider):
        name = spider.name
        handle_httpstatus_all = True

        async def start(self) -> AsyncIterator[Request]:
            for request in requests:
                yield request.replace(callback=self.parse, errback=self.parse)

        def parse(self, response: object) -> None:
            """Do nothing."""

    if (delay := getattr(spider, "download_delay", None)) is not None:
        Planned.download_delay = delay
    return Planned


def host_ends(simulation: Simulation) -> list[tuple[int, float, str, str]]:
    """Return the hosts, latest end first: sends, seconds until the last response, name, and longest reason to wait."""
    ends: dict[str, float] = {}
    sends: Counter[str] = Counter()
    scopes: dict[str, dict[str, None]] = {}
    for send in simulation.sends:
        sends[send.host] += 1
        ends[send.host] = max(ends.get(send.host, 0.0), send.finished)
        scopes.setdefault(send.host, {}).update(dict.fromkeys(send.scopes))
    limited = {report.scope: report.limited for report in simulation.report}
    rows = []
    for host, seconds in ends.items():
        waits = [(s, scope, limit) for scope in scopes[host] for limit, s in limited.get(scope, {}).items()]
        waited, scope, limit = max(waits, default=(0.0, host, ""))
        reason = limit_words(limit) if waited > 0.0 else ""
        rows.append((sends[host], seconds, host, f"{reason} of {scope}" if reason and scope != host else reason))
    return sorted(rows, key=lambda row: (-row[1], row[2]))


def _ends_table(ends: Sequence[tuple[int, float, str, str]]) -> Table:
    table = plain_table(("host", "sends", "ends in", "held up by"), ("host", "held up by"))
    for sends, seconds, host, reason in ends[:MAX_SCOPES]:
        cells = clipped(host, _SCOPE_CHARACTERS), number_words(sends), duration_words(seconds), reason
        table.add_row(*(Text(printable(cell)) for cell in cells))
    add_rest(table, len(ends) - MAX_SCOPES)
    return table


_EXAMPLES = 5
"""Maximum number of violations that are printed for a receipt."""


def receipt_command(files: Sequence[str], output: str | None) -> int:
    """Check the crawl in WARC files or logs, and print the result. Returns 1 if a rule was broken."""
    if output is not None:
        receipts.check_receipt_name(output, "-o")
    checker, receipt = receipts.check_files(files)
    if output is not None:
        receipts.save_receipt(output, receipt, checker)
    console = stdout_console()
    table = plain_table(receipts.COLUMNS, ["scope"])
    for figures_of_scope in receipt.scopes[:MAX_SCOPES]:
        table.add_row(*(Text(printable(cell)) for cell in receipts.scope_cells(figures_of_scope)))
    add_rest(table, len(receipt.scopes) - MAX_SCOPES)
    console.print(table)
    lines = receipts.rule_words(receipt)
    _print_lines([*lines, *(receipts.violation_words(each) for each in receipt.examples[:_EXAMPLES])], console)
    return OK if receipt.is_clean else FAILED


def _print_recording(recording: Recording, runs: Runs, console: Console) -> None:
    """Print the result next to the figures of the recorded crawl, and how well the simulated hosts fit that crawl."""

    def words(elapsed: float, refusals: int) -> str:
        return f"{duration_words(elapsed)} and {counted(refusals, 'refusal')}"

    lines = [f"recorded: {words(recording.elapsed, recording.refusals)}"]
    for label, simulation in runs:
        refusals = sum(send.status in REFUSALS for send in simulation.sends)
        lines.append(f"{label}: {words(simulation.elapsed, refusals)}")
    lines += [fit_words(fit) for fit in recording.fits[:MAX_SCOPES]]
    if len(recording.fits) > MAX_SCOPES:
        lines.append(f"and {counted(len(recording.fits) - MAX_SCOPES, 'more host')}")
    _print_lines(lines, console)


def _print_lines(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(printable(line), soft_wrap=True)


def fit_words(fit: HostFit) -> str:
    """Return a sentence about how well a simulated host fits its recording."""
    parts = []
    if fit.limit is None:
        parts.append(f"no limit, {counted(fit.refusals, 'refusal')}" if fit.refusals else "no limit seen")
    else:
        low, high = fit.rates
        rates = rate_words(fit.limit.rate) if high == low else f"{rate_words(low)} or more"
        if low < high < math.inf:
            rates = f"{rate_words(low)} to {rate_words(high)}"
        parts.append(f"limit {rates}, {fit.limit.burst:g} at once")
        parts.append(f"explains all but {fit.misjudged} of {counted(fit.sends, 'response')}")
    parts.append(f"latency changes by {fit.drift:.0%} with the load")
    if fit.left_out:
        parts.append(f"{counted(fit.left_out, 'earlier response')} of the same requests not replayed")
    return f"fit of {fit.host}: {'; '.join(parts)}"


MAX_CELLS = 60
"""Maximum number of characters for a rate over time."""

_LEVELS = " ▁▂▃▄▅▆▇█"
_ASCII_LEVELS = " .:-=+*%#"
_SCOPE_CHARACTERS = 40
_OTHER_COLUMNS = 34
"""Columns of the terminal that the table needs in addition to names and bars."""


def rates_table(simulation: Simulation, width: int, *, is_ascii: bool = False) -> Table | None:
    """Return a table with the rate of each scope over time, as a line of bars; None if nothing was sent.

    A full bar is the limit of the scope's server, or the scope's highest rate if there is no limit. A ``!`` below a bar
    marks refusals. ``width`` is the terminal's, in columns. ``is_ascii`` is for a terminal without block characters.
    """
    scopes = simulation.scopes
    if not scopes:
        return None
    names = [clipped(scope, _SCOPE_CHARACTERS) for scope in scopes[:MAX_SCOPES]]
    cells = min(MAX_CELLS, max(10, width - max(map(len, names)) - _OTHER_COLUMNS))
    seconds = window_for(simulation.elapsed or 1.0, len(simulation.of(scopes[0])), cells)
    levels = _ASCII_LEVELS if is_ascii else _LEVELS
    told = ", ! refused" if any(send.status in REFUSALS for send in simulation.sends) else ""
    length = f"{seconds:g} s" if seconds < 60 else duration_words(seconds)
    titles = ("scope", f"rate, {length} a bar{told}", "full bar")
    table = plain_table(titles, titles, no_wrap=True)
    for scope, name in zip(scopes, names, strict=False):
        rates, limit = simulation.rates(scope, seconds), simulation.limit(scope)
        bars = Text(_bars(rates, limit, levels))
        if any(rate.refused for rate in rates):
            bars.append("\n" + "".join("!" if rate.refused else " " for rate in rates).rstrip(), style="red")
        table.add_row(Text(name), bars, Text(_full_bar(rates, limit)))
    add_rest(table, len(scopes) - MAX_SCOPES)
    return table


def _bars(rates: Sequence[Rate], limit: Sequence[tuple[float, float]], levels: str) -> str:
    """Return a character per rate. Its height is the rate's share of the limit at that time, or of the highest rate."""
    highest, most = max(rate.rate for rate in rates) or 1.0, len(levels) - 1
    bars = ""
    for rate in rates:
        full = next((allowed for at, allowed in reversed(limit) if at <= rate.start), 0.0) or highest
        bars += levels[min(most, max(1, round(rate.rate / full * most)))] if rate.rate else levels[0]
    return bars


def _full_bar(rates: Sequence[Rate], limit: Sequence[tuple[float, float]]) -> str:
    if not limit:
        return rate_words(max(rate.rate for rate in rates))
    ends = [limit[0][1], limit[-1][1]] if len(limit) > 1 else [limit[0][1]]
    return f"limit {' to '.join(rate_words(rate) for rate in ends)}"


def comparison_table(rows: Sequence[Mapping[str, str]], width: int) -> Table:
    """Return :func:`figures` as a table. Columns that do not fit are left out, usual values first."""
    columns = {title: [row[title] for row in rows] for title in rows[0]}
    dispensable = [title for title, nothing in _USUAL.items() if {*columns[title]} == {nothing}]
    for title in (*dispensable, "waited", "at once"):
        if sum(_widest(name, cells) + _BETWEEN for name, cells in columns.items()) <= width:
            break
        del columns[title]
    table = plain_table()
    for title, cells in columns.items():
        is_text = title in ("settings", "waited", "ended")
        widest = None if title == "waited" else min(_widest(title, cells), width // 2)
        table.add_column(title, justify="left" if is_text else "right", overflow="fold", min_width=widest)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


_BETWEEN = 3
"""Number of characters between two columns of the table."""

_USUAL = {"no answer": "0", "ended": "finished"}
"""Cells of these columns for a simulation without problems."""


def _widest(title: str, cells: Sequence[str]) -> int:
    """Return the width that a column needs. Several settings in a cell are written below each other."""
    parts = [part for cell in cells for part in (cell.split() if title == "settings" else [cell])]
    return max(map(len, (title, *parts)))
