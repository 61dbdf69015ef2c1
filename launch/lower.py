"""Compiles an algorithm's round to the forms that production stacks take.

Writes the computations, serialized, with a description: types, bytes that a client receives and
sends, what is summed securely; and prints what converts, and why the rest does not. Of an algorithm
with two stages, each stage is lowered by itself.

Takes the flags of `pretrain`, so that a run's flag file lowers what the run trains. Of the data
set, the shape of the images counts; flags of clients and of probes change nothing.
"""

import os
import pathlib
import shutil
from typing import Any

from absl import flags

import launch.options.flags
from launch import pretrain
from launch.options import app

flags.adopt_module_key_flags(launch.options.flags)
flags.adopt_module_key_flags(pretrain)


def main() -> None:
    from launch.options import aggregation, data, unlike_clients
    from launch.outputs import run_folder
    from launch.runs import federated
    from tff_ssl.deployment import lowering
    from tff_ssl.errors import ConfigurationError

    args = flags.FLAGS
    if args.list:
        pretrain.print_choices()
        return
    folder = data.default_output_dir("lower", args)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(f"--output_dir={folder} is not empty: name a new folder")
    algorithm, values = federated.choose(args)
    dataset = data.load_dataset(args)
    of_clients, population, clients = dataset, None, 1
    if algorithm.unlike_clients:
        of_clients, _ = unlike_clients.take_out_rad(dataset, args)
    # The noise of differential privacy follows from the number of clients.
    if algorithm.unlike_clients or aggregation.is_private(args):
        dealt = data.partition_dataset(of_clients, args)
        clients = len(dealt)
        if algorithm.unlike_clients:
            population = unlike_clients.build_population(of_clients, dealt, args)
    how = aggregation.choose(args, algorithm, values, clients, args.clients_per_round)
    _, computations = federated.build(args, algorithm, values, dataset, how.arguments, population)
    rounds = lowering.rounds_of(computations)
    print(
        f"{args.algorithm} with {args.objective} for images of "
        f"{'x'.join(map(str, dataset.train.images.shape[1:]))}: lowering {', '.join(rounds)}\n"
        f"results go to {folder}/",
        flush=True,
    )
    table, descriptions = [], []
    # Complete or not there.
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, found in rounds.items():
        lowered = lowering.lower(found.next)
        lowering.save(partial / name, found, lowered)
        row = _summary(name, found, lowered)
        table.append(row)
        descriptions.append(_description(row, found, lowered))
    run_folder.write_json(
        partial / "lowering.json",
        {
            "algorithm": args.algorithm,
            "objective": args.objective,
            "hyperparameters": str(values),
            "rounds": table,
        },
    )
    text = _format(table)
    (partial / "description.txt").write_text("\n\n".join([text, *descriptions]) + "\n")
    os.replace(partial, folder)
    print(f"\n{text}\n\nwritten to {folder}/: {', '.join(_written(folder))}")


def _summary(name: str, found, lowered) -> dict[str, Any]:
    """A round's row of `lowering.json`."""
    from tff_ssl.deployment import lowering
    from tff_ssl.templates import message_sizes

    sent = message_sizes.messages(found.next)
    down, up = message_sizes.client_bytes(found.next)
    secure = [message.type_spec for message in sent if message.is_secure]
    return {
        "name": name,
        "summary": found.summary,
        "bytes_down_per_client": down,
        "bytes_up_per_client": up,
        "bytes_securely_summed_per_client": message_sizes.total_bytes(secure),
        "converts": {form: form in lowered.forms for form in lowering.FORMS},
        "reasons": lowered.reasons,
    }


def _format(table: list[dict[str, Any]]) -> str:
    """What converts, the bytes, and what does not convert."""
    forms = list(table[0]["converts"])
    rows = [["", *forms, "bytes down", "bytes up", "securely"]]
    for row in table:
        converts = ["yes" if row["converts"][form] else "no" for form in forms]
        sizes = [
            f"{row[f'bytes_{what}_per_client']:,}" for what in ("down", "up", "securely_summed")
        ]
        rows.append([row["name"], *converts, *sizes])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([f"{name:{widths[0]}}", *map(str.rjust, cells, widths[1:])])
        for name, *cells in rows
    ]
    for row in table:
        for form, reason in row["reasons"].items():
            lines.append(f"{row['name']} not to {form}: {reason}")
    return "\n".join(lines)


def _description(row: dict[str, Any], found, lowered) -> str:
    """A round's types, for people."""
    from tff_ssl.deployment import lowering
    from tff_ssl.templates import message_sizes

    lines = [f"{row['name']}: {row['summary']}", "=" * 80]
    if found.initialize is not None:
        lines.append("initialize.pb: () -> the state that next.pb takes first")
    lines.append(f"next.pb: {found.next.type_signature.formatted_representation()}")
    lines.append("What passes between the server and each client:")
    for message in message_sizes.messages(found.next):
        way = "down" if message.down else "up, securely summed" if message.is_secure else "up"
        size = message_sizes.type_bytes(message.type_spec)
        lines.append(
            f"  {way}, {message.operation}, {size:,} bytes: "
            f"{message.type_spec.compact_representation()}"
        )
    for name, form in lowered.forms.items():
        for part in lowering.FORMS[name].parts:
            signature = getattr(form, part).type_signature.compact_representation()
            lines.append(f"{name}/{part}.pb\n  {signature}")
    return "\n".join(lines)


def _written(folder: pathlib.Path) -> list[str]:
    """The folder's entries."""
    return [f"{path.name}/" if path.is_dir() else path.name for path in sorted(folder.iterdir())]


if __name__ == "__main__":
    app.run(main, digits_preset=pretrain.digits_preset)
