"""The recurrence on the CPU in float32, compiled by numba, in threads of our own.

An implementation of `dispatch.Kernel`. Forward threads share out the documents and backward threads
the patterns, so that no two write the same number and every number is computed in one order:
results are bit for bit the same from run to run and for every number of threads. That number is
`torch.get_num_threads()`; small batches stay on the calling thread. `document_scores` takes arrays,
and needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.wfsa.kernels import max_plus, sums
from sopa_plugin.wfsa.kernels.elementwise import (
    add_products,
    add_row_products,
    count_nonzero,
    finish_products,
)
from sopa_plugin.wfsa.kernels.plan import WIDTH, origins_of, plan_of
from sopa_plugin.wfsa.kernels.threads import ThreadPool, num_threads
from sopa_plugin.wfsa.layout import Arcs, BestMatches, EndScores, Layout, Spans

if TYPE_CHECKING:
    from torch import Tensor

LEAST_STATES = 300_000
"""States to compute (tokens times states) from which a thread pays: about 0.1 ms of work."""

LEAST_PATHS = 4_000
"""Best paths to walk back from which a thread pays: about 0.1 ms of work."""

LEAST_SUMMED = 30_000
"""States to take gradients back from, where sums do, from which a thread pays: some 0.2 ms."""

LEAST_FINISHED = 200_000
"""Arc scores to finish from which a thread pays: about 0.1 ms of work."""

LEAST_PRODUCTS = 60_000
"""Numbers of a gradient from which a thread pays: about 0.1 ms of work, nearly all being zero."""

DENSE = 0.15
"""Share of a gradient's numbers other than zero from which a matrix product is faster."""

_SUMS = {
    "sum_product": (sums.sum_scores, sums.sum_gradients),
    "log": (sums.log_scores, sums.log_gradients),
}

_pool = ThreadPool()


def forward(layout: Layout, semiring: str, arcs: Arcs, keep_paths: bool) -> BestMatches:
    """The best matches of documents, or sums over all; see `dispatch.Kernel`.

    Raises:
        IndexError: `index` names a row that `scores` has not, or `offsets` a token.
    """
    matches, given = BestMatches.unfilled(layout, arcs, keep_paths), _arrays(arcs)
    if keep_paths:
        _by_documents(max_plus.best_paths, plan_of(layout), layout, given, _arrays(matches))
    else:
        document_scores(layout, semiring, given, _array(matches.scores))
    return matches


def document_scores(layout: Layout, semiring: str, arcs: Arcs, scores: NDArray[np.float32]) -> None:
    """Fills the document scores `[B, K]`; all are arrays. Raises as `forward` does."""
    if semiring in _SUMS:
        compute, _ = _SUMS[semiring]
        _by_documents(compute, origins_of(layout), layout, arcs, scores)
    else:
        _by_documents(max_plus.best_scores, plan_of(layout), layout, arcs, scores)


def end_scores(layout: Layout, arcs: Arcs) -> EndScores:
    """The best matches that end at each token; see `dispatch.Kernel`. Raises as `forward` does."""
    found = EndScores.unfilled(layout, arcs)
    _by_documents(max_plus.scores_by_end, plan_of(layout), layout, _arrays(arcs), _arrays(found))
    return found


def next_scores(
    layout: Layout, arcs: Arcs, documents: NDArray[np.int64], patterns: NDArray[np.int64]
) -> Tensor:
    """The next best matches' scores, in max semirings; see `operator.next_scores`."""
    import torch

    found = np.empty(len(patterns), np.float32)
    _by_pairs(max_plus.next_scores, layout, arcs, (documents, patterns, found))
    return torch.from_numpy(found)


def spans_above(
    layout: Layout,
    arcs: Arcs,
    documents: NDArray[np.int64],
    patterns: NDArray[np.int64],
    floors: NDArray[np.float64],
) -> Spans:
    """Matches that score so much at least, in max semirings; see `paths.spans_above`."""
    given, counts = (documents, patterns, floors), np.empty(len(patterns), np.int64)
    _by_pairs(max_plus.count_above, layout, arcs, (*given, counts))
    pairs = np.repeat(np.arange(len(counts)), counts)
    firsts, ends = np.empty((2, len(pairs)), np.int64)
    found = Spans(pairs, np.empty(len(pairs), np.float32), firsts, ends)
    places = np.cumsum(counts) - counts
    _by_pairs(max_plus.spans_above, layout, arcs, (*given, places), found)
    return found


def _by_pairs(
    function: Callable[..., None],
    layout: Layout,
    arcs: Arcs,
    pairs: tuple[NDArray[Any], ...],
    *output: Any,
) -> None:
    """Runs a function over pairs of a document and a pattern, as many of them on each thread."""
    count, given = len(pairs[0]), (origins_of(layout), _arrays(arcs))

    def task(first: int, last: int) -> None:
        function(*given, *(each[first:last] for each in pairs), *output)

    _pool.run(task, _even_shares(count, num_threads(count, LEAST_PATHS)))


