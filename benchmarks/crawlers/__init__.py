"""The same crawl by each crawler: scripts, each run in a process and an environment of its own."""
