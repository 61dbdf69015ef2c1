"""Federated and decentralized self-supervised learning of visual representations on TFF."""

import platform
import sys

# Before anything heavy is imported: TFF 0.87 has one wheel, and pip's own words do not say which.
if not (
    sys.platform == "linux"
    and platform.machine() == "x86_64"
    and (3, 10) <= sys.version_info[:2] <= (3, 11)
):
    raise ImportError(
        "tff_ssl runs on Linux x86-64 with Python 3.10 or 3.11, as TensorFlow Federated 0.87 does; "
        f"this is {sys.platform} {platform.machine()} with Python {platform.python_version()}"
    )
