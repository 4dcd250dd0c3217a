"""The diagnosis of an int8 model: each layer measured, ranked, and shown."""
