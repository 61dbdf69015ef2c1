"""PyTorch's files in both formats, written here without PyTorch, and files that are none."""

import collections
import io
import os
import pickle
import struct
import sys
import types
import zipfile

import numpy as np
import pytest

from tff_ssl.deployment import torch_file
from tff_ssl.errors import ConfigurationError

VALUES = {
    "weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "turned": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    "count": np.array(7, np.int64),
}
KINDS = {"f": {4: "FloatStorage", 8: "DoubleStorage"}, "i": {8: "LongStorage"}}


class _Storage:
    def __init__(self, key, array):
        self.key, self.array = key, array


class _Tensor:
    def __init__(self, storage, array):
        self.storage, self.array = storage, array

    def __reduce__(self):
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        arguments = (self.storage, 0, self.array.shape, strides, False, collections.OrderedDict())
        return sys.modules["torch._utils"]._rebuild_tensor_v2, arguments


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    """Modules with the names that PyTorch's pickles have."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*arguments):
        raise AssertionError

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2, torch._utils = _rebuild_tensor_v2, utils
    for name in ("FloatStorage", "DoubleStorage", "LongStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch", "__qualname__": name}))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    return torch


def pickled(torch, content):
    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, _Storage):
                return None
            kind = getattr(torch, KINDS[value.array.dtype.kind][value.array.itemsize])
            return ("storage", kind, value.key, "cpu", value.array.size, None)

    file = io.BytesIO()
    Pickler(file, 2).dump(content)
    return file.getvalue()


def tensors():
    storages = [_Storage(str(k), array) for k, array in enumerate(VALUES.values())]
    content = collections.OrderedDict(
        (name, _Tensor(storage, storage.array))
        for name, storage in zip(VALUES, storages, strict=True)
    )
    return content, storages


def raw(array):
    return array.tobytes(order="A")


def write_earlier(torch, path, content, storages):
    parts = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {})]
    parts += [pickled(torch, content), pickle.dumps([storage.key for storage in storages], 2)]
    for storage in storages:
        parts += [struct.pack("<q", storage.array.size), raw(storage.array)]
    path.write_bytes(b"".join(parts))


def write_archive(torch, path, content, storages):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(torch, content))
        for storage in storages:
            archive.writestr(f"archive/data/{storage.key}", raw(storage.array))


@pytest.mark.parametrize("write", [write_earlier, write_archive])
def test_tensors_are_read(torch, tmp_path, write):
    write(torch, tmp_path / "a.pth", *tensors())
    read = torch_file.read(tmp_path / "a.pth")
    assert read.keys() == VALUES.keys()
    for name, value in VALUES.items():
        np.testing.assert_array_equal(read[name], value)


@pytest.mark.parametrize("write", [write_earlier, write_archive])
def test_nothing_else_is_called(torch, tmp_path, write):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    write(torch, tmp_path / "a.pth", collections.OrderedDict(x=Evil()), [])
    with pytest.raises(ConfigurationError, match=r"it names \w+.mkdir, which is no tensor"):
        torch_file.read(tmp_path / "a.pth")
    assert not (tmp_path / "made").exists()


def test_a_tensor_outside_of_its_numbers(torch, tmp_path):
    content, storages = tensors()
    storages[0].array = storages[0].array.ravel()[:20]
    write_archive(torch, tmp_path / "a.pth", content, storages)
    with pytest.raises(ConfigurationError, match="outside of its numbers"):
        torch_file.read(tmp_path / "a.pth")


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps(3), pickle.dumps({"a": 1})])
def test_other_files(tmp_path, content):
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(ConfigurationError, match="holds no weights of PyTorch"):
        torch_file.read(tmp_path / "a.pth")
    with pytest.raises(ConfigurationError, match="is missing"):
        torch_file.read(tmp_path / "b.pth")
