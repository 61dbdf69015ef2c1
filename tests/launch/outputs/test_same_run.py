"""Runs that are resumed with another configuration, or other data, than they were begun with."""

import dataclasses
import json
import random

import numpy as np
import pytest

from datasets.image_dataset import ImageDataset, Split
from launch.outputs import partition_record, run_folder, same_run
from tff_ssl.errors import ConfigurationError

CONFIG = {
    "script": "pretrain", "output": {"seed": 0}, "data": {"dataset": "toy"}, "eval_every": 2,
    "participation": {"rounds": 4, "clients_per_round": 8}, "algorithm": {"hparam": ["lambda=2"]},
}  # fmt: skip


def toy(images=12):
    rng = np.random.default_rng(0)

    def split(count, first):
        pixels = rng.integers(0, 256, (count, 4, 4, 1)).astype(np.uint8)
        cases = np.array([f"case {i // 2}" for i in range(count)], object)
        labels = np.arange(count, dtype=np.int32) % 2
        return Split(pixels, labels, np.arange(first, first + count, dtype=np.int64), cases)

    return ImageDataset("toy", split(images, 0), split(4, images), ("a", "b"))


def of_train(**changes):
    data = toy()
    return dataclasses.replace(data, train=dataclasses.replace(data.train, **changes))


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        (toy(), set()),
        (of_train(labels=1 - toy().train.labels), {"the labels"}),
        (dataclasses.replace(toy(), class_names=("b", "a")), {"the labels"}),
        (of_train(images=255 - toy().train.images), {"the images"}),
        (of_train(case_ids=np.full(12, "one", object)), {"the cases"}),
        (dataclasses.replace(toy(), test=toy().train), {"the test images"}),
        (dataclasses.replace(toy(), validation=toy().test), {"the test images"}),
        (toy(13), {"the images", "the labels", "the cases", "the test images"}),
    ],
)
def test_the_parts_of_the_data_that_differ(changed, parts):
    before, now = (partition_record.data_digests(data) for data in (toy(), changed))
    assert {part for part in before if before[part] != now[part]} == parts


def open_run(folder, data, clients_per_round=8, given=()):
    config = json.loads(json.dumps(CONFIG))
    config["participation"]["clients_per_round"] = clients_per_round
    digests = partition_record.data_digests(data)
    run_folder.open_run(folder, config, given, resume=True, data=digests)


def test_other_data_are_the_reason_where_the_run_itself_chose_another_flag(tmp_path):
    open_run(tmp_path, toy())
    open_run(tmp_path, toy())
    with pytest.raises(
        ConfigurationError, match=r"^--resume: the images, .* and the .* begun: put"
    ):
        open_run(tmp_path, toy(13), clients_per_round=9)
    with pytest.raises(ConfigurationError, match=r"--clients_per_round=9 \(the run has 8\)$"):
        open_run(tmp_path, toy(13), clients_per_round=9, given=["clients_per_round"])
    with pytest.raises(ConfigurationError, match=r"--clients_per_round=9 \(the run has 8\)$"):
        open_run(tmp_path, toy(), clients_per_round=9)


def test_any_flipped_bit_of_the_configuration_is_an_error(tmp_path):
    open_run(tmp_path, toy())
    path, chance = tmp_path / "config.json", random.Random(0)
    whole = path.read_bytes()
    for position in (*chance.sample(range(len(whole) - 1), 300), whole.index(b"lambda=2") + 7):
        changed = bytearray(whole)
        changed[position] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            before = run_folder.read_config(tmp_path)
            same = json.loads(changed) == json.loads(whole)  # A flipped space.
        except ConfigurationError:
            continue
        assert same or before["is_changed"] or "digest" not in before, bytes(changed)
    path.write_bytes(whole.replace(b"lambda=2", b"lambda=3"))
    with pytest.raises(ConfigurationError, match=r"config.json was changed since the run wrote it"):
        open_run(tmp_path, toy())
    content = json.loads(path.read_bytes())
    del content["digest"]  # As earlier releases wrote it.
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match=r"--hparam=\['lambda=2'\] \(the run has"):
        open_run(tmp_path, toy())


@pytest.mark.parametrize("division", [{}, {"ray": "local:2"}, {"slices": 4}])
def test_ray_continues_only_rounds_that_were_cut_into_slices(tmp_path, division):
    flags = {"script": "pretrain", "ray": None, "slices": 0, "rounds": 4, **division}
    now = {**flags, "ray": "local:3"}
    if division:
        same_run.check(tmp_path, {"flags": flags}, now, ["ray"], {})
    else:
        with pytest.raises(ConfigurationError, match="continue it without --ray"):
            same_run.check(tmp_path, {"flags": flags}, now, ["ray"], {})


def test_the_digest_of_the_training_is_of_the_flags_that_determine_it():
    flags = {"lambda": 2.0, "seed": 0, "rounds": 4, "hparam": ["a=1", "b=2"], "ray": None}
    digest = same_run.training_digest(flags)
    for same in ({"rounds": 9}, {"labels": [3]}, {"ray": "local:2"}, {"later": None},
                 {"hparam": ["a=2", "b=2", "a=1"]}):  # fmt: skip
        assert same_run.training_digest(flags | same) == digest
    for other in ({"lambda": 3.0}, {"seed": 1}, {"hparam": ["a=1"]}, {"later": 0}):
        assert same_run.training_digest(flags | other) != digest
