"""Whether a round of DCCO equals a centralized step on the device at hand, up to rounding."""

import pathlib
from typing import Any

from launch.benchmarks import programs


def compare(
    encoder: str, images: int, seed: int, scratch: str, exact: bool, xla: bool = False
) -> dict[str, Any]:
    """The largest difference between a round of DCCO and a centralized step, and its tolerance.

    `exact` means float32 without TF32, and `xla` that XLA compiles the model of the round, but not
    that of the step. Both start from the same weights, and the server takes a step of SGD with rate
    1, so that the weights change by the gradient.

    The tolerance is derived: products round each factor by at most a unit (2^-11 for TF32, 2^-24
    for float32), as if the weights of a layer were shifted by as much. The gradient's change after
    such a shift of all weights is measured, and every weight's layer may add one of them.
    """
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    from datasets import client_store
    from tff_ssl.algorithms.dcco import two_stage
    from tff_ssl.runtime import devices, in_process
    from tff_ssl.simulation.centralized import Centralized, CentralizedHyperparameters
    from tff_ssl.templates.task import Task

    images = images * 3 // 4 if exact else images  # Another shape, for which kernels are chosen.
    settings = programs.ModelSettings(encoder, (64, 64))
    model, two_views = programs.model_and_views(settings, seed)
    in_round, _ = programs.model_and_views(settings._replace(xla=xla), seed)
    path = pathlib.Path(scratch) / f"equality_{images}.sqlite"
    programs.write_clients(path, programs.Work("dcco", "cco", images, 1), seed)
    data = client_store.StoredClientData(path)
    element_type = tff.types.tensorflow_to_type(data.batch_type_structure)
    values = two_stage.DCCOHyperparameters(
        server_optimizer="sgd", server_learning_rate=1.0, micro_batch_size=images
    )
    built = two_stage.build_dcco(Task(in_round, two_views, element_type, 10), values)
    everything = np.arange(images)
    centralized = Centralized(
        "cco", model, two_views, programs.images(images, seed), everything,
        lambda step: everything, 10,
        CentralizedHyperparameters(
            optimizer="sgd", learning_rate=1.0, momentum=0.0, lambda_=values.lambda_
        ),
    )  # fmt: skip
    gpu = devices.find_gpu()
    has_tf32 = gpu is not None and devices.products(gpu) == "TF32" and not exact
    unit = 2.0**-11 if has_tf32 else 2.0**-24
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(not exact)
    try:
        initial = centralized.initialize(seed)
        expected, _ = centralized.run_round(initial, 0)
        random = np.random.default_rng(seed)
        shifted = initial._replace(weights=initial.weights._replace(trainable=tuple(
            w * (1.0 + unit * random.choice([-1.0, 1.0], w.shape)).astype(np.float32)
            for w in initial.weights.trainable
        )))  # fmt: skip
        of_shifted = centralized.run_round(shifted, 0)[0].weights.trainable
        with in_process.start():
            weights = tff.learning.models.ModelWeights(initial.weights.trainable, ())
            state = built.process.set_model_weights(built.process.initialize(), weights)
            output = built.process.next(state, [data.group_batch(everything)])
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
    start, step = initial.weights.trainable, expected.weights.trainable
    scale = float(tf.linalg.global_norm([a - b for a, b in zip(start, step, strict=True)]))
    after = output.state.global_model_weights.trainable
    worst = max(float(np.abs(a - b).max()) / scale for a, b in zip(after, step, strict=True))
    moved = max(
        float(np.abs((a - b) - (c - d)).max()) / scale
        for a, b, c, d in zip(start, step, shifted.weights.trainable, of_shifted, strict=True)
    )
    tolerance = len(start) * moved
    products = ("float32" if exact else "as above") + (", XLA" if xla else "")
    print(
        f"DCCO's round (products {products}) and a centralized step differ by {worst:.1e} of the "
        f"gradient's norm; rounding may make {tolerance:.1e}"
    )
    return {
        "products": products, "images": images, "difference": worst, "tolerance": tolerance,
        "holds": worst <= tolerance,
    }  # fmt: skip
