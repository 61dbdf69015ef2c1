"""The files for TensorBoard, read by TensorBoard itself."""

import dataclasses
import io

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from launch.pages import run_page, tensorboard_files
from tests.launch.pages import run_folders


@pytest.fixture(scope="module", params=[1, 3])
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorboard")
    dataset = run_folders.images(channels=request.param)
    dataset = dataclasses.replace(dataset, class_names=("a\tb", "b", "c"))
    shown = run_folders.shown(dataset)
    tensorboard_files.write(folder, shown, rounds=7)
    return folder, shown


def test_the_projector_finds_encodings_classes_and_images(written):
    folder, shown = written
    config = ProjectorConfig()
    text_format.Parse((folder / "projector_config.pbtxt").read_text(), config)
    assert [e.tensor_name for e in config.embeddings] == [run_page.TRAINED, run_page.UNTRAINED]
    mapped = shown.sample.mapped
    for embedding in config.embeddings:
        read = np.loadtxt(folder / embedding.tensor_path, delimiter="\t")
        np.testing.assert_allclose(
            read, shown.encodings[embedding.tensor_name].mapped, rtol=1e-4, atol=1e-3
        )
        lines = (folder / embedding.metadata_path).read_text().splitlines()
        assert lines == [("a b", "b", "c")[label] for label in mapped.labels]
        width, height = embedding.sprite.single_image_dim
        sheet = np.asarray(Image.open(folder / embedding.sprite.image_path))
        columns = sheet.shape[1] // width
        assert columns**2 >= len(mapped) > (columns - 1) ** 2
        row, column = divmod(len(mapped) - 1, columns)
        last = sheet[row * height : (row + 1) * height, column * width : (column + 1) * width]
        assert last.mean() == pytest.approx(mapped.images[-1].mean(), abs=3)


def test_views_are_images_under_the_last_round(written):
    folder, shown = written
    events = event_accumulator.EventAccumulator(str(folder), {"tensors": 0})
    events.Reload()
    (tag,) = events.Tags()["tensors"]
    (event,) = events.Tensors(tag)
    assert event.step == 7
    width, height, *pictures = event.tensor_proto.string_val
    assert (int(width), int(height), len(pictures)) == (24, 8, 8)
    first = np.asarray(Image.open(io.BytesIO(pictures[0]))).reshape(8, 24, -1)
    for part, expected in zip(np.split(first, 3, axis=1), shown.views, strict=True):
        np.testing.assert_array_equal(part, expected[0])
