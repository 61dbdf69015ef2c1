"""The seed of tests that draw other moments every day, and print it."""

import datetime
import os

# `DAILY_SEED=2026-11-26 uv run pytest --everything -k kill` repeats the tests of a day.
DAILY_SEED = os.environ.get("DAILY_SEED") or datetime.date.today().isoformat()
