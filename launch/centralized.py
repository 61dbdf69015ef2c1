"""Trains the centralized baseline in plain TensorFlow, with the same objective, model and data.

With --batches=cohorts, a step trains on the examples of a federated round with the same flags, so
that the two can be compared step by step.
"""

from launch.options import app, presets
from launch.options.run_config import RunConfig


def main(config: RunConfig) -> None:
    from launch.runs import centralized, seeds

    if config.output.list:
        centralized.print_choices(config)
    elif config.output.seeds:
        seeds.train(config)
    else:
        centralized.train(config)


SCRIPT = app.Script("centralized", main, RunConfig, presets.of_objective, "objective", True)

if __name__ == "__main__":
    app.run(SCRIPT)
