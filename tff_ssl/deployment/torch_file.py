"""Reads files of weights that PyTorch wrote, without PyTorch and without running their programs.

A file is a pickle, which may name any function to call. Here only the names of tensors of numbers
and of the dictionary that holds them are known. Both of PyTorch's formats are read: the one since
1.6, a ZIP archive, and the earlier one.
"""

import collections
import os
import pathlib
import pickle
import zipfile
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tff_ssl.errors import ConfigurationError

_MAGIC = 0x1950A86A20F9469CFC6C  # Of the earlier format.
_TYPES: dict[str, np.dtype[Any]] = {
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "HalfStorage": np.dtype("<f2"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
}
_ERRORS = (pickle.UnpicklingError, ValueError, LookupError, EOFError, TypeError, OSError,
           AttributeError, zipfile.BadZipFile)  # fmt: skip


class _Storage(NamedTuple):
    """Numbers that tensors show: their type, their key in the file, and their number."""

    kind: str
    key: str
    length: int


class _Tensor(NamedTuple):
    """A view of a storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *rest: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _TYPES:
            return name
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no tensor of numbers")

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, key, _, count = pid[:5]
        return _Storage(kind, key, count)


def read(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """The tensors of a file by name.

    Raises:
      ConfigurationError: If there is no such file, or it holds something else than tensors.
    """
    path = pathlib.Path(path)
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as archive:
                    return _read_archive(archive)
            file.seek(0)
            return _read_earlier(file)
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path} is missing") from error
    except _ERRORS as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"{path} holds no weights of PyTorch: {reason}") from error


def _read_archive(archive: zipfile.ZipFile) -> dict[str, npt.NDArray[Any]]:
    (name,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
    with archive.open(name) as file:
        tensors = _check(_Unpickler(file).load())
    folder = name.removesuffix("data.pkl")
    storages = {
        t.storage.key: archive.read(f"{folder}data/{t.storage.key}") for t in tensors.values()
    }
    return {name: _array(tensor, storages) for name, tensor in tensors.items()}


def _read_earlier(file: IO[bytes]) -> dict[str, npt.NDArray[Any]]:
    if _Unpickler(file).load() != _MAGIC:
        raise ValueError("it does not begin as PyTorch's files do")
    _Unpickler(file).load()  # Version of the format.
    _Unpickler(file).load()  # Sizes of types on the writer's machine.
    tensors = _check(_Unpickler(file).load())
    known = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    storages = {}
    for key in _Unpickler(file).load():
        count = int.from_bytes(file.read(8), "little")
        if count != known[key].length:
            raise ValueError("the sizes of its tensors differ")
        storages[key] = file.read(count * _TYPES[known[key].kind].itemsize)
    return {name: _array(tensor, storages) for name, tensor in tensors.items()}


def _check(content: Any) -> dict[str, _Tensor]:
    """The content of a file, a dictionary of tensors."""
    if not isinstance(content, dict) or not all(isinstance(t, _Tensor) for t in content.values()):
        raise ValueError("it is not a dictionary of tensors")
    return content


def _array(tensor: _Tensor, storages: dict[str, bytes]) -> npt.NDArray[Any]:
    """A copy of a tensor's numbers, whose place in its storage is checked."""
    storage, offset, shape, strides = tensor
    numbers = np.frombuffer(storages[storage.key], _TYPES[storage.kind])
    if any(n < 0 for n in (offset, *shape, *strides)):
        raise ValueError("a tensor lies outside of its numbers")
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if 0 not in shape and last >= len(numbers):
        raise ValueError("a tensor lies outside of its numbers")
    in_bytes = [stride * numbers.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(numbers[offset:], shape, in_bytes).copy()
