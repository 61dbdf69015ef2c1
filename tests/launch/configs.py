"""Configurations as command lines give them."""

from launch.options import command_line
from launch.options.run_config import RunConfig


def run(*flags, script="pretrain"):
    """The configuration of a run with these flags and no preset."""
    return command_line.parse(RunConfig, script, [script, *flags])[0]
