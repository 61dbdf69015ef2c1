"""Measures how far DCCO with several local steps drifts from as many centralized steps.

With one local step a round equals a centralized step. With more, the clients' later steps use the
second moments of the broadcast model; means follow the client's model or are held as well. With
--batch_sizes a step uses a part of a client's examples. For each setting, this prints the distance
between the round's mean model delta and that of the centralized steps on all examples of the
cohort, relative to the length of the latter, and the cosine between them. Both start from untrained
weights, or from those after --rounds centralized steps of the same objective.
"""

import dataclasses

from launch.options import app, hyperparameters
from launch.options.image_config import ClientsConfig, DataConfig, ModelConfig
from launch.options.run_config import ScriptConfig
from launch.options.settings import flag, section
from launch.outputs import output_folder, run_folder
from tff_ssl.errors import ConfigurationError


@dataclasses.dataclass(frozen=True)
class DriftConfig(ScriptConfig):
    """The rounds and steps that are compared.

    Attributes:
      local_steps: Numbers of local steps.
      batch_sizes: Numbers of examples of a local step; 0 for all of a client's.
      learning_rates: Learning rates of the clients.
      clients_per_round: Number of clients in the cohort.
      rounds: Number of centralized steps before the measurement.
      objective: Name of the objective: cco or vicreg.
      hparam: NAME=VALUE, a hyperparameter of dcco; repeatable.
    """

    local_steps: tuple[int, ...] = flag((1, 2, 4, 8), 1)
    batch_sizes: tuple[int, ...] = flag((0,), 0)
    learning_rates: tuple[float, ...] = flag((0.001, 0.01), 1e-9, 1e6)
    clients_per_round: int = flag(32, 1)
    rounds: int = flag(0, 0)
    objective: str = "cco"
    hparam: tuple[str, ...] = flag((), repeated=True)
    data: DataConfig = section(DataConfig)
    clients: ClientsConfig = section(ClientsConfig)
    model: ModelConfig = section(ModelConfig)


def main(args: DriftConfig) -> None:
    from launch.options import defaults
    from tff_ssl.runtime import start

    args = defaults.resolve(args, args.objective)
    for name in ("learning_rates", "batch_sizes", "local_steps"):
        if not getattr(args, name):
            raise ConfigurationError(f"--{name} is empty: it takes numbers such as 1,2")
    settings = [
        {"learning_rate": rate, "batch_size": size, "local_steps": steps,
         "means_follow": means_follow}
        for rate in args.learning_rates
        for size in args.batch_sizes
        for steps in args.local_steps
        for means_follow in ((True,) if steps == 1 else (True, False))
    ]  # fmt: skip
    folder = output_folder.choose(args.output.output_dir, f"drift-{args.data.dataset}")
    run_folder.make(folder)
    print(
        f"drift of dcco with {args.objective} on {args.data.dataset} from centralized steps, after "
        f"{args.rounds} steps of training; results go to {folder}/",
        flush=True,
    )
    print(f"{'rate':>8}{'batch':>7}{'steps':>7}{'means':>8}{'distance':>11}{'cosine':>9}")
    rows = []
    with start():
        for setting, drift in _measure(settings, args):
            size = setting["batch_size"] or "all"
            means = "follow" if setting["means_follow"] else "held"
            print(
                f"{setting['learning_rate']:8g}{size:>7}{setting['local_steps']:7}{means:>8}"
                f"{drift.relative_distance:11.4f}{drift.cosine:9.4f}",
                flush=True,
            )
            rows.append(setting | drift._asdict())
    run_folder.write_json(folder / "drift.json", rows)
    print(f"\nwritten to {folder / 'drift.json'}")


def _measure(settings, args: DriftConfig):
    """Yields (setting, `Drift`) for each setting."""
    import numpy as np
    import tensorflow_federated as tff

    from datasets import client_store
    from launch.options import clients as clients_options
    from launch.options import data
    from launch.options import model as model_options
    from tff_ssl.algorithms.dcco import parts, two_stage
    from tff_ssl.analysis.drift import measure
    from tff_ssl.simulation import cohort
    from tff_ssl.templates.task import Task

    dataset = data.load_dataset(args.data)
    clients = clients_options.partition_dataset(dataset, args.clients, args.seed)
    train = clients_options.client_images(dataset.train, clients, args.clients)
    model = model_options.build_model(dataset, args.model, args.objective, seed=args.seed)
    two_views = model_options.two_views(args.model, args.seed)
    element = client_store.element_spec(train.images.shape[1:])
    element_type = tff.types.tensorflow_to_type(element)
    task = Task(model, two_views, element_type, 1, args.objective, args.seed)
    names = {"learning_rate": "client_learning_rate"}
    values = []
    for setting in settings:
        given = [*args.hparam, *(f"{names.get(key, key)}={one}" for key, one in setting.items())]
        values.append(hyperparameters.parse(two_stage.DCCOHyperparameters, given))
    try:
        parts.check_task(task)
    except ValueError as error:
        raise ConfigurationError(f"--objective, --norm or --projector: {error}") from error
    chosen = cohort.uniform_cohorts(len(clients), args.clients_per_round, args.seed)(0)
    cohort_size = sum(len(clients[k]) for k in chosen)
    weights = _pretrained_weights(task, train, cohort_size, values[0], args)
    examples = [
        {
            "client": np.full(len(clients[k]), k, np.int64),
            "example_id": train.example_ids[clients[k]],
            "image": train.images[clients[k]],
        }
        for k in chosen
    ]
    for setting, value in zip(settings, values, strict=True):
        yield setting, measure(task, weights, examples, value)


def _pretrained_weights(task, train, batch_size: int, values, args: DriftConfig):
    """The trainable weights after `--rounds` centralized steps on batches of `batch_size`."""
    from tff_ssl.objectives import registry
    from tff_ssl.simulation import centralized

    objective_values = {
        field.name: getattr(values, field.name)
        for field in dataclasses.fields(registry.ObjectiveHyperparameters)
    }
    batches = centralized.shuffled_batches(len(train), batch_size, args.seed)
    training = centralized.Centralized(
        task.objective, task.model, task.two_views, train.images, train.example_ids, batches,
        max(args.rounds, 1),
        centralized.CentralizedHyperparameters(**objective_values, learning_rate=2e-3),
    )  # fmt: skip
    state = training.initialize(args.seed)
    for step in range(args.rounds):
        state, _ = training.run_round(state, step)
    return state.weights.trainable


SCRIPT = app.Script("drift", main, DriftConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
