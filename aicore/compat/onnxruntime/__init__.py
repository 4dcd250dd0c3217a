"""Answers `import onnxruntime` with aicore, for code written for onnxruntime's Python interface.

    import aicore.compat.onnxruntime as stand_in

    stand_in.install()                      # for the rest of the process
    with stand_in.install(target="cuda"):   # or for a while, on a device of your choice
        import some_client

A module that has imported the real onnxruntime before keeps it.
"""

from aicore.compat.onnxruntime.install import Installation, install

__all__ = ["Installation", "install"]
