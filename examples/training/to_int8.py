"""From training to an int8 file: train on digits, quantise, export, and run the file. Needs the int8_quant plugin."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from digits import data, train

import aicore
import aicore_int8_quant as int8


def main() -> tuple[float, float]:
    """Returns the accuracy of the float model and of the int8 file."""
    x, x_test, _, y_test = data()
    model, _ = train(epochs=10)
    float_accuracy = float(np.mean(model.predict(x_test).argmax(axis=1) == y_test))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits_int8.onnx"
        quantised = int8.quantize(model.graph(), [{"input": x[i : i + 64]} for i in range(0, 512, 64)])
        quantised.save(path)
        outputs = aicore.compile(path, "cpu")(input=x_test)
        int8_accuracy = float(np.mean(outputs["output"].argmax(axis=1) == y_test))
    print(f"accuracy: float {float_accuracy:.2%}, int8 {int8_accuracy:.2%}")
    return float_accuracy, int8_accuracy


if __name__ == "__main__":
    main()
