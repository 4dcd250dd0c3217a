"""What this plugin says of itself; read without importing NumPy or the kernels."""

from aicore.plugins.info import PluginInfo

INFO = PluginInfo(
    kind="device",
    devices=("cpu",),
    summary="NumPy on the CPU: the reference of every op, and the device that other backends fall back to",
)
