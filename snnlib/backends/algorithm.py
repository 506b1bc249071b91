"""Choose the algorithm of a convolution from densities and layer shape: by input events, output spikes, or dense.

Costs are nanoseconds of one core beyond what both algorithms need; the factors were measured on a core with AVX-512 at
3.6 GHz (docs/measurements/speed.md has the table). The choice depends on data and shapes only, never on the time of
day: the same call takes the same algorithm. The environment variable `SNNLIB_CONVOLUTION` sets the choice of a process,
`use_convolution` that of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from snnlib.backends import dense, native
from snnlib.backends.geometry import GROUP, Geometry, block_channels, scatters, scatters_back
from snnlib.backends.memo import MOST, once
from snnlib.backends.process_setting import ProcessSetting

Convolution = Literal["auto", "events", "dense"]

# Below this cost there is nothing to gain.
_SMALL = 5e4
# Elements that are looked at for the density of a sequence: a sixteenth, but some frames at least and never too many.
_SAMPLE, _LEAST_SAMPLE, _MOST_SAMPLE = 1 / 16, 1 << 13, 1 << 16
# Event lists: looking whether an input is an event, and an event.
_LOOK, _EVENT = 0.5, 1.0
# Gather: a vector of weights of an event, with those of one kernel row in the first and in the second cache; the least
# for all vectors of an event, as they are added one after the other; start of a run of events.
_GATHER, _GATHER_FAR, _NEAR_BYTES, _CHAIN, _RUN = 0.34, 0.58, 24 << 10, 0.75, 6.0
# Where all weights do not fit into the second cache: a vector by gather, and tap by tap.
_GATHER_FARTHEST, _TAPS, _FAR_BYTES = 1.7, 1.1, 2 << 20
# Scatter: a vector of an event; start of a pixel with events, and a vector of it.
_SCATTER, _PIXEL, _PIXEL_VECTOR = 0.55, 9.0, 0.2
# A weight that is brought into the order of rows, or that of kernel elements; above `dense.MANY` weights, and twice as
# many, they outgrow the caches and cost this factor.
_ROWS_ORDER, _TAPS_ORDER, _MANY_FACTOR = 1.05, 0.8, 2.2
# A call that orders by kernel element.
_TAPS_CALL = 25e3


_choice: ProcessSetting[Convolution] = ProcessSetting("SNNLIB_CONVOLUTION", get_args(Convolution))


@contextmanager
def use_convolution(choice: Convolution) -> Iterator[None]:
    """Runs the convolutions of a `with` block by `"events"` or `"dense"`, or by the data: `"auto"`.

    Each forward and backward pass follows the choice at its time. The choice holds for the whole process; of blocks in
    several threads, the one that began last decides. Spikes may differ by the rounding of currents, since dense
    convolutions sum in another order. On a GPU `"events"` sums in the CPU's order, slowly, for the CPU's spikes bit
    for bit (`docs/cuda.md`); the other choices run torch's convolutions there.

    >>> import torch, snnlib
    >>> layer = snnlib.SRMConv2d(1, 2, 3)
    >>> with snnlib.use_convolution("dense"):
    ...     layer(torch.ones(4, 1, 1, 5, 5)).shape
    torch.Size([4, 1, 2, 3, 3])
    """
    with _choice.use(choice, "choice"):
        yield


def chosen() -> Convolution:
    """Returns the present choice."""
    return _choice.value


class Decision(NamedTuple):
    """The path of a convolution, the facts that decided, and a sentence for reports."""

    path: Literal["events", "dense"]
    density: float
    events_cost: float
    dense_cost: float
    reason: str


def density(x: Tensor) -> float:
    """Share of nonzero elements in frames spread over steps and samples of the spike tensor `[T, N, ...]`."""
    return sampler(x, native.cpu_kernels())(x)


@once
def sampler(x: Tensor, kernels: object) -> Callable[[Tensor], float]:
    """Returns `density` for sequences of this kind; a kernel counts where the CPU has it."""
    if not x.numel():
        return lambda _: 0.0
    steps, batch, *frame = x.shape
    elements = min(max(_LEAST_SAMPLE, int(_SAMPLE * x.numel())), _MOST_SAMPLE)
    frames = min(max(1, elements // math.prod(frame)), steps * batch)
    if x.dim() > 5 or x.dtype == torch.float64 or x.device.type != "cpu" or kernels is None:
        # Evenly over the steps; over the samples by the golden ratio, which follows no rhythm.
        step = [(2 * i + 1) * steps // (2 * frames) for i in range(frames)]
        sample = [int(i * 0.618 % 1 * batch) for i in range(frames)]
        return lambda x: int(torch.count_nonzero(x[step, sample])) / (frames * math.prod(frame))
    none = [1] * (5 - x.dim())
    events = {"data": native.slot(1), "dtype": native.DTYPE_CODES[x.dtype]}
    layout = {"size": [*x.shape, *none], "stride": [*x.stride(), *none]}
    count, looked_at = native.prepare("count_sampled", elements=events, frames=frames, **layout), frames
    share = 1 / (looked_at * math.prod(frame))
    return lambda x: float(count(x) * share)


class _Costs(NamedTuple):
    """Cost of the forward pass: events cost `fixed + share * event + active * start`, with `active` input pixels."""

    fixed: float
    event: float
    start: float
    dense: float


def costs(g: Geometry, share: float, neurons: bool = True) -> tuple[float, float]:
    """Returns the costs (event-driven, dense) for inputs with this share of nonzeros, with or without `neurons`.

    The event-driven algorithm includes the zeros between the elements of a dilated kernel, the dense one does not.
    """
    fixed, event, start, products = _costs(g, neurons)
    active = 1 - (1 - share) ** g.in_channels if start else 0.0
    return fixed + share * event + active * start, products


@lru_cache(MOST)
def _costs(g: Geometry, neurons: bool) -> _Costs:
    frames = g.steps * g.batch
    in_pixels, pixels = frames * g.in_height * g.in_width, frames * g.height * g.width
    inputs, vectors = in_pixels * g.in_channels, math.ceil(g.channels / GROUP)
    taps = pixels * g.kernel_h * g.kernel_w * g.in_channels
    products = dense.cheapest(g, "currents").cost
    if g.unsupported:
        return _Costs(math.inf, 0.0, 0.0, products)
    fixed = inputs * _LOOK + _order_cost(g, by_rows=neurons or not by_taps(g))
    if scatters(g):
        row_vectors = g.kernel_h * math.ceil(g.kernel_w * g.channels / GROUP)
        start = in_pixels * (_PIXEL + _PIXEL_VECTOR * row_vectors)
        return _Costs(fixed, inputs * (_EVENT + row_vectors * _SCATTER), start, products)
    near = 4 * g.kernel_w * g.in_channels * g.channels <= _NEAR_BYTES
    far = (_GATHER_FARTHEST if neurons else _TAPS) if _outgrows_cache(g) else _GATHER_FAR
    per_tap = max(vectors * (_GATHER if near else far), _CHAIN)
    runs = pixels * g.kernel_h * math.ceil(vectors / 8)
    return _Costs(fixed + runs * _RUN, inputs * _EVENT + taps * per_tap, 0.0, products)


def _order_cost(g: Geometry, by_rows: bool) -> float:
    """Returns the cost of bringing the weights into the order of the event-driven kernels."""
    weights = g.taps * g.in_channels * g.channels
    if by_rows:
        return weights * _ROWS_ORDER * (_MANY_FACTOR if weights >= dense.MANY else 1.0)
    return _TAPS_CALL + weights * _TAPS_ORDER * (_MANY_FACTOR if weights >= 2 * dense.MANY else 1.0)


@lru_cache(MOST)
def is_matrix(g: Geometry) -> bool:
    """Returns whether the layer is fully connected over channels: one pixel, one kernel element and no padding."""
    one_cell = (g.in_height, g.in_width, g.taps) == (1, 1, 1)
    return not g.unsupported and one_cell and (g.padding_h, g.padding_w) == (0, 0)


@lru_cache(MOST)
def by_taps(g: Geometry) -> bool:
    """Returns whether currents without neurons are summed one kernel element at a time: weights exceed the L2 cache."""
    return is_matrix(g) or _outgrows_cache(g)


def _outgrows_cache(g: Geometry) -> bool:
    return not g.unsupported and not scatters(g) and 4 * g.taps * g.in_channels * g.channels > _FAR_BYTES


def decide(x: Tensor, g: Geometry, streaming: bool, neurons: bool = True) -> Decision:
    """Returns the algorithm of one call; streams are event-driven if possible, whose sums do not depend on chunks."""
    share = density(x)
    by_events, products = costs(g, share, neurons)
    if g.unsupported:
        return Decision("dense", share, by_events, products, g.unsupported)
    facts = f"{share:.1%} of the inputs are events; {by_events:.3g} ns by events, {products:.3g} ns dense"
    if _choice.value != "auto":
        return Decision(_choice.value, share, by_events, products, f"asked for; {facts}")
    if streaming:
        return Decision(
            "events", share, by_events, products, f"a stream keeps one order of addition; {facts}"
        )
    if by_events < _SMALL:
        return Decision("events", share, by_events, products, f"too small to matter; {facts}")
    return Decision("events" if by_events <= products else "dense", share, by_events, products, facts)


@lru_cache(MOST)
def is_supported(g: Geometry) -> bool:
    """Returns whether the event-driven kernels take this convolution."""
    return not g.unsupported


@lru_cache(MOST)
def is_small(g: Geometry) -> bool:
    """Returns whether even a dense input costs less than `_SMALL` by events."""
    return not g.unsupported and costs(g, 1.0)[0] < _SMALL


def path(
    x: Tensor,
    g: Geometry,
    streaming: bool,
    neurons: bool = True,
    share_of: Callable[[Tensor], float] = density,
) -> Literal["events", "dense"]:
    """Returns the path of `decide`, and reads the sequence, by `share_of`, only if the choice depends on it."""
    if not is_supported(g):
        return "dense"
    if _choice.value != "auto":
        return _choice.value
    if streaming or is_small(g):
        return "events"
    by_events, products = costs(g, share_of(x), neurons)
    return "events" if by_events <= max(products, _SMALL) else "dense"


# Backward passes.
# A vector of 16 channels: of the window that an input event sees, of the patch of traces that a spike samples, and of
# the patch of inputs that it reaches by scatter or gather.
_WINDOW, _PICK, _BACK_SCATTER, _BACK_GATHER = 0.45, 1.05, 0.65, 0.57
# A weight, whose gradient by rows is brought into torch's order.
_GRADIENT_ORDER = 1.7
# The weight gradient tap by tap: an input event and a vector of its row of weights; a number of the rows of inputs and
# of signals, which are read once a tap; a weight, whose gradient is transposed.
_TAP_EVENT, _OUTER, _ROW, _TRANSPOSE = 4.0, 0.5, 0.35, 1.0
# Costs in a fully connected layer, whose weights fill the first cache: an entry, and a vector of the traces it samples
# or of the row of weights that it adds to the inputs' field.
_ENTRY, _PICK_FAR, _FIELD_FAR = 15.0, 2.2, 1.0
# Weights of one input channel and kernel row that are taken into registers, with each of their vectors; a spike.
_SUMS, _SUMS_VECTOR, _SPIKE = 5.0, 0.8, 6.0
# A neuron and step of a dense signal, and an input that is multiplied by its field.
_SIGNAL, _MULTIPLY = 0.7, 1.0
# Below this cost there is nothing to gain from a dense convolution.
_BACK_SMALL = 5e4


class BackwardAlgorithms(NamedTuple):
    """The algorithm of each gradient; "taps" is also driven by input events, one kernel element at a time."""

    weight: Literal["inputs", "taps", "spikes", "dense"]
    input: Literal["spikes", "dense"]


@lru_cache(MOST)
def windows_are_rows(g: Geometry) -> bool:
    """Returns whether the outputs that an input event sees under one kernel row are several neighbours."""
    inside = g.padding_h < g.kernel_h and g.padding_w < g.kernel_w
    return g.stride_h == g.stride_w == 1 and inside and (g.width > 1 or g.kernel_w == 1)


def inner(x: Tensor, g: Geometry) -> Tensor:
    """Returns the pixels within most kernels, where events cost most; images are rarely as dense at their edges."""
    edge_h, edge_w = g.kernel_h - 1 - g.padding_h, g.kernel_w - 1 - g.padding_w
    if 2 * edge_h >= g.in_height or 2 * edge_w >= g.in_width or edge_h < 0 or edge_w < 0:
        return x
    return x[..., edge_h : g.in_height - edge_h, edge_w : g.in_width - edge_w]


def _pixels(g: Geometry) -> int:
    return g.steps * g.batch * g.height * g.width


def weight_costs(g: Geometry, share: float, spikes: int) -> dict[str, float]:
    """Returns the cost of each algorithm for inputs with this share of nonzeros."""
    window, sums, order, per_spike, products = _weight_costs(g)
    by_inputs = share * window * _WINDOW + sums + order if windows_are_rows(g) else math.inf
    return {"inputs": by_inputs, "spikes": spikes * per_spike + order, "dense": products}


@lru_cache(MOST)
def _weight_costs(g: Geometry) -> tuple[int, float, float, float, float]:
    """Returns vectors of all windows, and costs: of sums by inputs, the gradient's order, a spike, and dense."""
    frames, block = g.steps * g.batch, block_channels(g)
    window = _pixels(g) * g.kernel_h * g.kernel_w * g.in_channels * math.ceil(g.channels / GROUP)
    order = g.taps * g.in_channels * g.channels * _GRADIENT_ORDER
    order *= _MANY_FACTOR if order > _GRADIENT_ORDER * dense.MANY else 1.0
    patch = g.kernel_h * math.ceil(g.kernel_w * g.in_channels / GROUP)
    sums = frames * g.bands(1)[1] * math.ceil(g.channels / block) * g.in_channels * g.kernel_h
    sum_cost = _SUMS + _SUMS_VECTOR * g.kernel_w * block / GROUP
    products = dense.cheapest(g, "weight").cost + g.neuron_steps * _SIGNAL
    return window, sums * sum_cost, order, _SPIKE + _PICK * patch, products


