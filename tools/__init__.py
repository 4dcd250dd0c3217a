"""Helpers for working on aicore; not part of any distribution. Tests import them as `tools.…`."""
