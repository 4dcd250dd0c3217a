"""A line and a polynomial, found by gradient descent and compared with least squares."""

from __future__ import annotations

import numpy as np

from aicore import nn


def main() -> tuple[float, float]:
    """Returns how far the line's weights are from least squares, and the R² of the polynomial on new points."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (200, 1)).astype(np.float32)
    line = (1.5 * x - 0.7 + 0.1 * rng.normal(size=x.shape)).astype(np.float32)
    model = nn.Model(nn.Dense(1), target="cpu").compile(nn.SGD(0.1), "mean_squared_error")
    model.fit(x, line, epochs=200, batch_size=200, verbose=False)
    exact, *_ = np.linalg.lstsq(np.hstack([x, np.ones_like(x)]).astype(np.float64), line.astype(np.float64), rcond=None)
    found = model.state_dict()
    distance = max(abs(float(found["weight"][0, 0]) - exact[0, 0]), abs(float(found["bias"][0]) - exact[1, 0]))
    print(f"line: {found['weight'][0, 0]:.4f} x {found['bias'][0]:+.4f}, {distance:.1e} from least squares")

    cubic = (x**3 - x + 0.1 * rng.normal(size=x.shape)).astype(np.float32)
    curve = nn.Model(nn.Sequential(nn.Dense(32, activation="tanh"), nn.Dense(1)), target="cpu")
    curve.compile(nn.Adam(nn.schedules.CosineDecay(0.02, decay_steps=150 * 7)), "mean_squared_error")
    curve.fit(x, cubic, epochs=150, verbose=False)
    new = np.linspace(-1.9, 1.9, 101, dtype=np.float32)[:, None]
    wanted = new**3 - new
    r_squared = 1 - float(np.sum((curve.predict(new) - wanted) ** 2) / np.sum((wanted - wanted.mean()) ** 2))
    print(f"x³ - x: R² {r_squared:.4f} on new points")
    return distance, r_squared


if __name__ == "__main__":
    main()
