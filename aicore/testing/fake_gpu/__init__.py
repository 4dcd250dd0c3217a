"""A GPU without a GPU: memory of its own, explicit copies, an asynchronous queue, capture and replay.

It proves the launch contract on any machine, and shows how a launcher is written.
"""

from aicore.testing.fake_gpu.device import FakeDevice
from aicore.testing.fake_gpu.executable import FakeExecutable
from aicore.testing.fake_gpu.memory import FakeArray

__all__ = ["FakeArray", "FakeDevice", "FakeExecutable"]
