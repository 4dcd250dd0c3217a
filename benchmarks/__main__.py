"""`python -m benchmarks` runs every benchmark."""

from benchmarks import core, discovery

if __name__ == "__main__":
    core.main()
    discovery.main([])
