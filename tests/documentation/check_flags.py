"""Parses command lines of one script of `launch`, without running it.

    python check_flags.py SCRIPT

Standard input has a command line in each line. Prints the error of each, or an empty line.
"""

import importlib
import shlex
import sys

from absl import flags

from launch.options import numbers, presets


def main() -> None:
    name = sys.argv[1]
    importlib.import_module(f"launch.{name}")
    for line in sys.stdin:
        argv = [name, *shlex.split(line)]
        error = presets.missing(argv) or ""
        flags.FLAGS.unparse_flags()
        for flag in flags.FLAGS:
            flags.FLAGS[flag].unparse()
        try:
            rest = flags.FLAGS(argv)
            numbers.check(flags.FLAGS)
            error = error or (f"unexpected argument {rest[1]}" if rest[1:] else "")
        except flags.Error as mistake:
            error = str(mistake)
        print(" ".join(error.split()))


if __name__ == "__main__":
    main()
