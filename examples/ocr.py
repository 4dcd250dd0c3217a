"""Read the text of a scanned page with the unmodified rapidocr-onnxruntime client, on aicore instead of onnxruntime.

    make ocr                                       # sets everything up; Python 3.11 or 3.12
    python examples/ocr.py [--target cpu] [IMAGE]

The page is `skimage.data.page()` when no image is named.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from aicore.compat import onnxruntime as stand_in


def main() -> None:
    parser = argparse.ArgumentParser(description="Read the text of an image with rapidocr on aicore.")
    parser.add_argument("image", nargs="?", type=Path, help="image file; scikit-image's scanned page by default")
    parser.add_argument(
        "--target", default=None, help="device of aicore, such as cpu or fake; default: the client's choice"
    )
    arguments = parser.parse_args()
    image = load_image(arguments.image)
    with stand_in.install(target=arguments.target):
        from rapidocr_onnxruntime import RapidOCR  # imports onnxruntime, and gets aicore

        started = time.perf_counter()
        client = RapidOCR()
        loaded = time.perf_counter()
        lines, _ = client(image)
        done = time.perf_counter()
    for _, text, score in lines or []:
        print(f"{float(score):.3f}  {text}")
    seconds = f"three models compiled in {loaded - started:.2f} s, page read in {done - loaded:.2f} s"
    print(f"{len(lines or [])} lines; {seconds}")


def load_image(path: Path | None) -> Any:
    """The page as uint8 pixels, [height, width, 3] in blue-green-red order, as the client expects."""
    import numpy as np

    if path is None:
        from skimage import data

        grey = data.page()
        return np.repeat(grey[:, :, None], 3, axis=2)
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"))[:, :, ::-1]


if __name__ == "__main__":
    main()