def input_costs(g: Geometry, spikes: int) -> dict[str, float]:
    """Cost of each algorithm."""
    per_spike, order, products = _input_costs(g)
    return {"spikes": spikes * per_spike + order, "dense": products}


@lru_cache(MOST)
def _input_costs(g: Geometry) -> tuple[float, float, float]:
    """Returns the cost of a spike, of ordering the weights, and of the dense algorithm."""
    vectors = math.ceil(g.in_channels / GROUP)
    if scatters_back(g):
        patch = _BACK_SCATTER * g.kernel_h * math.ceil(g.kernel_w * g.in_channels / GROUP)
    else:
        patch = _BACK_GATHER * g.kernel_h * g.kernel_w * vectors
    inputs = g.steps * g.batch * g.in_height * g.in_width * g.in_channels
    products = dense.cheapest(g, "input").cost + g.neuron_steps * _SIGNAL + inputs * _MULTIPLY
    return _SPIKE + patch, _order_cost(g, by_rows=True), products


def _cheapest(found: dict[str, float]) -> str:
    by_events = min([name for name in found if name != "dense"], key=found.__getitem__)
    if chosen() == "events" or found[by_events] < _BACK_SMALL:
        return by_events
    return min(found, key=found.__getitem__)


def decide_backward(
    x: Tensor, g: Geometry, spikes: int, need_weight: bool = True, from_state: bool = False
) -> BackwardAlgorithms:
    """Returns the algorithms of one call whose forward pass had this number of spikes.

    Only the choice for the weight gradient reads the sequence; if that gradient is not needed, it is "spikes". A
    gradient of the last state (`from_state`) acts like a spike of every neuron at the last step.
    """
    if from_state:
        spikes += g.neuron_steps // max(g.steps, 1)
    if g.unsupported or chosen() == "dense":
        return BackwardAlgorithms("dense", "dense")
    weight = _cheapest(weight_costs(g, density(inner(x, g)), spikes)) if need_weight else "spikes"
    return BackwardAlgorithms(weight, _cheapest(input_costs(g, spikes)))  # type: ignore[arg-type]


