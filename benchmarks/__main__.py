"""`python -m benchmarks` runs every benchmark."""

from benchmarks import core

if __name__ == "__main__":
    core.main()
