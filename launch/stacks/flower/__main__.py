"""Trains on Flower's SuperLink and SuperNodes, and compares with the simulation of the same seed.

    python -m launch.stacks.flower --nodes=4 --rounds=20 --output_dir=OUT

Makes Flower's environment once, which needs uv or pip, and a package registry; writes the client
package of the algorithm, and a folder with the images of its clients for each node; starts a
SuperLink and SuperNodes on the loopback, with TLS and node authentication; runs the rounds, with a
checkpoint after each; and ends everything. Then probes the encoder, trains the same in a
simulation, and writes `result.json` with both accuracies, `largest_difference_to_simulation`,
seconds and bytes.

The flags are those of `pretrain`. `--round_timeout` is the time that a stage of a round waits for
the nodes, ten minutes by default.
"""

import dataclasses

from launch.options import app, presets
from launch.options.run_config import RunConfig
from launch.options.settings import flag


@dataclasses.dataclass(frozen=True)
class FlowerConfig(RunConfig):
    """A run on Flower.

    Attributes:
      nodes: Number of SuperNodes, among which the clients are dealt.
      workers: Number of processes that keep TensorFlow and the client package loaded, and that the
        nodes of this machine share. Default: one for each node, at most one for each core. 0: every
        message loads TensorFlow anew.
      node_sums: Let each node send the sum over its clients, so that the server sees no single one.
        The sum is the same up to rounding, which rounds amplify. Otherwise a node sends the values
        of each client, and the weights are those of the simulation.
      secure: Add the nodes' sums by Flower's SecAgg+, which takes four messages for one.
      compare: Also train in a simulation with the same seed, and compare.
    """

    nodes: int = flag(4, 1)
    workers: int | None = flag(None, 0)
    node_sums: bool = False
    secure: bool = False
    compare: bool = True


def main(config: FlowerConfig) -> None:
    if config.output.list:
        from launch.options import choices

        choices.show(config)
        return
    from launch.stacks.flower import runs

    runs.run(config)


SCRIPT = app.Script("stacks.flower", main, FlowerConfig, presets.of_algorithm, resumes=True)

if __name__ == "__main__":
    app.run(SCRIPT)
