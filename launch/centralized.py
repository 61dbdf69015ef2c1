"""Trains the plain TensorFlow baseline: the same objective, model, views and data, in one place.

With --batches=cohorts a step sees the examples that a federated round with the same flags sees, so
that the two can be compared step by step.
"""

from absl import flags

import launch.options.flags
from launch.options import app, presets
from launch.options import clients as clients_options
from launch.options import model as model_options

launch.options.flags.define_common_flags()
launch.options.flags.define_data_flags()
launch.options.flags.define_model_flags()
launch.options.flags.define_training_flags(rounds=400, what="steps")
launch.options.flags.define_probe_flags()
flags.DEFINE_string("objective", "cco", "The loss; --list shows them.")
flags.DEFINE_integer("batch_size", 128, "Examples of a step (--batches=shuffled).", lower_bound=2)
flags.DEFINE_enum(
    "batches",
    "shuffled",
    ["shuffled", "cohorts"],
    "Shuffled epochs, or the examples of --clients_per_round clients as in a federated round.",
)
flags.DEFINE_integer(
    "clients_per_round",
    32,
    "Clients whose examples are a batch (--batches=cohorts).",
    lower_bound=1,
)
flags.DEFINE_integer(
    "train_labels",
    None,
    "supervised: train on so many labelled images, drawn by --seed and split over the "
    "classes by their sizes. Default: all that have a label.",
    lower_bound=1,
)
flags.adopt_module_key_flags(launch.options.flags)


def main() -> None:
    args = flags.FLAGS
    if args.list:
        _list()
        return
    _train(args)


def _list() -> None:
    import dataclasses

    from tff_ssl.objectives.registry import OBJECTIVES
    from tff_ssl.simulation import centralized

    for name, objective in OBJECTIVES.items():
        print(f"objective {name}  {objective.summary}")
    for field in dataclasses.fields(centralized.CentralizedHyperparameters):
        print(f"hparam {field.name.rstrip('_')}={field.default}")


def _train(args: flags.FlagValues) -> None:
    import numpy as np

    from launch.options import data, hyperparameters
    from launch.outputs import run_folder
    from launch.probes import probing
    from launch.runs import training
    from tff_ssl.errors import ConfigurationError
    from tff_ssl.simulation import centralized, cohort

    values = hyperparameters.parse(centralized.CentralizedHyperparameters, args.hparam)
    dataset = data.load_dataset(args)
    train = _training_images(dataset, args)
    if args.batches == "cohorts":
        clients = clients_options.partition_dataset(dataset, args)
        train = clients_options.client_images(train, clients, args)
        cohorts = cohort.uniform_cohorts(len(clients), args.clients_per_round, args.seed)

        def batches(step):
            return np.concatenate([clients[c] for c in np.sort(cohorts(step))])

    else:
        if args.shift != "none":
            raise ConfigurationError("--shift needs --batches=cohorts: no clients, no shifts")
        batches = centralized.shuffled_batches(len(train), args.batch_size, args.seed)
    model = model_options.build_model(dataset, args, args.objective)
    try:
        run = centralized.Centralized(
            args.objective,
            model,
            model_options.two_views(dataset, args, args.objective),
            train.images,
            train.example_ids,
            batches,
            args.rounds,
            values,
            train.labels,
            args.seed,
        )
    except ConfigurationError:
        raise
    except ValueError as error:  # Of an optimizer, or of a schedule.
        raise ConfigurationError(f"--hparam: {error}") from error
    probing.check_labels(dataset, args)
    folder = data.default_output_dir("centralized", args)
    run_folder.open_run(folder, run_folder.settings("centralized", args), args.resume)
    policy = model_options.view_policy(dataset, args, args.objective)
    print(
        f"centralized {args.objective} on {dataset.name}: {len(train)} images, "
        f"{args.rounds} steps of {len(batches(0))} ({args.batches})\n"
        f"model: {args.encoder} encoder and heads, {model.parameter_count:,} parameters, "
        f"views {policy} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{values}\nresults go to {folder}/",
        flush=True,
    )
    training.train_and_probe(
        run,
        model,
        dataset,
        folder,
        args,
        {
            "algorithm": "centralized",
            "objective": args.objective,
            "rounds": args.rounds,
            "train_images": len(train),
        },
    )


def _training_images(dataset, args: flags.FlagValues):
    """All training images, or the labelled ones that `--train_labels` asks for."""
    import numpy as np

    from tff_ssl.errors import ConfigurationError
    from tff_ssl.evaluation import labels
    from tff_ssl.objectives.registry import OBJECTIVES

    if args.objective not in OBJECTIVES:
        raise ConfigurationError(
            f"--objective must be one of {', '.join(OBJECTIVES)}; got {args.objective!r}"
        )
    if not OBJECTIVES[args.objective].supervised:
        if args.train_labels:
            raise ConfigurationError("--train_labels needs --objective=supervised")
        return dataset.train
    if args.batches == "cohorts":
        raise ConfigurationError("--objective=supervised needs --batches=shuffled")
    if not args.train_labels:
        labelled = np.flatnonzero(dataset.train.labels >= 0)
        if len(labelled) == 0:
            raise ConfigurationError(f"--dataset={args.dataset} has no labels to train with")
        return dataset.train.take(labelled)
    try:
        chosen = labels.draw_labels(
            dataset.train.labels, np.random.default_rng([args.seed, 0]), total=args.train_labels
        )
    except ValueError as error:
        raise ConfigurationError(f"--train_labels: {error}") from error
    return dataset.train.take(chosen)


if __name__ == "__main__":
    app.run(main, digits_preset=lambda _: presets.FOLDER / "digits" / "centralized.flags")