def backward(
    layout: Layout, semiring: str, grad: Tensor, arcs: Arcs, *paths: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of `scores [N, R]` and `epsilon [Q]`; see `dispatch.Kernel`.

    Takes what `forward` gave for the same `arcs`.
    """
    grad_scores = _zeros(len(arcs.scores), layout.num_scores)
    grad_epsilon = _zeros(layout.num_epsilons)
    results = grad_scores.numpy(), grad_epsilon.numpy()
    given: Any = (origins_of(layout), _arrays(arcs), _array(grad))
    if semiring in _SUMS:
        _, compute = _SUMS[semiring]
        count = -(-layout.num_patterns // WIDTH)
        threads = num_threads(len(arcs.index) * layout.num_states, LEAST_SUMMED)
    else:
        compute, count = max_plus.walk_back, layout.num_patterns
        given += (tuple(map(_array, paths)),)
        threads = num_threads(grad.numel(), LEAST_PATHS)

    def task(first: int, last: int) -> None:
        compute(*given, first, last, *results)

    _pool.run(task, _even_shares(count, min(threads, count)))
    return grad_scores, grad_epsilon


def products_(
    products: Tensor, bias: Tensor, keep: Tensor | None, scale: float, log_sigmoid: bool
) -> Tensor:
    """Makes `products [N, A]`, float32, arc scores, in place and in one pass.

    Arguments as for `elementwise.finish_products`; without `keep`, the bias is in them already.
    Threads share out the rows.
    """
    kept = np.empty((0, len(bias)), np.bool_) if keep is None else _array(keep)
    given = _array(products), _array(bias), kept, scale, log_sigmoid
    shares = _even_shares(len(products), num_threads(products.numel(), LEAST_FINISHED))
    _pool.run(lambda *rows: finish_products(*given, *rows), shares)
    return products


def products_backward(
    grad: Tensor, rows: Tensor, keep: Tensor | None, scale: float, log_sigmoids: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Gradients of the weights and the bias of arc products, `[A, E]` and `[A]`.

    None where `grad [N, A]` has so many numbers other than zero that a matrix product is faster.
    Arguments as for `elementwise.add_products`. Threads share out the columns.
    """
    given, num_arcs = _mostly_zeros(grad, rows, keep, scale, log_sigmoids), grad.shape[1]
    if given is None:
        return None
    for_weight, for_bias = _zeros(num_arcs, rows.shape[1]), _zeros(num_arcs)
    results = for_weight.numpy(), for_bias.numpy()

    def task(first: int, last: int) -> None:
        add_products(*given, first, last, *results)

    _pool.run(task, _even_shares(num_arcs, num_threads(grad.numel(), LEAST_PRODUCTS)))
    return for_weight, for_bias


def rows_backward(
    grad: Tensor, weight: Tensor, keep: Tensor | None, scale: float, log_sigmoids: Tensor | None
) -> Tensor | None:
    """The gradient of the rows of arc products, `[N, E]`; see `products_backward`.

    Threads share out the rows.
    """
    given = _mostly_zeros(grad, weight, keep, scale, log_sigmoids)
    if given is None:
        return None
    found = _zeros(len(grad), weight.shape[1])
    result, threads = found.numpy(), num_threads(grad.numel(), LEAST_PRODUCTS)
    shares = _even_shares(len(grad), threads)
    _pool.run(lambda *part: add_row_products(*given, *part, result), shares)
    return found


def _mostly_zeros(
    grad: Tensor, factor: Tensor, keep: Tensor | None, scale: float, log_sigmoids: Tensor | None
) -> tuple[Any, ...] | None:
    """The arguments as kernels take them; None where `grad` has too many that are not zero."""
    numbers, num_arcs = _array(grad), grad.shape[1]
    if count_nonzero(numbers) > DENSE * grad.numel():
        return None
    kept = np.empty((0, num_arcs), np.bool_) if keep is None else _array(keep)
    taken = np.empty((0, num_arcs), np.float32) if log_sigmoids is None else _array(log_sigmoids)
    return numbers, _array(factor), kept, 1.0 if keep is None else scale, taken


def _zeros(*shape: int) -> Tensor:
    """Zeros in float32, not filled by torch's own threads, which a forked child has lost."""
    import torch

    return torch.from_numpy(np.zeros(shape, np.float32))


def _by_documents(
    function: Callable[..., bool], tables: Any, layout: Layout, arcs: Any, output: Any
) -> None:
    """Runs a forward function over all documents, about as many tokens on each thread.

    `arcs` and `output` are arrays.
    """
    num_rows, num_tokens = len(arcs.scores), len(arcs.index)
    threads = num_threads(num_tokens * layout.num_states, LEAST_STATES)

    def task(first: int, last: int) -> None:
        if not function(tables, arcs, first, last, output):
            raise IndexError(
                f"expected offsets that ascend from 0 to {num_tokens}, the tokens in index, and "
                f"an index of rows 0 to {num_rows - 1} of scores"
            )

    _pool.run(task, _shares(arcs.offsets, threads))


def _shares(offsets: NDArray[np.int64], threads: int) -> list[int]:
    """Documents at which each thread's share begins and ends, about as many tokens in each."""
    if threads == 1:
        return [0, len(offsets) - 1]
    tokens = np.linspace(offsets[0], offsets[-1], threads + 1)[1:-1]
    cuts = np.searchsorted(offsets[:-1], tokens).tolist()
    return sorted({0, *cuts, len(offsets) - 1})


def _even_shares(count: int, threads: int) -> list[int]:
    """Where each thread's share of `count` begins, and the last one's end."""
    return [count * thread // threads for thread in range(threads + 1)]


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()


def _arrays(tensors: Any) -> Any:
    """A named tuple of arrays for one of tensors, as compiled code takes it."""
    return type(tensors)(*map(_array, tensors))
