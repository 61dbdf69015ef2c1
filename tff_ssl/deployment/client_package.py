"""A client and its server as SavedModels that need TensorFlow and nothing else.

A package is a folder with

- `saved_model.pb`: the client's part, a signature for each stage of a round. It is traced from the
  functions from which the TFF computations are traced;
- `server/`: the server's part, three signatures for each stage S. `broadcast_S` gives what clients
  receive from the server's state; `aggregate_S` divides sums over clients by sums of weights; and
  `server_S` gives the state after the stage, and metrics. `encode` gives the features of images by
  the global encoder, if there is one;
- `arrays.npz`: the server's state (`server/NAME`), and that of a client before its first round
  (`client/NAME`);
- `manifest.json`: names, shapes and dtypes of all values, bytes, hyperparameters, what messages
  reveal, and digests of the files.

`tff_ssl.client` loads it without TFF. All values are arrays with names, such as
`weights_trainable_0`.
"""

import hashlib
import itertools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.lite.python import schema_py_generated

from tff_ssl import client, whole_files
from tff_ssl.errors import ConfigurationError
from tff_ssl.templates.stages import Mean, Stage, SumRule
from tff_ssl.views import seeds

WEIGHTING = (
    "A mean over clients is the sum of value times weight, divided by the sum of the weights. "
    "`weight` names the weight of each value in `up`; values without one are summed."
)
MISSING_CLIENTS = (
    "A client that does not answer is left out of the sums of its stage. If a round has two stages "
    "and a client answers only the first, its statistics count, and the mean of the others' "
    "updates stands for that of the whole cohort (Horvitz and Thompson): each client has scaled "
    "its update by its weight over the mean weight of the first stage. A client whose values are "
    "not finite sends zeros of weight 0, and counts in `dropped`."
)
_REVEALS = {
    "statistics": "Means and second moments of the client's encodings, and its number of images. "
    "The server needs sums over clients only, so that secure aggregation can hide each client's.",
    "update": "What the client's images change in the model, from which images of a client with "
    "few of them may be reconstructed, its loss and its number of images. The server needs sums "
    "over clients only, so that secure aggregation can hide each client's.",
}


# (server's state, images uint8 [n, height, width, channels]) -> features float32 [n, features].
Encode = Callable[[Any, tf.Tensor], tf.Tensor]


class Named(NamedTuple):
    """A structure of arrays, tensors or specs as named values."""

    values: dict[str, Any]
    #: Values by name, among others -> the structure.
    pack: Callable[[Mapping[str, Any]], Any]


def name_values(structure: Any, prefix: str = "") -> Named:
    """The leaves of a structure, named by their places in it, such as `trainable_0`."""
    paths = [path for path, _ in tree.flatten_with_path(structure)]
    names = ["_".join(map(str, [prefix, *path] if prefix else path)) for path in paths]
    return Named(
        dict(zip(names, tree.flatten(structure), strict=True)),
        lambda values: tree.unflatten_as(structure, [values[name] for name in names]),
    )


def write(
    folder: pathlib.Path,
    stages: Sequence[Stage],
    server_state: Any,
    client_state: Any,
    image_shape: tuple[int, int, int],
    description: Mapping[str, Any],
    rules: Mapping[str, SumRule] = MappingProxyType({}),
    encode: Encode | None = None,
) -> dict[str, Any]:
    """Writes a package into an empty folder, and returns its manifest.

    Args:
      stages: Stages of a round.
      server_state: The server's state, a structure of arrays.
      client_state: State of a client before its first round; () if clients keep none.
      image_shape: Height, width and channels of the clients' uint8 images.
      description: Further entries of the manifest.
      rules: Rules of the means, by name, that are not plain.
      encode: The global encoder; None if there is none.

    Raises:
      ConfigurationError: If something in it draws random numbers from a fixed seed.
    """
    server, of_client = name_values(server_state), name_values(client_state, "state")
    works = {
        stage.name: _Work(stage, server_state, of_client, image_shape, rules) for stage in stages
    }
    of_server: dict[str, Any] = {}
    for stage in stages:
        of_server |= _server_signatures(stage, server, works[stage.name])
    if encode:
        of_server[client.ENCODE] = _encoder_signature(encode, server, image_shape)
    _save(folder, {name: work.function for name, work in works.items()})
    _save(folder / "server", of_server)
    arrays = {f"server/{name}": value for name, value in server.values.items()}
    np.savez(
        folder / client.ARRAYS,
        **arrays | {f"client/{name}": value for name, value in of_client.values.items()},
    )
    manifest = {
        "format": client.FORMAT,
        "version": client.VERSION,
        **description,
        "image_shape": list(image_shape),
        "stages": [works[stage.name].describe() for stage in stages],
        "server_state": _describe(server.values),
        "client_state": _describe(of_client.values),
        "weighting": WEIGHTING,
        "missing_clients": MISSING_CLIENTS,
    }
    write_manifest(folder, manifest)
    return manifest


