"""The real networks of tests and benchmarks, ready to run: models with weights that matter, and inputs in two sizes.

The `light_*` files hold one constant for each weight, so that their output is 0.001 whatever went wrong. Here every
weight is a seeded random number of the scale that keeps activations alive, and a final Softmax, which would flatten
differences, is left off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tools.models import model_path

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Network:
    """A model's bytes, and a function from a size index (0 or 1) to its inputs."""

    name: str
    model: bytes
    feeds: Callable[[int], Feeds]


def network(name: str) -> Network:
    """The network called `name`, one of NETWORKS."""
    return NETWORKS[name](name)


def _magika(name: str) -> Network:
    def feeds(size: int) -> Feeds:
        rng = np.random.default_rng(size)
        return {"bytes": rng.integers(0, 257, ((1, 5)[size], 2048)).astype(np.int32)}

    return Network(name, model_path(name).read_bytes(), feeds)


def _ocr(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Callable[[str], Network]:
    def make(name: str) -> Network:
        return Network(name, model_path(name).read_bytes(), lambda size: {"x": text_like_page(shapes[size], seed=size)})

    return make


def text_like_page(shape: tuple[int, ...], seed: int) -> Array:
    """Dark strokes in lines on white paper, normalised to [-1, 1]: noise would leave a text detector silent.

    shape: (images, 3, height, width).
    """
    rng = np.random.default_rng(seed)
    images, _, height, width = shape
    page = np.full((images, height, width), 1.0, np.float32)
    line = max(height // 12, 16)
    for image in range(images):
        for top in range(line // 4, height - line + 1, line):
            left = int(rng.integers(2, 12))
            while left < width - line:
                _draw_letter(page[image, top : top + line * 3 // 4], left, line // 3, rng)
                left += line // 2 + int(rng.integers(0, 3)) + (line // 2) * int(rng.random() < 0.15)
    return np.repeat(page[:, None], 3, axis=1)


def _draw_letter(row: Array, left: int, width: int, rng: np.random.Generator) -> None:
    stroke = max(row.shape[0] // 8, 2)
    height = row.shape[0]
    if rng.random() < 0.8:
        row[:, left : left + stroke] = -1.0
    if rng.random() < 0.5:
        row[:, left + width - stroke : left + width] = -1.0
    for at in (0, (height - stroke) // 2, height - stroke):
        if rng.random() < 0.5:
            row[at : at + stroke, left : left + width] = -1.0


def _light(spatial: tuple[int, int], batches: tuple[int, int]) -> Callable[[str], Network]:
    def make(name: str) -> Network:
        model = onnx.load(model_path(name))
        randomise_weights(model, seed=0)
        drop_softmax(model)
        data = _free_batch_and_size(model)

        def feeds(size: int) -> Feeds:
            rng = np.random.default_rng(size)
            return {data: rng.standard_normal((batches[size], 3, spatial[size], spatial[size]), dtype=np.float32)}

        return Network(name, model.SerializeToString(), feeds)

    return make


def randomise_weights(model: onnx.ModelProto, seed: int) -> None:
    """Replace every float weight, whether a constant or a node that fills a shape, by seeded random numbers."""
    rng = np.random.default_rng(seed)
    graph = model.graph
    shapes = {i.name: tuple(i.dims) for i in graph.initializer if i.data_type == onnx.TensorProto.FLOAT}
    stored = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    fillers = [node for node in graph.node if node.op_type == "ConstantOfShape" and node.input[0] in stored]
    shapes.update({node.output[0]: tuple(stored[node.input[0]].tolist()) for node in fillers})
    roles = _roles(graph)
    kept = [i for i in graph.initializer if i.name not in shapes]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.initializer.extend(
        numpy_helper.from_array(_random_weight(rng, shape, roles.get(name, "")), name) for name, shape in shapes.items()
    )
    fillers_outputs = {node.output[0] for node in fillers}
    nodes = [node for node in graph.node if not set(node.output) & fillers_outputs]
    del graph.node[:]
    graph.node.extend(nodes)
    constants = {i.name for i in graph.initializer}
    inputs = [i for i in graph.input if i.name not in constants]
    del graph.input[:]
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)


def _roles(graph: onnx.GraphProto) -> dict[str, str]:
    """What each value is used for, such as `Conv 1`; through Unsqueeze to what lies behind it."""
    roles: dict[str, str] = {}
    for node in reversed(graph.node):
        for index, name in enumerate(node.input):
            behind = roles.get(node.output[0], "") if node.op_type == "Unsqueeze" else ""
            roles[name] = behind or f"{node.op_type} {index}"
    return roles


def _random_weight(rng: np.random.Generator, shape: tuple[int, ...], role: str) -> Array:
    positive = role in {"BatchNormalization 1", "BatchNormalization 4", "Mul 1", "Mul 0"}
    if positive:
        return rng.uniform(0.7, 1.3, shape).astype(np.float32)
    if len(shape) < 2:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    fan_in = int(np.prod(shape[1:])) if len(shape) > 2 or role == "Gemm 1" else shape[0]
    scaled: Array = rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)
    return scaled.astype(np.float32)


def drop_softmax(model: onnx.ModelProto) -> None:
    last = model.graph.node[-1]
    if last.op_type != "Softmax":
        return
    model.graph.output[0].name = last.input[0]
    del model.graph.node[-1]


def _free_batch_and_size(model: onnx.ModelProto) -> str:
    """Make batch and image size symbolic; returns the input's name."""
    graph = model.graph
    data = graph.input[0]
    shape = data.type.tensor_type.shape
    for index, symbol in ((0, "batch"), (2, "height"), (3, "width")):
        shape.dim[index].dim_param = symbol
    for dim in graph.output[0].type.tensor_type.shape.dim:
        dim.Clear()
    targets = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for initializer in graph.initializer:
        if initializer.name in targets:
            wanted = numpy_helper.to_array(initializer).copy()
            if wanted[0] == 1:
                wanted[0] = 0 if len(wanted) > 2 else -1
                initializer.CopyFrom(numpy_helper.from_array(wanted, initializer.name))
    del graph.value_info[:]
    return str(data.name)


NETWORKS: dict[str, Callable[[str], Network]] = {
    "magika": _magika,
    "ppocr_det": _ocr(((1, 3, 320, 480), (1, 3, 256, 256))),
    "ppocr_rec": _ocr(((1, 3, 48, 320), (2, 3, 48, 200))),
    "ppocr_cls": _ocr(((1, 3, 48, 192), (6, 3, 48, 192))),
    "light_resnet50": _light((224, 224), (1, 2)),
    "light_densenet121": _light((224, 192), (1, 1)),
    "light_inception_v1": _light((224, 224), (1, 2)),
    "light_inception_v2": _light((224, 224), (1, 2)),
    "light_shufflenet": _light((224, 224), (1, 2)),
    "light_squeezenet": _light((224, 192), (1, 2)),
    "light_zfnet512": _light((224, 224), (1, 2)),
    "light_bvlc_alexnet": _light((224, 224), (1, 2)),
    "light_vgg19": _light((224, 224), (1, 2)),
}
HUGE = frozenset({"light_zfnet512", "light_bvlc_alexnet", "light_vgg19"})
"""Networks with hundreds of megabytes of weights, whose tests are marked slow."""
THOROUGH = (*(name for name in NETWORKS if not name.startswith("light")), "light_resnet50", "light_densenet121")
"""Networks that are tested in every mode of memory and optimisation; the others are alike."""
