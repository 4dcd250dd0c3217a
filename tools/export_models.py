"""Export the small PyTorch networks of tests/models/data: `python -m tools.export_models [FOLDER]`.

Needs PyTorch and onnxscript, which nothing else does: the files that it writes are part of the repository. Weights are
seeded; batch and length are symbols.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx
    import torch

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "models" / "data"
VOCABULARY, LONGEST, WIDTH, CLASSES = 64, 128, 32, 5


def encoder() -> torch.nn.Module:
    """Two layers of attention and feed-forward over token embeddings with learnt positions; gives a vector a token."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(LONGEST, WIDTH)
            layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, activation="gelu", batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            x: torch.Tensor = self.layers(self.embedding(tokens) + self.positions(places))
            return x

    return Encoder()


def classifier() -> torch.nn.Module:
    """Two bidirectional LSTM layers over token embeddings; scores from the mean over time and the last state."""
    import torch
    from torch import nn

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH // 2)
            self.lstm = nn.LSTM(WIDTH // 2, WIDTH // 2, num_layers=2, bidirectional=True, batch_first=True)
            self.scores = nn.Linear(2 * WIDTH, CLASSES)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            y, (h, _) = self.lstm(self.embedding(tokens))
            joined = torch.cat([y.mean(dim=1), h[-2], h[-1]], dim=1)
            x: torch.Tensor = self.scores(torch.relu(joined))
            return x

    return Classifier()


MODELS: dict[str, Callable[[], Any]] = {"torch_encoder": encoder, "torch_lstm_classifier": classifier}


def tokens(batch: int, length: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """An input of either network."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, (batch, length))


def build(name: str) -> torch.nn.Module:
    """The network `name`, one of MODELS, with its seeded weights, ready for inference."""
    import torch

    torch.manual_seed(0)
    network: torch.nn.Module = MODELS[name]()
    with torch.no_grad():
        for parameter in network.parameters():  # PyTorch starts with biases of 0 and scales of 1, which hide mistakes
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network.eval()


def export(name: str, path: Path) -> None:
    """Write the network's ONNX file."""
    import torch

    example = torch.from_numpy(tokens(2, 7))
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=LONGEST)}
    program = torch.onnx.export(
        build(name),
        (example,),
        input_names=["tokens"],
        output_names=["y"],
        dynamic_shapes=(dims,),
        dynamo=True,
        opset_version=18,
        verbose=False,
    )
    assert program is not None  # as always with dynamo=True
    model = program.model_proto
    drop_traces(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def drop_traces(model: onnx.ModelProto) -> None:
    """Without the exporter's notes, which hold paths of the machine and are most of a small file."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        path = folder / f"{name}.onnx"
        export(name, path)
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
