"""What this plugin says of itself."""

from aicore.plugins.info import PluginInfo

INFO = PluginInfo(kind="transform", summary="a toy: one op, with a CUDA kernel that was compiled apart from cuda_ge")
