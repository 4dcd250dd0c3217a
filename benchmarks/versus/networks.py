"""The networks of the comparison, all of fixed shapes: nine `light_*` with random weights, magika, PP-OCR."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from tools.models import LIGHT_MODELS, model_path
from tools.zoo import Array, Feeds, drop_softmax, network, randomise_weights, text_like_page

IMAGE = (1, 3, 224, 224)


def write_network(name: str, folder: Path) -> tuple[Path, Path]:
    """Write the model and its inputs to files, for processes that start from nothing: (ONNX file, .npz file)."""
    model, feeds = NETWORKS[name](name)
    paths = folder / f"{name}.onnx", folder / f"{name}.npz"
    paths[0].write_bytes(model)
    np.savez(paths[1], **feeds)  # type: ignore[arg-type]  # the stub takes a keyword of savez for one of them
    return paths


def _light(name: str) -> tuple[bytes, Feeds]:
    model = onnx.load(model_path(name))
    randomise_weights(model, seed=0)
    drop_softmax(model)
    data: Array = np.random.default_rng(0).standard_normal(IMAGE, dtype=np.float32)
    return model.SerializeToString(), {model.graph.input[0].name: data}


def _magika(name: str) -> tuple[bytes, Feeds]:
    found = network(name)
    return found.model, found.feeds(0)


def _text(shape: tuple[int, ...]) -> Callable[[str], tuple[bytes, Feeds]]:
    """Noise would leave a text detector silent, and silence hides faults."""
    return lambda name: (model_path(name).read_bytes(), {"x": text_like_page(shape, seed=0)})


NETWORKS: dict[str, Callable[[str], tuple[bytes, Feeds]]] = {
    **{f"light_{name}": _light for name in LIGHT_MODELS},
    "magika": _magika,
    "ppocr_det": _text((1, 3, 640, 640)),
    "ppocr_rec": _text((1, 3, 48, 320)),
}
"""From a name to the model's bytes and its inputs."""
