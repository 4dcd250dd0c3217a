"""What this plugin says of itself; read without importing NumPy or the kernels."""

from aicore.plugins.info import PluginInfo

INFO = PluginInfo(
    kind="transform",
    summary="int8: observers, calibration, quantisation passes and exact integer kernels",
)
