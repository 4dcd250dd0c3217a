"""What this plugin says of itself; read without importing the extension or CuPy."""

from aicore.plugins.info import PluginInfo

_DRIVER = "NVIDIA's driver (580 or newer for CUDA 13), then check with `nvidia-smi`"
_CUPY = "pip install 'aicore-cuda-ge[cuda13]', or [cuda12] for a CUDA 12 driver; only one of them"

INFO = PluginInfo(
    kind="device",
    devices=("cuda",),
    priority=10,
    requirements=("an NVIDIA GPU of compute capability 7.5 or newer", "NVIDIA's driver", "CuPy"),
    fixes={
        "no NVIDIA driver": f"install {_DRIVER}; without a GPU, programs run on other devices",
        "cudaErrorInsufficientDriver": f"update {_DRIVER}; or build the plugin with the CUDA toolkit of the driver",
        "cudaErrorNoDevice": "this machine has no NVIDIA GPU that the process may use; check CUDA_VISIBLE_DEVICES",
        "_graph_executor": "the extension was not built; `pip install ./plugins/cuda_ge` builds it, compiler included",
        "No module named 'cupy'": _CUPY,
        "CuPy": _CUPY,
    },
    summary="CUDA kernels launched from plans, replayed as one CUDA Graph",
)
