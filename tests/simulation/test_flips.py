"""A flipped bit in a file of a run is an error, is said, or changes nothing.

`FLIPS=1000 uv run pytest --everything tests/simulation/test_flips.py -s` runs it at full length.
"""

import collections
import os
import random
import shutil

import pytest

from tests.daily_seed import DAILY_SEED
from tests.runtime.test_sliced_rounds import (
    assert_same_run,
    build,
    plan_run,
    stored,  # noqa: F401
)
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.simulation import training_loop

FLIPS = int(os.environ.get("FLIPS", "60"))
ROUNDS, DONE = 5, 4


@pytest.mark.long
@pytest.mark.slow
def test_no_flipped_bit_changes_a_resumed_run_in_silence(
    worker,
    small_algorithm,
    stored,  # noqa: F811
    tmp_path,
    caplog,
):
    algorithm = build(small_algorithm, "fedema")
    begun, folder = tmp_path / "begun", tmp_path / "run"

    def run(rounds):
        simulated = plan_run(algorithm).simulate(stored.group_dataset_computation, folder)
        return training_loop.TrainingLoop(folder, rounds, 2).run(simulated, seed=0)

    run(DONE)
    shutil.copytree(folder, begun)
    expected = run(ROUNDS)
    whole = folder.rename(tmp_path / "whole")
    files = sorted(p.relative_to(begun) for p in begun.rglob("*") if p.is_file())
    chance, found = random.Random(DAILY_SEED), collections.Counter()
    for flip in range(FLIPS):
        path = files[flip % len(files)]
        shutil.copytree(begun, folder)
        content = bytearray((begun / path).read_bytes())
        bit = chance.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        (folder / path).write_bytes(content)
        caplog.clear()
        error, state = "", None
        try:
            state = run(ROUNDS)
        except (TrainingError, ConfigurationError) as raised:
            error = str(raised)
        said = any(f"/{path}" in record.getMessage() for record in caplog.records)
        is_state = path.parts[0] == "client_states"
        if error:
            assert "\n" not in error, (path, bit)
            outcome = "an error"
        elif is_state and said:  # The client goes on from an earlier state.
            outcome = "said, and another result"
        else:
            outcome = "said, and the same" if said else "the same"
            if is_state and (folder / path).exists() and path.name != "initial":
                # That of a client that did not take part again; it is checked when it does.
                (folder / path).write_bytes((begun / path).read_bytes())
            assert_same_run(folder, state, whole, expected)
        found[path.parts[0], outcome] += 1
        shutil.rmtree(folder)
    print(f"\n{FLIPS} flips in {len(files)} files, DAILY_SEED={DAILY_SEED}: {dict(found)}")
