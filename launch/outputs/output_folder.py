"""The folder in which a script writes its results."""

import datetime
import pathlib


def choose(output_dir: str | None, name: str) -> pathlib.Path:
    """The folder that `--output_dir` names, or else a new one, results/NAME-TIME; it is not made.

    Args:
      output_dir: The flag's value.
      name: Name of the new folder, such as the script's.
    """
    if output_dir:
        return pathlib.Path(output_dir)
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return pathlib.Path("results") / f"{name}-{now}"
