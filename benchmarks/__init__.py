"""How fast, against its peers and its own goals: ``python -m benchmarks``."""
