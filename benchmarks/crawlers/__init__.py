"""The same crawl with each crawler: scripts that run in their own process and environment."""
