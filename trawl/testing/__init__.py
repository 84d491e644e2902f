"""A simulated web and a virtual clock, to test the requests of a spider exactly and in milliseconds.

Names are loaded on first use, because pytest imports this package in every run, even without simulations.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trawl.testing.clock import NotSimulated, Stuck
    from trawl.testing.demo import DemoSite
    from trawl.testing.frontier_contract import FrontierContract
    from trawl.testing.hosts import LogNormal, Outage, Rendered, SimulatedResponse, Uniform
    from trawl.testing.limits import RateLimit
    from trawl.testing.rates import Rate
    from trawl.testing.sends import Send, Span
    from trawl.testing.simulation import Simulation, SimulationFailed, simulate
    from trawl.testing.transport import SimulatedTransport
    from trawl.testing.warc import HostFit, Recording
    from trawl.testing.web import SimulatedWeb
    from trawl.testing.web_file import load_web

__all__ = [
    "DemoSite",
    "FrontierContract",
    "HostFit",
    "LogNormal",
    "Outage",
    "Rate",
    "RateLimit",
    "Recording",
    "Rendered",
    "Send",
    "SimulatedResponse",
    "SimulatedTransport",
    "SimulatedWeb",
    "Simulation",
    "SimulationFailed",
    "Span",
    "Stuck",
    "NotSimulated",
    "Uniform",
    "load_web",
    "simulate",
]

_HOMES = {
    "DemoSite": "demo",
    "FrontierContract": "frontier_contract",
    "HostFit": "warc",
    "LogNormal": "hosts",
    "Outage": "hosts",
    "Rate": "rates",
    "RateLimit": "limits",
    "Recording": "warc",
    "Rendered": "hosts",
    "Send": "sends",
    "SimulatedResponse": "hosts",
    "SimulatedTransport": "transport",
    "SimulatedWeb": "web",
    "Simulation": "simulation",
    "SimulationFailed": "simulation",
    "Span": "sends",
    "Stuck": "clock",
    "NotSimulated": "clock",
    "Uniform": "hosts",
    "load_web": "web_file",
    "simulate": "simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
