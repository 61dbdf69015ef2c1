"""Command-line scripts: the only place that reads flags and joins `datasets` to `tff_ssl`."""

import sys

try:
    import tff_ssl  # noqa: F401
except ImportError as error:
    sys.exit(f"error: {error}")
