"""What this plugin says of itself."""

from aicore.plugins.info import PluginInfo

INFO = PluginInfo(
    kind="device",
    devices=("fake",),
    priority=-100,  # never the default target
    summary="a GPU that exists in tests only: memory of its own, asynchronous, static shapes",
)
