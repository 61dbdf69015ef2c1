"""Rounds in the forms that production stacks take, as files.

TFF compiles a round of one broadcast, client work, one aggregation and server update to

- MapReduceForm: TensorFlow functions for server and client (see `tff.backends.mapreduce`);
- DistributeAggregateForm: the same as TFF computations, which newer stacks take;
- the mergeable form: `up_to_merge` on slices of the clients, `merge` and `after_merge`, which
  spreads a round over several runtimes.
"""

import functools
import inspect
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import whole_files
from tff_ssl.kinds.protocol import RoundToLower
from tff_ssl.runtime import slices


class Form(NamedTuple):
    """A form of a round: its compiler, from the computation `next`, and its class."""

    compile: Callable[[tff.framework.ConcreteComputation], Any]
    kind: type

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the form's computations."""
        return tuple(p for p in inspect.signature(self.kind).parameters if p != _TYPE)


_TYPE = "type_signature"  # Argument of a form's class that is no computation: the type of `next`.
# Graphs stay as they are written, so that a form computes the same bits as the round: TensorFlow's
# optimizations, which each runtime applies itself, rearrange float arithmetic.
_UNCHANGED = tf.compat.v1.ConfigProto()
_UNCHANGED.graph_options.rewrite_options.disable_meta_optimizer = True

FORMS = {
    "map_reduce": Form(
        functools.partial(
            tff.backends.mapreduce.get_map_reduce_form_for_computation, grappler_config=_UNCHANGED
        ),
        tff.backends.mapreduce.MapReduceForm,
    ),
    "distribute_aggregate": Form(
        tff.backends.mapreduce.get_distribute_aggregate_form_for_computation,
        tff.backends.mapreduce.DistributeAggregateForm,
    ),
    "mergeable": Form(
        tff.backends.native.compile_to_mergeable_comp_form, tff.framework.MergeableCompForm
    ),
}

# Parts of TFF's error messages, which print pages of types -> messages of this package.
_REASONS = {
    "broadcast dependent on aggregate": "two stages: what is broadcast in the second depends on "
    "the aggregate of the first",
    "one aggregate dependent on another": "two stages: what is aggregated in the second depends on "
    "the aggregate of the first",
    "to not contain `tff.FederatedType`s or `tff.FunctionType`s": "it collects rows of single "
    "clients by tff.federated_aggregate, whose functions TFF's compiler to this form does not take",
    "to take two arguments": "it takes more than a server state and the clients' data",
    "to return two values": "it returns other things than a server state and one more value",
}


class Lowered(NamedTuple):
    """A round's forms, and the reasons why it has no others, by name of the form."""

    forms: dict[str, Any]
    reasons: dict[str, str]


def lower(next_round: tff.framework.ConcreteComputation) -> Lowered:
    """Compiles a round to all forms to which it converts."""
    forms, reasons = {}, {}
    for name, form in FORMS.items():
        try:
            forms[name] = form.compile(next_round)
        except Exception as error:  # TFF raises errors of many types.
            reasons[name] = _reason(error)
    return Lowered(forms, reasons)


def _reason(error: Exception) -> str:
    text = str(error)
    for part, message in _REASONS.items():
        if part in text:
            return message
    first = re.split(r"[\n:]", text, maxsplit=1)[0].strip()
    return f"{type(error).__name__}: {first[:200]}"


def save(folder: pathlib.Path, lowerable: RoundToLower, lowered: Lowered) -> list[pathlib.Path]:
    """Writes a round as `initialize.pb` and `next.pb`, and each of its forms as a folder.

    Returns the paths of the files, which are serialized `computation_pb2.Computation`s.
    """
    parts = {folder / "next.pb": lowerable.next}
    if lowerable.initialize is not None:
        parts[folder / "initialize.pb"] = lowerable.initialize
    for name, form in lowered.forms.items():
        parts |= {folder / name / f"{part}.pb": getattr(form, part) for part in FORMS[name].parts}
    for path, computation in parts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_files.write(path, slices.serialize(computation))
    return list(parts)


def load_computation(path: pathlib.Path | str) -> tff.framework.ConcreteComputation:
    """Reads a file that `save` wrote. Its structs have names, but no Python classes."""
    return slices.deserialize(pathlib.Path(path).read_bytes())


def load_form(folder: pathlib.Path | str) -> Any:
    """Reads a form that `save` wrote, from the folder of that name."""
    folder = pathlib.Path(folder)
    form = FORMS[folder.name]
    arguments: dict[str, Any] = {p: load_computation(folder / f"{p}.pb") for p in form.parts}
    if _TYPE in inspect.signature(form.kind).parameters:
        arguments[_TYPE] = load_computation(folder.parent / "next.pb").type_signature
    return form.kind(**arguments)
