"""What the runtimes share: the compiler, the execution contexts, and the default context.

Importing this module replaces TFF's default context, which would start an open worker that
outlives the program.
"""

from typing import Any, NamedTuple

import tensorflow_federated as tff


class Contexts(NamedTuple):
    """The execution contexts of a runtime."""

    context: tff.framework.SyncExecutionContext  #: For calls of computations in Python.
    federated_context: tff.program.NativeFederatedContext  #: For programs of `tff.program`.


def contexts(factory: tff.framework.ExecutorFactory, **transforms: Any) -> Contexts:
    """The execution contexts that run computations on the executors of `factory`.

    `transforms` are TFF's functions for arguments and results, if the executors need any.
    """
    options = {"compiler_fn": compile_computation} | transforms
    return Contexts(
        tff.framework.SyncExecutionContext(factory, **options),
        tff.program.NativeFederatedContext(tff.framework.AsyncExecutionContext(factory, **options)),
    )


def compile_computation(computation: tff.Computation) -> tff.Computation:
    """Compiles for the runtimes; plain sums replace secure ones, which both runtimes lack.

    TFF's own compiler (`desugar_and_transform_to_native`) also optimizes all graphs, which takes
    seconds at the start of a run and makes rounds no faster: TensorFlow optimizes what it runs.
    """
    plain = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    desugared, _ = tff.tensorflow.replace_intrinsics_with_bodies(plain.to_building_block())
    return tff.backends.native.transform_to_native_form(
        tff.framework.ConcreteComputation.from_building_block(desugared)
    )


class _NoRuntime(tff.framework.SyncContext):
    """The default context, which tells how to start a runtime."""

    def invoke(self, comp, arg):
        raise RuntimeError("run TFF computations inside `with tff_ssl.runtime.start():`")


tff.framework.get_context_stack().set_default_context(_NoRuntime())
