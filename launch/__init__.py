"""Command-line scripts: the only place that reads flags and joins `datasets` to `tff_ssl`.

A mistake of the user, which a function finds in its arguments or in a file, is a
`ConfigurationError` whose one line names the flag or the file. Docstrings name other errors only.
"""

import sys

try:
    import tff_ssl  # noqa: F401
except ImportError as error:
    sys.exit(f"error: {error}")
