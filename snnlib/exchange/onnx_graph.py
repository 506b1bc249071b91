"""`export_onnx`: writes a net as a dense ONNX graph for any number of steps and samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from snnlib.checks import import_extra
from snnlib.exchange.structure.stages import Stage, stages_of
from snnlib.files.atomic import write_bytes_atomically

__all__ = ["export_onnx"]

# Version of the operators: the first with everything used here that current runtimes read.
_OPSET, _IR = 17, 8
Array = npt.NDArray[Any]


def export_onnx(net: nn.Module, file: str | Path, x: Tensor) -> None:
    """Writes a chain of layers as an ONNX graph `x [T, N, ...] -> y [T, N, ...]` for any T and N.

    Convolutions, linear layers and pools run on all steps at once, neurons in a `Scan` over time; all operations are
    dense float32. Batch norm is folded into the weights. Runtimes sum in another order, so a potential within rounding
    of the threshold may fire in one of the two only.

    Args:
        net: a chain of this library's layers as `to_integers` takes it, without delays, time constants shared or per
            channel; in evaluation mode.
        file: output file, `.onnx`.
        x: an input of the net `[T, N, ...]`, for its shape.

    Raises:
        ImportError: the package onnx is missing (`pip install snnlib[onnx]`).
        ValueError: a module without counterpart; the message names its path.

    >>> import snnlib, tempfile, torch
    >>> from snnlib.exchange import export_onnx
    >>> net = torch.nn.Sequential(snnlib.SpikingLinear(20, 8), snnlib.SRMReadout(8, 4)).eval()
    >>> with tempfile.TemporaryDirectory() as folder:                  # doctest: +SKIP
    ...     export_onnx(net, f"{folder}/net.onnx", torch.zeros(30, 1, 20))
    """
    onnx = import_extra("onnx", "onnx", "ONNX graphs")
    stages = stages_of(net, x)
    graph = _Graph(onnx)
    value = "x"
    graph.constant("batch_begin", np.array([1], np.int64))
    graph.constant("batch_end", np.array([2], np.int64))
    graph.constant("steps_begin", np.array([0], np.int64))
    graph.node("Shape", ["x"], "sizes")
    graph.node("Slice", ["sizes", "steps_begin", "batch_end"], "steps_and_batch")
    graph.node("Slice", ["sizes", "batch_begin", "batch_end"], "batch")
    for number, stage in enumerate(stages):
        value = graph.stage(stage, number, value)
    helper = onnx.helper
    kind = onnx.TensorProto.FLOAT
    out = stages[-1].output
    last = list(out) if out[1:] != (1, 1) else [out[0]]
    graph.reshape(value, "steps_and_batch", last, "y")
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "net",
            [helper.make_tensor_value_info("x", kind, ["T", "N", *x.shape[2:]])],
            [helper.make_tensor_value_info("y", kind, ["T", "N", *last])],
            graph.initializers,
        ),
        producer_name="snnlib",
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    model.ir_version = _IR
    onnx.checker.check_model(model)
    write_bytes_atomically(Path(file), model.SerializeToString())


class _Graph:
    def __init__(self, onnx: Any) -> None:
        self.onnx, self.nodes, self.initializers = onnx, list[Any](), list[Any]()

    def node(self, kind: str, inputs: list[str], output: str, **options: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], output, **options))
        return output

    def constant(self, name: str, values: Array) -> str:
        self.initializers.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def reshape(self, value: str, leading: str | None, sizes: list[int], output: str) -> str:
        """[leading sizes, sizes], or with None all leading axes as one."""
        own = self.constant(f"{output}_sizes", np.array(sizes if leading else [-1, *sizes], np.int64))
        if leading:
            own = self.node("Concat", [leading, own], f"{output}_shape", axis=0)
        return self.node("Reshape", [value, own], output)

    def stage(self, stage: Stage, number: int, value: str) -> str:
        """Adds a layer; returns the name of its output, frames `[T, N, C, H, W]`."""
        if any(steps is not None for steps in (stage.delay, stage.weight_delay, stage.recurrent_delay)):
            raise ValueError(f"{stage.name}: delays have no counterpart in a dense graph")
        assert stage.cell is not None
        if stage.cell.levels > 1:
            raise ValueError(f"{stage.name}: levels={stage.cell.levels:g} have no counterpart in this graph")
        name = f"layer{number}"
        frames = self.reshape(value, None, list(stage.input), f"{name}_frames")
        inputs = [frames, self.constant(f"{name}_weight", _floats(stage.weight.numpy()))]
        if stage.bias is not None:
            inputs.append(self.constant(f"{name}_bias", _floats(stage.bias.numpy())))
        pads = [*stage.padding, *stage.padding]
        self.node("Conv", inputs, f"{name}_conv", strides=stage.stride, dilations=stage.dilation, pads=pads)
        currents = self.reshape(f"{name}_conv", "steps_and_batch", list(stage.neurons), f"{name}_currents")
        out = self._neurons(stage, name, currents)
        if stage.pool != (1, 1):
            flat = self.reshape(out, None, list(stage.neurons), f"{name}_flat")
            pooled = self.node(
                "AveragePool", [flat], f"{name}_pooled", kernel_shape=stage.pool, strides=stage.pool
            )
            out = self.reshape(pooled, "steps_and_batch", list(stage.output), f"{name}_output")
        return out

    def _neurons(self, stage: Stage, name: str, currents: str) -> str:
        cell, helper = stage.cell, self.onnx.helper
        assert cell is not None
        body = _Graph(self.onnx)

        def channels(kind: str, values: Array) -> str:
            return body.constant(f"{name}_{kind}", _floats(values).reshape((-1, 1, 1)))

        total = "a"
        if stage.recurrent is not None:
            body.constant("flat", np.array([-1, stage.neurons[0]], np.int64))
            body.constant("cells", np.array([-1, *stage.neurons], np.int64))
            body.constant("recurrent", _floats(stage.recurrent.t().numpy()))
            body.node("Reshape", ["s", "flat"], "s_flat")
            body.node("MatMul", ["s_flat", "recurrent"], "returned")
            body.node("Reshape", ["returned", "cells"], "returned_cells")
            total = body.node("Add", ["a", "returned_cells"], "total")
        if cell.decay_s is not None:
            body.node("Mul", ["i", channels("decay_s", cell.decay_s)], "i_kept")
            total = body.node("Add", ["i_kept", total], "i_now")
        body.node("Mul", ["v", channels("decay", cell.decay)], "v_kept")
        h = body.node("Add", ["v_kept", total], "h")
        i_next = total
        if cell.threshold is None:
            out, v_next = body.node("Mul", [h, channels("unit", stage.unit)], "z"), h
        else:
            threshold = channels("threshold", cell.threshold)
            body.node("Greater" if cell.strict else "GreaterOrEqual", [h, threshold], "fires")
            out = body.node("Cast", ["fires"], "z", to=self.onnx.TensorProto.FLOAT)
            if cell.reset_value is None:
                body.node("Mul", [out, threshold], "taken_off")
                v_next = body.node("Sub", [h, "taken_off"], "v_reset")
            else:
                v_next = body.node("Where", ["fires", channels("reset", cell.reset_value), h], "v_reset")
            if stage.resets_all and cell.decay_s is not None:
                i_next = body.node("Where", ["fires", channels("zero", np.zeros(1)), total], "i_reset")
        kind, shape = self.onnx.TensorProto.FLOAT, ["N", *stage.neurons]
        states = {"v": v_next}
        if cell.decay_s is not None:
            states["i"] = i_next
        if stage.recurrent is not None:
            states["s"] = out
        # Each output of a body needs a name of its own.
        results = [body.node("Identity", [after], f"{state}_next") for state, after in states.items()]
        results.append(body.node("Identity", [out], "out"))
        self.constant(f"{name}_start", _floats(np.asarray(cell.start)).reshape(-1, 1, 1))
        self.constant(f"{name}_neurons", np.array(stage.neurons, np.int64))
        self.node("Concat", ["batch", f"{name}_neurons"], f"{name}_state_shape", axis=0)
        zero = self.onnx.numpy_helper.from_array(np.zeros(1, np.float32))
        self.node("ConstantOfShape", [f"{name}_state_shape"], f"{name}_zeros", value=zero)
        self.node("Add", [f"{name}_zeros", f"{name}_start"], f"{name}_v_start")
        starts = [f"{name}_v_start" if state == "v" else f"{name}_zeros" for state in states]
        graph = helper.make_graph(
            body.nodes,
            f"{name}_step",
            [helper.make_tensor_value_info(key, kind, shape) for key in (*states, "a")],
            [helper.make_tensor_value_info(key, kind, shape) for key in results],
            body.initializers,
        )
        finals = [f"{name}_{state}_last" for state in states]
        self.nodes.append(
            helper.make_node(
                "Scan",
                [*starts, currents],
                [*finals, f"{name}_out"],
                f"{name}_scan",
                body=graph,
                num_scan_inputs=1,
            )
        )
        return f"{name}_out"


def _floats(values: Array) -> Array:
    return np.asarray(values, np.float64).astype(np.float32)
