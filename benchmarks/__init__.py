"""Benchmarks of trawl, compared with other crawlers and with goals: ``python -m benchmarks``."""
