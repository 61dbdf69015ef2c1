"""Parses command lines of one script of `launch`, without running it.

    python check_flags.py SCRIPT

Standard input has a command line in each line. Prints the error of each, or an empty line.
"""

import importlib
import shlex
import sys

from absl import flags

from launch.options import command_line


def main() -> None:
    module = importlib.import_module(f"launch.{sys.argv[1]}")
    if not hasattr(module, "SCRIPT"):  # A package that is run.
        module = importlib.import_module(f"{module.__name__}.__main__")
    script = module.SCRIPT
    for line in sys.stdin:
        error = ""
        try:
            argv = ["x", *shlex.split(line)]
            _, rest = command_line.parse(script.config, script.name, argv)
            error = f"unexpected argument {rest[0]}" if rest else ""
        except flags.Error as mistake:
            error = str(mistake)
        print(" ".join(error.split()))


if __name__ == "__main__":
    main()
