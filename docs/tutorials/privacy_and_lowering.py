"""
Privacy and lowering
====================

This tutorial trains with differential privacy for a few rounds, and then writes an algorithm's
round in the forms that production stacks accept, with secure sums.
"""

import csv
import json
import pathlib
import tempfile

from docs.tutorials.terminal import run

# %%
# Differential privacy
# --------------------
# Each client's contributions are clipped, and noise is added to their means. The amount of noise
# follows from the epsilon that all rounds together may spend.

folder = pathlib.Path(tempfile.mkdtemp())
run(
    "launch.pretrain --flagfile=launch/presets/digits/private_dcco.flags --dp_epsilon=8 "
    "--dp_clip=1 --dp_statistics_clip=15 --clients_per_round=16 --rounds=2 "
    f"--labels_per_class=5 --label_draws=2 --output_dir={folder / 'run'}"
)

# %%
# ``metrics.csv`` has the epsilon of the rounds so far.

with open(folder / "run" / "metrics.csv", newline="") as file:
    for row in csv.DictReader(file):
        print(row["round"], {name: row[name] for name in row if "epsilon" in name})

# %%
# ``result.json`` says what the guarantee does not cover.

(result, *_) = json.loads((folder / "run" / "result.json").read_text())
for text in result["privacy"]["does_not_cover"]:
    print("-", text)

# %%
# Lowering
# --------
# ``launch.lower`` compiles a round. It prints what a client receives and sends, and how many
# tensors are summed securely, so that the server sees no client's contribution.

run(
    "launch.lower --algorithm=fedavg --objective=nt_xent --aggregator=secure --encoder=tiny "
    f"--projector=32,32 --output_dir={folder / 'lowered'}"
)
for path in sorted((folder / "lowered").rglob("*")):
    if path.is_file():
        print(path.relative_to(folder))
