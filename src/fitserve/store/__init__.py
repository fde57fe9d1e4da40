"""The journal of runs: SQLite beside the user's data, another database by URL."""