def to_tflite(folder: pathlib.Path, manifest: Mapping[str, Any]) -> pathlib.Path:
    """Converts the client's part of a package to LiteRT, in `client.tflite`; returns its path.

    It has the same signatures. Operations that LiteRT lacks are TensorFlow's ("select").
    """
    names = [stage["name"] for stage in manifest["stages"]]
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=names)
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS,
    ]  # fmt: skip
    path = folder / client.LITE
    path.write_bytes(converter.convert())
    return path


def select_operations(model: bytes) -> list[str]:
    """Names of the operations of TensorFlow that a LiteRT model uses."""
    parsed = schema_py_generated.ModelT.InitFromObj(
        schema_py_generated.Model.GetRootAsModel(model, 0)
    )
    codes = [code.customCode.decode() for code in parsed.operatorCodes if code.customCode]
    return sorted({code.removeprefix("Flex") for code in codes if code.startswith("Flex")})


def write_manifest(folder: pathlib.Path, manifest: Mapping[str, Any]) -> None:
    """Writes `manifest.json`, with the digests of all other files of the package."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    digests = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name != client.MANIFEST
    }
    text = json.dumps({**manifest, "sha256": digests}, indent=1)
    whole_files.write(folder / client.MANIFEST, text + "\n")


class _Work:
    """What a client computes in a stage, as a signature.

    Attributes:
      function: Concrete function: what the client receives and its state, `images`, `example_ids`
        and `seed` -> what it sends, and its new state.
      weight_of: Name of a value that it sends -> that of its weight; None for a sum.
      means: Values of each mean, by name.
      sums: Values that are summed.
      rules: Rules of the means that are not plain.
    """

    def __init__(
        self,
        stage: Stage,
        server_state: Any,
        state: Named,
        image_shape: tuple[int, int, int],
        rules: Mapping[str, SumRule],
    ):
        self._stage, self._state, self.rules = stage, state, rules
        self._received = name_values(dict(stage.received(server_state)))
        self.weight_of: dict[str, str | None] = {}
        self.means: dict[str, Named] = {}
        self.sums = name_values({})
        inputs = {
            **self._received.values,
            **state.values,
            "images": tf.TensorSpec([None, *image_shape], tf.uint8),
            "example_ids": tf.TensorSpec([None], tf.int64),
            "seed": tf.TensorSpec([], tf.int64),
        }
        self.function = _traced(self._call, inputs)

    def _call(self, values: Mapping[str, Any]) -> dict[str, Any]:
        examples = {"example_id": values["example_ids"], "image": values["images"]}
        with seeds.from_input(values["seed"]):
            upload = self._stage.work(
                self._received.pack(values), self._state.pack(values), examples
            )
        self.sums = name_values(dict(upload.sums))
        self.weight_of = dict.fromkeys(self.sums.values)
        sent = dict(self.sums.values)
        for name, mean in upload.means.items():
            weight, rule = f"{name}_weight", self.rules.get(name)
            added = rule.prepare(*mean) if rule else mean.value
            self.means[name] = name_values(added, name)
            of_values = dict.fromkeys(self.means[name].values, None if rule else weight)
            self.weight_of |= {**of_values, weight: None}
            sent |= {**self.means[name].values, weight: mean.weight}
        return sent | name_values(upload.state, "state").values

    @property
    def sent(self) -> dict[str, Any]:
        """Specs of what the client sends, by name."""
        outputs = self.function.structured_outputs
        return {name: outputs[name] for name in self.weight_of}

    def describe(self) -> dict[str, Any]:
        """The stage's entry of the manifest."""
        down, up = _describe(self._received.values), _describe(self.sent)
        for entry in up:
            entry["weight"] = self.weight_of[entry["name"]]
        return {
            "name": self._stage.name,
            "down": down,
            "up": up,
            "bytes_down": _bytes(self._received.values),
            "bytes_up": _bytes(self.sent),
            "reveals": _REVEALS[self._stage.name],
        }


