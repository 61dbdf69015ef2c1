"""A prepared TFDS set runs no code that its folder names."""

import json
import sys

import pytest

from datasets import catalog, tfds_features
from datasets.errors import DatasetError

OWN = "tensorflow_datasets.core.features"
IMAGE = {"pythonClassName": f"{OWN}.image_feature.Image", "image": {"shape": {}, "dtype": "uint8"}}
LABEL = {"pythonClassName": f"{OWN}.class_label_feature.ClassLabel", "classLabel": {}}


def in_dict(feature):
    return {
        "pythonClassName": f"{OWN}.features_dict.FeaturesDict",
        "featuresDict": {"features": {"image": IMAGE, "label": LABEL, "type": feature}},
    }


def in_sequence(feature):
    name = f"{OWN}.sequence_feature.Sequence"
    return {"pythonClassName": name, "sequence": {"feature": feature, "length": "-1"}}


def legacy(feature, **further):
    name = f"{OWN}.features_dict.FeaturesDict"
    return {"type": name, "content": {"image": feature}, **further}


FORMS = {
    "alone": lambda payload: {"pythonClassName": payload, "featuresDict": {}},
    "other spelling": lambda payload: in_dict({"python_class_name": payload}),
    "in a sequence": lambda payload: in_dict(in_sequence({"pythonClassName": payload})),
    "legacy": lambda payload: legacy({"type": payload, "content": {}}),
    "legacy alone": lambda payload: {"type": payload, "content": {}},
    "legacy in a text": lambda payload: legacy(
        {
            "type": f"{OWN}.features_dict.FeaturesDict",
            "proto_cls": "tensorflow_datasets.FeaturesDict",
            "content": json.dumps({"features": {"x": {"pythonClassName": payload}}}),
        }
    ),
    "in JSON in the new format": lambda payload: in_dict(
        {
            "pythonClassName": f"{OWN}.features_dict.FeaturesDict",
            "jsonFeature": {"json": json.dumps({"x": {"type": payload, "content": {}}})},
        }
    ),
    "a class of TFDS's own modules": lambda payload: in_dict(
        {"pythonClassName": "tensorflow_datasets.testing.mocking.Payload"}
    ),
    "a list": lambda payload: {"type": [payload], "content": {}},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_set_that_names_code_is_refused_and_the_code_does_not_run(form, tmp_path, monkeypatch):
    module = f"payload_{abs(hash(form))}"
    (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "mnist" / "1.0.0"
    folder.mkdir(parents=True)
    info = {"name": "mnist", "version": "1.0.0", "splits": [], "moduleName": f"{module}.x"}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    (folder / "features.json").write_text(json.dumps(FORMS[form](f"{module}.Payload")))
    with pytest.raises(
        DatasetError, match=r"^data_dir: \S+json names the class .*Payload"
    ) as caught:
        catalog.load("mnist", tmp_path)
    assert "\n" not in str(caught.value)
    assert module not in sys.modules
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_set_whose_information_names_a_module_does_not_run_it(tmp_path, monkeypatch):
    (tmp_path / "payload_of_info.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "mnist" / "1.0.0"
    folder.mkdir(parents=True)
    info = {"name": "mnist", "version": "1.0.0", "moduleName": "payload_of_info.x"}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    label = {"pythonClassName": f"{OWN}.scalar.Scalar", "tensor": {"dtype": "int64"}}
    (folder / "features.json").write_text(json.dumps(in_dict(label)))
    with pytest.raises(DatasetError, match=r"dataset mnist has|cannot be read"):
        catalog.load("mnist", tmp_path)
    assert "payload_of_info" not in sys.modules


def test_descriptions_are_no_classes(tmp_path):
    tfds_features.check(tmp_path)  # Without the file.
    feature = {**IMAGE, "description": "[a photograph] of `type`: x.y", "type": {}}
    for content in (in_dict(feature), in_sequence(in_dict(LABEL)), legacy({})):
        (tmp_path / "features.json").write_text(json.dumps(content))
        tfds_features.check(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_one_line(tmp_path, content):
    (tmp_path / "features.json").write_bytes(content)
    with pytest.raises(DatasetError, match=r"features\.json cannot be read"):
        tfds_features.check(tmp_path)


@pytest.mark.slow
def test_all_of_tfdss_classes_are_known():
    import tensorflow_datasets  # noqa: F401
    from tensorflow_datasets.core.features import feature

    ours = {name for name in feature.FeatureConnector._registered_features if name.startswith(OWN)}
    # The class of the whole is abstract.
    assert ours == tfds_features._KNOWN | {f"{OWN}.top_level_feature.TopLevelFeature"}
