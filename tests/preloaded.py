"""What nearly all programs import; `programs` imports it once, in the process that it copies.

Scripts are not among it, because importing them defines flags.
"""

import gc
import importlib
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for name in (
        "tensorflow", "tensorflow_federated", "tff_ssl.algorithms.registry",
        "tff_ssl.runtime.in_process", "launch.runs.federated", "launch.pages.run_page",
        "sklearn.linear_model", "sklearn.manifold", "sklearn.neighbors",
    ):  # fmt: skip
        importlib.import_module(name)
gc.freeze()  # The collector then copies no pages in the programs.
