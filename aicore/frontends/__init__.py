"""Model formats: what turns a file into a Graph, and a Graph into a file."""
