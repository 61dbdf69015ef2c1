"""Trains the centralized baseline in plain TensorFlow, with the same objective, model and data.

With --batches=cohorts, a step trains on the examples of a federated round with the same flags, so
that the two can be compared step by step.
"""

from absl import flags

import launch.options.flags
from launch.options import app, presets
from tff_ssl.errors import ConfigurationError

launch.options.flags.define_common_flags()
launch.options.flags.define_data_flags()
launch.options.flags.define_model_flags()
launch.options.flags.define_training_flags(rounds=400, unit="steps")
launch.options.flags.define_probe_flags()
flags.DEFINE_string("objective", "cco", "Name of the loss; --list shows all.")
flags.DEFINE_integer(
    "batch_size", 128, "Number of examples of a step, for --batches=shuffled.", lower_bound=2
)
flags.DEFINE_enum(
    "batches",
    "shuffled",
    ["shuffled", "cohorts"],
    "shuffled: steps go through shuffled epochs; cohorts: a step has the examples of the "
    "--clients_per_round clients of a federated round.",
)
flags.DEFINE_integer(
    "clients_per_round",
    32,
    "Number of clients whose examples form a batch, for --batches=cohorts.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "train_labels",
    None,
    "supervised: number of labelled images to train on, drawn with --seed in proportion to the "
    "sizes of the classes. Default: all images that have a label.",
    lower_bound=1,
)
flags.adopt_module_key_flags(launch.options.flags)

# Flags of clients that change what is trained on, and that many presets have for both scripts.
_OF_CLIENTS = (
    "partition", "num_clients", "samples_per_client", "data_fraction", "clients_per_round",
)  # fmt: skip


def main() -> None:
    args = flags.FLAGS
    if args.list:
        _list(args)
        return
    _train(args)


def _list(args: flags.FlagValues) -> None:
    """Prints the objectives, and the hyperparameters of the given or default one."""
    from launch.options import hyperparameters
    from tff_ssl.objectives.registry import (
        GENERAL_OBJECTIVES,
        OBJECTIVES,
        unused_hyperparameters,
    )
    from tff_ssl.simulation import centralized

    _check_objective(args)
    for name in GENERAL_OBJECTIVES:
        print(f"objective {name}  {OBJECTIVES[name].summary}")
    values = hyperparameters.parse(centralized.CentralizedHyperparameters, args.hparam)
    for line in hyperparameters.listed(values, unused_hyperparameters(args.objective)):
        print(f"hparam {line}")


def _check_objective(args: flags.FlagValues) -> None:
    """Raises ConfigurationError if the objective is unknown, or belongs to one algorithm."""
    from tff_ssl.objectives.registry import GENERAL_OBJECTIVES

    if args.objective not in GENERAL_OBJECTIVES:
        raise ConfigurationError(
            f"--objective must be one of {', '.join(GENERAL_OBJECTIVES)}; got {args.objective!r}"
        )


def _train(args: flags.FlagValues) -> None:
    """Trains and evaluates the baseline that the flags describe, and writes the results."""
    from launch.options import adapting, data, hyperparameters
    from launch.options import model as model_options
    from launch.outputs import run_folder
    from launch.probes import probing
    from launch.runs import training
    from tff_ssl.simulation import centralized

    values = hyperparameters.parse(centralized.CentralizedHyperparameters, args.hparam)
    dataset = data.load_dataset(args)
    adapting.fit_evaluation(dataset, args)
    train = _training_images(dataset, args)
    train, batches, images = _choose_batches(dataset, train, args)
    model = model_options.build_model(dataset, args, args.objective)
    simulation = _build_simulation(dataset, train, batches, model, values, args)
    probing.check_labels(dataset, args)
    folder = data.default_output_dir("centralized", args)
    settings = run_folder.settings("centralized", args)
    run_folder.open_run(folder, settings, run_folder.given(args), args.resume)
    _announce(dataset, images, len(batches(0)), model, values, folder, args)
    fields = {
        "algorithm": "centralized",
        "objective": args.objective,
        "rounds": args.rounds,
        "train_images": images,
    }
    training.train_and_probe(simulation, model, dataset, folder, args, fields)


