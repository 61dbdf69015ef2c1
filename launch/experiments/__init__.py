"""The papers' experiments: which runs fill which table."""
