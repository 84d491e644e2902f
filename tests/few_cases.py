"""A plugin for pytest, ``-p tests.few_cases``: at most eight cases of each test run, spread over all of its cases.

The others mostly run the same lines. ``nox -s coverage`` uses the plugin in its short form.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

CASES = 8
"""The maximum number of cases of a test."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the other cases."""
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    few = {item for cases in tests.values() for item in cases[:: -(-len(cases) // CASES)]}
    config.hook.pytest_deselected(items=[item for item in items if item not in few])
    items[:] = [item for item in items if item in few]