def _server_signatures(stage: Stage, server: Named, work: _Work) -> dict[str, Any]:
    """The server's part of a stage; see the module."""

    def broadcast(values: Mapping[str, Any]) -> dict[str, Any]:
        return name_values(dict(stage.received(server.pack(values)))).values

    def aggregate(sums: Mapping[str, Any]) -> dict[str, Any]:
        means = {
            name: sums[name] if weight is None else sums[name] / sums[weight]
            for name, weight in work.weight_of.items()
        }
        for name, rule in work.rules.items():
            if name in work.means:
                means |= name_values(rule.mean(work.means[name].pack(sums)), name).values
        return means

    def finish(values: Mapping[str, Any]) -> dict[str, Any]:
        means = {
            name: Mean(of_mean.pack(values), values[f"{name}_weight"])
            for name, of_mean in work.means.items()
        }
        new, metrics = stage.finish(server.pack(values), means, work.sums.pack(values))
        of_metrics = {f"{client.METRIC}{name}": value for name, value in metrics.items()}
        return name_values(new).values | of_metrics

    return {
        f"broadcast_{stage.name}": _traced(broadcast, server.values),
        f"aggregate_{stage.name}": _traced(aggregate, work.sent),
        f"server_{stage.name}": _traced(finish, server.values | work.sent),
    }


def _encoder_signature(encode: Encode, server: Named, image_shape: tuple[int, int, int]) -> Any:
    def call(values: Mapping[str, Any]) -> dict[str, Any]:
        return {"features": encode(server.pack(values), values["images"])}

    images = tf.TensorSpec([None, *image_shape], tf.uint8)
    return _traced(call, server.values | {"images": images})


def _traced(function: Callable[[Mapping[str, Any]], dict[str, Any]], inputs: Mapping[str, Any]):
    """A function of named values as a concrete function; inputs have shapes and dtypes."""

    def call(**values):
        # The graph has taken over the program's global seed, from which anyone who has the package
        # could compute the noise. This resets the graph's seed alone.
        tf.random.set_seed(None)
        return {name: tf.identity(value) for name, value in function(values).items()}

    specs = {name: tf.TensorSpec(v.shape, v.dtype, name) for name, v in inputs.items()}
    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _save(folder: pathlib.Path, signatures: dict[str, Any]) -> None:
    module = tf.Module()
    # A SavedModel keeps the functions that its module has.
    module.functions = list(signatures.values())
    tf.saved_model.save(module, str(folder), signatures=signatures)
    _check_seeds(folder)


def _check_seeds(folder: pathlib.Path) -> None:
    """Rejects a saved model whose random numbers anyone who has it could compute.

    Stateless operations are allowed: their seed is an input.
    """
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    for graph in (each.graph_def for each in saved.meta_graphs):
        nodes = [graph.node, *(function.node_def for function in graph.library.function)]
        for node in itertools.chain(*nodes):
            if node.attr["seed"].i or node.attr["seed2"].i:
                raise ConfigurationError(
                    f"a client package cannot hold {node.op} ({node.name}) with a fixed seed, from "
                    "which its random numbers can be computed: leave the seed out"
                )


def _describe(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Name, shape and dtype of each value; null stands for any number."""
    return [
        {"name": n, "shape": list(v.shape), "dtype": tf.as_dtype(v.dtype).name}
        for n, v in values.items()
    ]


def _bytes(values: Mapping[str, Any]) -> int:
    return sum(
        int(np.prod(v.shape, dtype=np.int64)) * tf.as_dtype(v.dtype).size for v in values.values()
    )
