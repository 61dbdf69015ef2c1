"""The size of micro-batches on a GPU, and after a round that does not fit into memory."""

import json

import numpy as np
import pytest

from datasets.image_dataset import ImageDataset, Split
from launch.options import algorithm
from launch.runs import federated, micro_batches, runtimes
from tests.launch import configs
from tff_ssl.errors import OutOfMemoryError
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.runtime.devices import Gpu
from tff_ssl.templates.micro_batches import largest_that_fits

SMALL = Gpu("small", (8, 0), 6 * 1024)
LARGE = Gpu("large", (9, 0), 140 * 1024)
ERROR = OutOfMemoryError("OOM when allocating tensor")


@pytest.fixture
def dataset():
    return toy(8192)


def toy(count):
    images = np.zeros([count, 32, 32, 3], np.uint8)
    split = Split(images, np.arange(count, dtype=np.int32) % 4, np.arange(count))
    return ImageDataset("toy", split, split, tuple("abcd"))


def chosen(*hparams, name="dcco"):
    flags = [f"--hparam={text}" for text in hparams]
    return algorithm.choose(configs.run(f"--algorithm={name}", "--encoder=tiny", *flags))


def test_memory_decides_on_a_gpu(dataset):
    sizes = [micro_batches.fit(chosen(), dataset, gpu) for gpu in (None, SMALL, LARGE)]
    default, small, large = (size.values.micro_batch_size for size in sizes)
    assert default == 32 < small < large <= 4096


def test_micro_batches_are_not_larger_than_the_data():
    assert micro_batches.fit(chosen(), toy(100), LARGE).values.micro_batch_size == 100


@pytest.mark.parametrize(
    ("hparams", "is_given"),
    [
        (["micro_batch_size=16"], True),
        (["micro_batch_size=auto"], False),
        (["micro_batch_size = auto"], False),
        (["micro_batch_size=auto", "micro_batch_size=16"], True),
        (["micro_batch_size=16", "micro_batch_size=auto"], False),
    ],
)
def test_a_given_size_is_kept(dataset, hparams, is_given):
    on_cpu = chosen(*hparams)
    assert on_cpu.values.micro_batch_size == (16 if is_given else 32)
    assert (micro_batches.fit(on_cpu, dataset, LARGE) is on_cpu) == is_given


@pytest.mark.parametrize("name", ["gossip", "fedavg"])  # FedAvg has local steps by default.
def test_rounds_without_micro_batches_are_left_alone(dataset, name):
    without = chosen(name=name)
    assert micro_batches.fit(without, dataset, LARGE) is without


def test_one_step_of_fedavg_has_micro_batches(dataset):
    one_step = chosen("local_epochs=1", "batch_size=0", name="fedavg")
    assert micro_batches.fit(one_step, dataset, LARGE).values.micro_batch_size > 32


def test_larger_images_get_smaller_micro_batches():
    model, wide = (DualEncoder("tiny", (side, side, 3)) for side in (16, 32))
    gib = 2**30
    fitting = largest_that_fits(model, gib)
    assert fitting == 2 * largest_that_fits(model, gib // 2)
    assert largest_that_fits(wide, gib) <= fitting / 2
    assert largest_that_fits(model, 1) == 1


def test_a_round_that_does_not_fit_runs_again_with_half_the_size(capsys):
    assert micro_batches.halve(chosen(), ERROR).values.micro_batch_size == 16
    assert capsys.readouterr().out.count("micro_batch_size=16") == 1


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (lambda: chosen("micro_batch_size=16"), "--hparam=micro_batch_size=N"),
        (lambda: chosen(name="gossip"), "--hparam=batch_size=N"),
        (lambda: chosen(name="fedavg"), "--hparam=batch_size=N"),
    ],
)
def test_other_settings_that_need_too_much_are_named(choice, words):
    with pytest.raises(OutOfMemoryError, match=words):
        micro_batches.halve(choice(), ERROR)


@pytest.mark.long
def test_training_starts_again_until_it_fits(tmp_path, monkeypatch, capsys):
    sizes = []

    def train(built, run, dataset, folder, runtime):
        sizes.append(built.chosen.values.micro_batch_size)
        if len(sizes) < 3:
            raise ERROR

    gpu = runtimes.Chosen("in_process", "a GPU", Gpu("large", (9, 0), 1 << 20))
    monkeypatch.setattr(federated.runtimes, "choose", lambda *_: gpu)
    folder = tmp_path / "run"
    federated.run(configs.run("--encoder=tiny", f"--output_dir={folder}"), train)
    assert sizes == [1438, 719, 359]  # The digits have 1438 training images.
    assert capsys.readouterr().out.count("does not fit into memory") == 2
    assert "micro_batch_size" not in json.dumps(json.loads((folder / "config.json").read_text()))
