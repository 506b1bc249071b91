"""Calls of several threads at once, each compared with the answer that it has alone."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

Call = Callable[[int], bool]


def asked(answer: Callable[[Tensor], Tensor], given: Sequence[Tensor]) -> Call:
    """Returns a call that compares the answer for an input, chosen by its number, with the answer of one thread."""
    alone = [answer(x) for x in given]
    assert any(bool(part.any()) for part in alone)

    def call(number: int) -> bool:
        got, expected = answer(given[number % len(given)]), alone[number % len(given)]
        return got.shape == expected.shape and torch.allclose(got, expected, atol=1e-4, rtol=1e-4)

    return call


def wrong_calls(of_kinds: Mapping[str, Call], threads: int, calls: int) -> Counter[str]:
    """Runs calls of all kinds in threads, and returns the wrong and the failed ones by kind."""
    kinds, wrong, start = list(of_kinds), Counter[str](), threading.Barrier(threads)

    def work(thread: int) -> None:
        start.wait()
        for number in range(thread, calls, threads):
            kind = kinds[(number // threads + thread) % len(kinds)]
            try:
                wrong[kind] += not of_kinds[kind](number)
            except Exception as error:
                wrong[f"{kind}: {type(error).__name__}: {error}"] += 1

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    return +wrong
