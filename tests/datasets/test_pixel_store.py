"""Pixels in a file: equal to those in memory, bounded memory, and a full or missing disk."""

import os
import sys

import numpy as np
import pytest

from datasets import catalog, pixel_store
from datasets.errors import DatasetError
from datasets.image_dataset import hold_out
from tests import programs

# Loads images, writes them into a client store and hashes them, in 150 MB of memory of its own.
# Pages of files do not count, because the system can drop them.
PROGRAM = """
import resource, sys
import numpy as np
from datasets import catalog, client_store, pixel_store
from launch.outputs import partition_record

if sys.argv[2] == "file":
    pixel_store.LARGEST_IN_MEMORY = 10**6
data = int(open("/proc/self/status").read().split("VmData:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (data + 150_000_000,) * 2)
dataset = catalog.load("npz", sys.argv[1], 64)
train = dataset.train
assert train.images.nbytes > 300_000_000
clients = np.split(np.random.default_rng(0).permutation(len(train)), 100)
client_store.write_store(sys.argv[1] + ".sqlite", train, clients)
print(partition_record.data_digests(dataset, clients)["the images"])
"""


def backed_by_file(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_images_in_a_file_equal_those_in_memory(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (40, 17, 16, 3), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(40) % 4)
    in_memory = catalog.load("npz", tmp_path / "a.npz")
    monkeypatch.setattr(pixel_store, "LARGEST_IN_MEMORY", 1000)
    monkeypatch.setattr(pixel_store, "_BLOCK", 7)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    in_file = catalog.load("npz", tmp_path / "a.npz")
    for memory, file in ((in_memory.train, in_file.train), (in_memory.test, in_file.test)):
        assert backed_by_file(file.images)
        assert not backed_by_file(memory.images)
        assert np.array_equal(memory.images, file.images)
        assert np.array_equal(memory.labels, file.labels)
    for one, other in zip(hold_out(in_memory.train), hold_out(in_file.train), strict=True):
        assert np.array_equal(one.images, other.images)
        assert backed_by_file(other.images)
    assert os.listdir(tmp_path) == ["a.npz"]


def test_a_folder_that_cannot_hold_the_pixels(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(DatasetError, match=r"TMPDIR=.*no file of 1000000.0 GB.*set TMPDIR"):
        pixel_store.empty((10**6, 10**5, 10**4))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(DatasetError, match="No such file"):
        pixel_store.empty((2, 2**30, 1))


@pytest.mark.long
@pytest.mark.slow
def test_300_mb_of_images_need_little_memory(tmp_path, project_root):
    path = tmp_path / "a.npz"
    images = np.tile(
        np.random.default_rng(0).integers(0, 256, (250, 64, 64, 3), np.uint8), (100, 1, 1, 1)
    )
    np.savez(path, images=images)

    def run(place):
        return programs.run(
            [sys.executable, "-c", PROGRAM, path, place],
            cwd=project_root, capture_output=True, text=True, check=False, timeout=600,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )  # fmt: skip

    done = run("file")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == 32
    assert "MemoryError" in run("memory").stderr
