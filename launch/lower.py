"""Compiles an algorithm's round to the forms that production stacks take.

Writes the serialized computations with a description of their types, the bytes that a client
receives and sends, and what is summed securely. Prints the forms to which a round converts, and why
it does not convert to the others. The two stages of a two-stage algorithm are lowered separately.

The flags are those of `pretrain`, so that the flag file of a run lowers its round. Of the data set,
only the image shape and the number of clients matter; flags of probes and of checkpoints have no
effect.
"""

from typing import Any

from launch.options import app, presets
from launch.options.run_config import RunConfig
from launch.outputs import output_folder, run_folder, tables
from tff_ssl import whole_files


def main(config: RunConfig) -> None:
    if config.output.list:
        from launch.options import choices

        choices.show(config)
        return
    from launch.options import algorithm as algorithm_options
    from launch.runs import federated
    from tff_ssl.deployment import lowering

    folder = output_folder.choose_empty(config.output.output_dir, f"lower-{config.data.dataset}")
    chosen = algorithm_options.choose(config)
    name, objective = config.algorithm.algorithm, chosen.config.objective
    dataset = federated.load(chosen.config)
    # Noise for differential privacy and SCAFFOLD's server step depend on the number of clients.
    rounds = federated.build(chosen, dataset, batched=False).algorithm.rounds_to_lower()
    print(
        f"{name} with {objective} for images of "
        f"{'x'.join(map(str, dataset.train.images.shape[1:]))}: lowering {', '.join(rounds)}\n"
        f"results go to {folder}/",
        flush=True,
    )
    rows, descriptions = [], []
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_files.replacing_folder(folder) as new:
        for round_name, lowerable in rounds.items():
            lowered = lowering.lower(lowerable.next)
            lowering.save(new / round_name, lowerable, lowered)
            rows.append(_summary(round_name, lowerable, lowered))
            descriptions.append(_description(rows[-1], lowerable, lowered))
        content = {"algorithm": name, "objective": objective, "hyperparameters": str(chosen.values)}
        run_folder.write_json(new / "lowering.json", content | {"rounds": rows})
        text = _format(rows)
        whole_files.write(new / "description.txt", "\n\n".join([text, *descriptions]) + "\n")
    written = [f"{p.name}/" if p.is_dir() else p.name for p in sorted(folder.iterdir())]
    print(f"\n{text}\n\nwritten to {folder}/: {', '.join(written)}")


def _summary(name: str, lowerable, lowered) -> dict[str, Any]:
    """A round's row of `lowering.json`."""
    from tff_ssl.deployment import lowering
    from tff_ssl.templates import message_sizes

    messages = message_sizes.messages(lowerable.next)
    down, up = message_sizes.client_bytes(lowerable.next)
    secure = [message.type_spec for message in messages if message.is_secure]
    return {
        "name": name,
        "summary": lowerable.summary,
        "bytes_down_per_client": down,
        "bytes_up_per_client": up,
        "bytes_securely_summed_per_client": message_sizes.total_bytes(secure),
        "converts": {form: form in lowered.forms for form in lowering.FORMS},
        "reasons": lowered.reasons,
    }


def _format(table: list[dict[str, Any]]) -> str:
    """A table of forms and bytes, and why a round does not convert to a form."""
    forms = list(table[0]["converts"])
    rows = [["", *forms, "bytes down", "bytes up", "securely"]]
    for row in table:
        converts = ["yes" if row["converts"][form] else "no" for form in forms]
        sizes = (row[f"bytes_{path}_per_client"] for path in ("down", "up", "securely_summed"))
        rows.append([row["name"], *converts, *(f"{size:,}" for size in sizes)])
    reasons = [
        f"{row['name']} not to {form}: {reason}"
        for row in table
        for form, reason in row["reasons"].items()
    ]
    return "\n".join([tables.aligned(rows), *reasons])


def _description(row: dict[str, Any], lowerable, lowered) -> str:
    from tff_ssl.deployment import lowering
    from tff_ssl.templates import message_sizes

    lines = [f"{row['name']}: {row['summary']}", "=" * 80]
    if lowerable.initialize is not None:
        lines.append("initialize.pb: () -> the state that next.pb takes first")
    lines.append(f"next.pb: {lowerable.next.type_signature.formatted_representation()}")
    lines.append("What passes between the server and each client:")
    for message in message_sizes.messages(lowerable.next):
        direction = "down" if message.down else "up, securely summed" if message.is_secure else "up"
        size = message_sizes.type_bytes(message.type_spec)
        lines.append(
            f"  {direction}, {message.operation}, {size:,} bytes: "
            f"{message.type_spec.compact_representation()}"
        )
    for name, form in lowered.forms.items():
        for part in lowering.FORMS[name].parts:
            signature = getattr(form, part).type_signature.compact_representation()
            lines.append(f"{name}/{part}.pb\n  {signature}")
    return "\n".join(lines)


SCRIPT = app.Script("lower", main, RunConfig, presets.of_algorithm)

if __name__ == "__main__":
    app.run(SCRIPT)
