"""Trains the plain TensorFlow baseline: the same objective, model, views and data, in one place.

With --batches=cohorts a step sees the examples that a federated round with the same flags sees, so
that the two can be compared step by step.
"""

from absl import flags

import launch.flags
from launch import app

launch.flags.define_common_flags()
launch.flags.define_data_flags()
launch.flags.define_model_flags()
launch.flags.define_training_flags(rounds=400, what="steps")
launch.flags.define_probe_flags()
flags.DEFINE_enum("objective", "cco", ["cco"], "The loss.")
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
flags.adopt_module_key_flags(launch.flags)


def main() -> None:
    args = flags.FLAGS
    if args.list:
        _list()
        return
    _train(args)


def _list() -> None:
    import dataclasses

    from tff_ssl import centralized

    print("objective cco")
    for field in dataclasses.fields(centralized.CentralizedHyperparameters):
        print(f"hparam {field.name.rstrip('_')}={field.default}")


def _train(args: flags.FlagValues) -> None:
    import numpy as np

    from launch import data, probing, run_folder, training
    from tff_ssl import centralized, cohort, hyperparameters
    from tff_ssl.errors import ConfigurationError

    values = hyperparameters.parse(centralized.CentralizedHyperparameters, args.hparam)
    dataset = data.load_dataset(args)
    if args.batches == "cohorts":
        clients = data.partition_dataset(dataset, args)
        cohorts = cohort.uniform_cohorts(len(clients), args.clients_per_round, args.seed)

        def batches(step):
            return np.concatenate([clients[c] for c in np.sort(cohorts(step))])

    else:
        batches = centralized.shuffled_batches(len(dataset.train), args.batch_size, args.seed)
    model = data.build_model(dataset, args)
    try:
        run = centralized.CentralizedCCO(
            model,
            data.two_views(dataset, args),
            dataset.train.images,
            dataset.train.example_ids,
            batches,
            args.rounds,
            values,
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    probing.check_labels(dataset, args)
    folder = data.default_output_dir("centralized", args)
    run_folder.open_run(folder, run_folder.settings("centralized", args), args.resume)
    print(
        f"centralized cco on {dataset.name}: {len(dataset.train)} images, "
        f"{args.rounds} steps of {len(batches(0))} ({args.batches})\n"
        f"model: {args.encoder} encoder and projector, {model.parameter_count:,} parameters, "
        f"views {data.view_policy(dataset, args)} {model.image_shape[0]}x{model.image_shape[1]}\n"
        f"{values}\nresults go to {folder}/",
        flush=True,
    )
    training.train_and_probe(
        run, model, dataset, folder, args, {"algorithm": "centralized", "rounds": args.rounds}
    )


if __name__ == "__main__":
    app.run(main, digits_preset="digits_centralized")