def _training_images(dataset, args: flags.FlagValues):
    """The images to train on: all, or for supervised training the labelled ones.

    Raises:
      ConfigurationError: If the objective is unknown or does not fit the other flags, or the data
        set has too few labels.
    """
    import numpy as np

    from tff_ssl.evaluation import labels
    from tff_ssl.objectives.registry import OBJECTIVES

    _check_objective(args)
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


def _choose_batches(dataset, train, args: flags.FlagValues):
    """Chooses the examples of each step, as `--batches` says.

    Args:
      dataset: The data set.
      train: Its training images.
      args: The flags.

    Returns:
      The images, with the clients' input shift if batches are cohorts; step -> indices of the
      step's images, int64 [batch]; and the number of images that are trained on.

    Raises:
      ConfigurationError: If `--shift` is given without clients.
    """
    import numpy as np

    from launch.options import adapting
    from launch.options import clients as client_options
    from tff_ssl.simulation import centralized, cohort

    if args.batches == "shuffled":
        if args.shift != "none":
            raise ConfigurationError("--shift needs --batches=cohorts: no clients, no shifts")
        ignored = [f"--{name}" for name in _OF_CLIENTS if args[name].present]
        if ignored:
            print(f"note: --batches=shuffled has no clients; unused: {', '.join(ignored)}")
        adapting.fit_batch(len(train), args)
        batches = centralized.shuffled_batches(len(train), args.batch_size, args.seed)
        return train, batches, len(train)
    clients = client_options.partition_dataset(dataset, args)
    train = client_options.client_images(train, clients, args)
    adapting.fit_cohort([len(indices) for indices in clients], args)
    cohorts = cohort.uniform_cohorts(len(clients), args.clients_per_round, args.seed)

    def batches_of_cohorts(step):
        return np.concatenate([clients[client] for client in np.sort(cohorts(step))])

    return train, batches_of_cohorts, sum(map(len, clients))


def _build_simulation(dataset, train, batches, model, values, args: flags.FlagValues):
    """Builds the simulation of the run.

    Args:
      dataset: The data set.
      train: The training images.
      batches: Step -> indices of the step's images.
      model: The model.
      values: Hyperparameters.
      args: The flags.

    Raises:
      ConfigurationError: If the flags describe no possible run.
    """
    from launch.options import model as model_options
    from tff_ssl.simulation import centralized

    try:
        return centralized.Centralized(
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
    except ValueError as error:  # Raised by an optimizer or a schedule.
        raise ConfigurationError(f"--hparam: {error}") from error


def _announce(
    dataset, num_images: int, batch_size: int, model, values, folder, args: flags.FlagValues
) -> None:
    """Prints the setting of the run before it starts.

    Args:
      dataset: The data set.
      num_images: Number of training images.
      batch_size: Number of examples of the first step.
      model: The model.
      values: Hyperparameters.
      folder: Folder of the results.
      args: The flags.
    """
    from launch.options import hyperparameters
    from launch.options import model as model_options
    from tff_ssl.objectives.registry import unused_hyperparameters

    policy = model_options.view_policy(dataset, args, args.objective)
    shown = hyperparameters.describe(values, unused_hyperparameters(args.objective))
    print(
        f"centralized {args.objective} on {dataset.name}: {num_images} images, "
        f"{args.rounds} steps of {batch_size} ({args.batches})\n"
        f"model: {args.encoder} encoder and heads, {model.parameter_count:,} parameters, "
        f"views {policy} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{shown}\n{model_options.norm_warning(args.objective, args)}"
        f"{model_options.precision_note(args)}results go to {folder}/",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main, default_preset=presets.of_objective, chosen_by="objective", resumes="centralized")
