"""Which graphs are kept."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from aicore_cuda_ge.graph_cache import GraphCache


class Graph:
    """A graph that only knows whether it is closed."""

    def __init__(self) -> None:
        self.replays, self.closed = 0, False
        self.memory = {id(self): 10}
        self.evictions = 0

    def close(self) -> None:
        self.closed = True

    def evicted(self) -> None:
        self.evictions += 1


def kept(cache: GraphCache, owner: Any, key: Any = None) -> Graph:
    graph = Graph()
    cache.keep(owner, graph, graph.evicted, key)
    return graph


def test_graphs_without_a_key_are_taken_once_latest_first() -> None:
    cache, one, other = GraphCache(9), object(), object()
    first, second, stranger = kept(cache, one), kept(cache, one), kept(cache, other)
    assert cache.take(one) is second
    assert cache.take(one) is first
    assert cache.take(one) is None
    assert cache.held(other) == (1, 10)
    assert not stranger.closed


def test_graphs_with_a_key_stay() -> None:
    cache, owner = GraphCache(9), object()
    graph = kept(cache, owner, "key")
    assert cache.find("key") is graph
    assert cache.find("key") is graph
    assert cache.find("other") is None
    assert cache.take(owner) is None


def test_memory_that_graphs_share_counts_once() -> None:
    cache, owner = GraphCache(9), object()
    kept(cache, owner).memory = {100: 7, 200: 1}
    kept(cache, owner).memory = {100: 7, 300: 2}
    assert cache.held(owner) == (2, 10)


def test_the_least_recently_used_goes_first() -> None:
    cache, owner = GraphCache(2), object()
    first, second = kept(cache, owner, 1), kept(cache, owner, 2)
    cache.find(1)
    third = kept(cache, owner, 3)
    assert [g.closed for g in (first, second, third)] == [False, True, False]
    first.replays += 1
    third.replays += 1
    fourth = kept(cache, owner, 4)
    assert [g.closed for g in (first, third, fourth)] == [True, False, False], "all ran, so the order decides"
    third.replays += 1
    kept(cache, owner, 5)
    assert [g.closed for g in (third, fourth)] == [False, True], "the one that ran was given back"
    assert [g.evictions for g in (first, second, third, fourth)] == [1, 1, 0, 1]


@pytest.mark.parametrize("capacity", [1, 2, 3])
@pytest.mark.parametrize("runs", [0, 1, 5])
def test_a_graph_stays_when_it_comes(capacity: int, runs: int) -> None:
    """Its owner is about to run it, however busy the others are."""
    cache, owner = GraphCache(capacity), object()
    for key in range(2 * capacity):
        graph = kept(cache, owner, key)
        assert cache.find(key) is graph
        assert not graph.closed
        graph.replays += runs
    assert cache.held(owner)[0] == capacity


def test_owners_and_the_whole_cache_are_cleared() -> None:
    cache, one, other = GraphCache(9), object(), object()
    mine, others = [kept(cache, one), kept(cache, one, 1)], kept(cache, other)
    cache.drop(one)
    assert [g.closed for g in mine] == [True, True]
    assert [g.evictions for g in mine] == [0, 0]
    assert not others.closed
    assert cache.clear()
    assert others.closed
    assert others.evictions == 1
    assert not cache.clear()


def test_owners_that_go_while_somebody_is_at_the_cache_are_cleared_afterwards() -> None:
    cache, owner = GraphCache(9), object()
    graph = kept(cache, owner)
    with cache._lock:
        cache.drop(owner)  # as a garbage collection would, on the same thread
        assert not graph.closed
    cache.take(object())
    assert graph.closed


def test_threads() -> None:
    cache = GraphCache(3)
    owners = [object() for _ in range(4)]

    def work() -> None:
        for i in range(300):
            owner = owners[i % 4]
            graph = cache.take(owner) or Graph()
            assert isinstance(graph, Graph)
            assert not graph.closed
            graph.replays += 1
            cache.keep(owner, graph, graph.evicted)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(cache.held(owner)[0] for owner in owners) == 3
