"""A plugin for pytest, ``-p tests.few_cases``: of each test, two cases run, and five that are spread over all cases.

The others mostly run the same lines. ``nox -s coverage`` uses the plugin in its short form.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

SPREAD = 5
"""The maximum number of cases that are spread over all."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the other cases."""
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    few = {item for cases in tests.values() for item in (*cases[:2], *cases[:: -(-len(cases) // SPREAD)])}
    config.hook.pytest_deselected(items=[item for item in items if item not in few])
    items[:] = [item for item in items if item in few]
