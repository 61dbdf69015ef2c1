"""Pretrains an encoder with one algorithm on one partitioned data set, and probes it.

Without flags, it trains DCCO on scikit-learn's digits, divided into clients of four images of one
class. On the digits, each algorithm has a default preset in launch/presets/digits/, whose flags
hold unless the command line gives them. With --dataset=case_folder --data_dir=FOLDER, it trains on
your own images, with a default preset in launch/presets/case_folder/.
"""

from launch.options import app, presets
from launch.options.run_config import RunConfig
from launch.runs import seeds


def main(config: RunConfig) -> None:
    if config.output.list:
        from launch.options import choices

        choices.show(config)
    elif config.output.seeds:
        seeds.train(config)
    else:
        from launch.runs import federated

        federated.pretrain(config)


SCRIPT = app.Script("pretrain", main, RunConfig, presets.of_algorithm, resumes=True)

if __name__ == "__main__":
    app.run(SCRIPT)
