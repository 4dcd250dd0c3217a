"""A small network that reads handwritten digits: `python -m tools.digits [FILE]` trains and exports it.

Needs PyTorch and onnxscript to train, which nothing else does: the file that it writes is part of the repository. The
data are scikit-learn's digits, of which every fourth one is kept for tests.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.export_models import FOLDER, drop_traces
from tools.models import model_path

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]
FILE = FOLDER / "digits_cnn.onnx"
EPOCHS, BATCH = 30, 64


def digits() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """(images, labels) to train on and to test with: float32 (n, 1, 8, 8) from 0 to 1, and int64 (n,)."""
    with gzip.open(model_path("digits"), "rt") as stream:
        rows = np.loadtxt(stream, delimiter=",")
    images, labels = (rows[:, :64] / 16).reshape(-1, 1, 8, 8).astype(np.float32), rows[:, 64].astype(np.int64)
    is_test = np.arange(len(rows)) % 4 == 3
    return (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])


def network() -> torch.nn.Module:
    """Three convolutions with BatchNorm, one of them with a residual, pooling, and a linear layer."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
            self.second = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24))
            self.third = nn.Sequential(nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU())
            self.scores = nn.Linear(48 * 2 * 2, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            x = nn.functional.max_pool2d(torch.relu(self.second(x) + x), 2)
            x = nn.functional.max_pool2d(self.third(x), 2)
            y: torch.Tensor = self.scores(x.flatten(1))
            return y

    return Network()


def train() -> torch.nn.Module:
    """The network after EPOCHS epochs of Adam with a falling rate; seeded."""
    import torch

    torch.manual_seed(0)
    (images, labels), _ = digits()
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
        schedule.step()
    return model.eval()


def export(model: torch.nn.Module, path: Path) -> None:
    """Write the network's ONNX file; the number of images is a symbol."""
    import torch

    program = torch.onnx.export(
        model,
        (torch.zeros(2, 1, 8, 8),),
        input_names=["image"],
        output_names=["scores"],
        dynamic_shapes=({0: torch.export.Dim("n")},),
        dynamo=True,
        opset_version=18,
        verbose=False,
    )
    assert program is not None  # as always with dynamo=True
    proto = program.model_proto
    drop_traces(proto)
    path.write_bytes(proto.SerializeToString(deterministic=True))


def main() -> None:
    import torch

    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    model = train()
    _, (images, labels) = digits()
    right = (model(torch.from_numpy(images)).argmax(1).numpy() == labels).mean()
    export(model, path)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB, {100 * right:.2f} % of {len(labels)} digits right")


if __name__ == "__main__":
    main()
