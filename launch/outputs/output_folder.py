"""The folder in which a script writes its results."""

import datetime
import pathlib


def choose(output_dir: str | None, name: str) -> pathlib.Path:
    """The folder that `--output_dir` names, otherwise results/NAME-TIME; it is not created."""
    if output_dir:
        return pathlib.Path(output_dir)
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return pathlib.Path("results") / f"{name}-{now}"
