"""Kernels for the ops where time goes: they write to `out` and take temporaries only from the planned workspace."""
