"""The papers' experiments: the runs that fill each table."""