def tap_cost(g: Geometry, share: float) -> float:
    """Cost of the weight gradient tap by tap, for a dense signal and inputs of which this share is not zero."""
    fixed, event = _tap_costs(g)
    return fixed + share * event


@lru_cache(MOST)
def _tap_costs(g: Geometry) -> tuple[float, float]:
    """Returns the cost without events, and that of an input of events alone."""
    inputs, pixels = g.steps * g.batch * g.in_height * g.in_width * g.in_channels, _pixels(g)
    event = inputs * (_TAP_EVENT + math.ceil(g.channels / GROUP) * _OUTER)
    rows = pixels * (g.in_channels + g.channels) * _ROW
    weights = g.taps * g.in_channels * g.channels
    transposed = weights * _TRANSPOSE * (_MANY_FACTOR if weights >= 2 * dense.MANY else 1.0)
    return _TAPS_CALL + g.taps * rows + transposed, g.taps * event


def _matrix_costs(g: Geometry, share: float) -> dict[str, float]:
    """Returns the costs of the weight gradient of a fully connected layer with a dense signal."""
    return {"taps": tap_cost(g, share), "dense": dense.cheapest(g, "weight").cost}


def decide_for_entries(
    x: Tensor, g: Geometry, entries: int, need_weight: bool = True, from_state: bool = False
) -> BackwardAlgorithms:
    """`decide_backward` for neurons with a surrogate: near-threshold steps replace spikes.

    A fully connected layer's weight gradient by input events is that of a 1x1 convolution.
    """
    if not is_matrix(g) or chosen() == "dense":
        return decide_backward(x, g, entries, need_weight, from_state)
    if from_state:
        entries += g.batch * g.channels
    vectors, signal = math.ceil(g.in_channels / GROUP), g.neuron_steps * _SIGNAL
    weight = "spikes"
    if need_weight:
        found = {name: cost + signal for name, cost in _matrix_costs(g, density(x)).items()}
        weight = _cheapest({**found, "spikes": entries * (_ENTRY + vectors * _PICK_FAR)})
    field = {
        "spikes": entries * (_ENTRY + vectors * _FIELD_FAR),
        "dense": dense.cheapest(g, "input").cost + signal * (weight == "spikes"),
    }
    return BackwardAlgorithms(weight, _cheapest(field))  # type: ignore[arg-type]


def decide_for_signal(
    x: Tensor, g: Geometry, share_of: Callable[[Tensor], float] = density
) -> Literal["inputs", "taps", "dense"]:
    """Returns the weight gradient's algorithm for a dense signal; `share_of` tells the share of input events."""
    if not is_supported(g) or chosen() == "dense":
        return "dense"
    share = share_of(inner(x, g))
    if is_matrix(g):
        return _cheapest(_matrix_costs(g, share))  # type: ignore[return-value]
    found = {**weight_costs(g, share, 0), "taps": tap_cost(g, share)}
    del found["spikes"]
    return _cheapest(found)  # type: ignore[return-value]
