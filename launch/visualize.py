"""Makes the page of a run, puts runs side by side, and measures how far apart encoders are.

    python -m launch.visualize --run=RUN
    python -m launch.visualize --compare=RUN,RUN
    python -m launch.visualize --encoders=global=RUN,own=RUN/clients/0,other=RUN2 --images=train

--run writes `run.html`, with which a run of `pretrain` or `centralized` ends, again: with the
results of later evaluations, or of a run that was stopped. --compare writes `compare.html`. Of runs
that differ in their seed alone it shows mean and deviation, and of two such groups with the same
seeds the paired differences; the folder of a run with `--seeds` stands for all of its runs.

--encoders, and --run for a run with clients' own encoders (`--personalized_clients`), compare
encoders by the method of appendix B.3 of "Does Learning from Decentralized Non-IID Unlabeled Data
Benefit from Self Supervision?": the features of the same images from all encoders are concatenated,
reduced to 20 dimensions by PCA and to the plane by t-SNE (the paper's UMAP needs numba). They print
for each pair of encoders d_w (the sum over layers of the l2 norms of their weights' difference),
the same distance of batch norm's moving averages, and linear CKA and mean cosine of their features
(after a ReLU the cosine is high for any two encoders; CKA tells them apart). They write
`features.png`, `distances.png` (d_w by layer, the first encoder against the others) and
`visualize.json`.
"""

import pathlib

from launch.options import app
from launch.options.script_configs import VisualizeConfig
from launch.outputs import output_folder, run_folder
from tff_ssl.errors import ConfigurationError


def main(config: VisualizeConfig) -> None:
    from launch.pages import encoder_comparison

    if sum(map(bool, (config.run, config.compare, config.encoders))) != 1:
        raise ConfigurationError(
            "give one of --run=RUN, --compare=RUN,RUN and --encoders=NAME=FOLDER,NAME=FOLDER"
        )
    if config.run:
        _draw_run(pathlib.Path(config.run), config)
    elif config.compare:
        _compare_runs([pathlib.Path(text) for text in config.compare], config)
    else:
        encoder_comparison.compare_named(config)


def _draw_run(run: pathlib.Path, config: VisualizeConfig) -> None:
    from launch.pages import encoder_comparison, rebuilding, run_files, run_page
    from tff_ssl.reporting.page import Picture

    run_files.read(run)
    output = pathlib.Path(config.output.output_dir or run)
    print(f"Writes run.html of {run}/ to {output}/", flush=True)
    rebuilt = rebuilding.rebuild(run, config)
    run_folder.make(output)
    folders = encoder_comparison.folders_of_run(run)
    several = len(folders) > 1
    written = encoder_comparison.compare(folders, rebuilt.own, output) if several else []
    pictures = [
        Picture(path.read_bytes(), f"{path.stem.replace('_', ' ')} of {', '.join(folders)}")
        for path in written
        if path.suffix == ".png"
    ]
    print(f"wrote {run_page.write(run, output, rebuilt.shown, rebuilt.partition, pictures)}")


def _compare_runs(given: list[pathlib.Path], config: VisualizeConfig) -> None:
    from launch.pages import comparison_page, run_files

    runs = [run for folder in given for run in run_folder.runs_in(folder)]
    if len(runs) < 2:
        raise ConfigurationError(f"--compare needs two runs or more; got {given[0]}")
    for run in runs:
        run_files.read(run)
    output = output_folder.choose(config.output.output_dir, "compare")
    names = ", ".join(comparison_page.run_names(runs))
    print(f"Writes compare.html of {names} to {output}/", flush=True)
    print(f"wrote {comparison_page.compare(runs, config, output)}")


SCRIPT = app.Script("visualize", main, VisualizeConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
