"""Command-line scripts: the only place that reads flags and joins `datasets` to `tff_ssl`.

A user's mistake in a flag or a file is a `ConfigurationError`, whose one line names the flag or the
file; docstrings mention other errors only.
"""

import sys

try:
    import tff_ssl  # noqa: F401
except ImportError as error:
    sys.exit(f"error: {error}")
