"""Where the time of a step goes, by TensorFlow's profiler."""

import collections
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

_MOST = 8  # kernels and operations that are listed


def profile(step: Callable[[], object], steps: int = 2) -> dict[str, Any]:
    """Profiles some steps.

    Returns:
      For the host and each stream of a GPU: the events of a step, their milliseconds, the
      milliseconds from the first to the last, and the longest kinds of events, [name, count,
      milliseconds]. Copies from the GPU to the host are streams' events named MemcpyD2H.
    """
    import tensorflow as tf

    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, device_tracer_level=1)
    with tempfile.TemporaryDirectory(prefix="tff_ssl_profile_") as folder:
        with tf.profiler.experimental.Profile(folder, options):
            for _ in range(steps):
                step()
        return _read(folder, steps)


def _read(folder: str, steps: int) -> dict[str, Any]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    found: dict[str, Any] = {}
    for path in pathlib.Path(folder).rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in space.planes:
            if "metadata" in plane.name:
                continue
            if "CPU" in plane.name:
                found["host"] = _summary(plane, plane.lines, steps)
            else:
                for line in plane.lines:
                    found[f"{plane.name} {line.name}"] = _summary(plane, [line], steps)
    return {name: summary for name, summary in found.items() if summary["events"]}


def _summary(plane: Any, lines: Any, steps: int) -> dict[str, Any]:
    counts: collections.Counter[str] = collections.Counter()
    picoseconds: collections.Counter[str] = collections.Counter()
    starts, ends = [], []
    for line in lines:
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name.split(":")[-1].split("#")[0][:80]
            counts[name] += 1
            picoseconds[name] += event.duration_ps
            starts.append(line.timestamp_ns * 1000 + event.offset_ps)
            ends.append(starts[-1] + event.duration_ps)
    scale = 1e9 * steps
    return {
        "events": sum(counts.values()) / steps,
        "milliseconds": sum(picoseconds.values()) / scale,
        "span_milliseconds": (max(ends) - min(starts)) / scale if starts else 0.0,
        "longest": [
            [name, counts[name] / steps, total / scale]
            for name, total in picoseconds.most_common(_MOST)
        ],
    }
