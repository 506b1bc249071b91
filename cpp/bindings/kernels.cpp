#include "bindings.h"
#include "snnlib/batch_norm.h"
#include "snnlib/delay/delay.h"
#include "snnlib/delay/linear.h"
#include "snnlib/events/nonzero.h"
#include "snnlib/events/sparse.h"
#include "snnlib/events/taps.h"
#include "snnlib/loop/recurrent.h"
#include "snnlib/loop/scan.h"
#include "snnlib/pool/pool.h"
#include "snnlib/winograd.h"

namespace snnlib {

void fill(Arguments& a, SequenceView& v) {
  a("outer", v.outer)("steps", v.steps)("inner", v.inner)("outer_stride", v.outer_stride);
  a("step_stride", v.step_stride);
}

void fill(Arguments& a, CellPlanes& p) {
  a("channels", p.channels)("height", p.height)("width", p.width)("channels_last", p.channels_last);
  a("window_rows", p.window_rows)("window_columns", p.window_columns);
}

template <class Flags>
void fill(Arguments& a, ScanArgsOf<Flags>& s) {
  a("view", s.view)("dtype", s.dtype)("states", s.states)("flags", s.flags)("coefficients", s.coefficients);
  a("period", s.period)("current", s.current)("state_in", s.state_in)("executor", s.executor.word);
}
template <class Flags>
void fill(Arguments& a, ScanForwardArgsOf<Flags>& s) {
  fill(a, static_cast<ScanArgsOf<Flags>&>(s));
  a("value", s.value)("state_out", s.state_out);
}
template <class Flags>
void fill(Arguments& a, ScanBackwardArgsOf<Flags>& s) {
  fill(a, static_cast<ScanArgsOf<Flags>&>(s));
  a("grad_value", s.grad_value)("grad_state_out", s.grad_state_out)("grad_current", s.grad_current);
  a("grad_state_in", s.grad_state_in)("grad_coefficients", s.grad_coefficients);
}
void fill(Arguments& a, ScanPoolForwardArgs& s) {
  fill(a, s.scan);
  a("planes", s.planes);
}
void fill(Arguments& a, ScanPoolBackwardArgs& s) {
  fill(a, s.scan);
  a("planes", s.planes);
}

void fill(Arguments& a, SrmArgs& s) {
  a("view", s.view)("dtype", s.dtype)("constants", s.constants)("current", s.current)("threshold", s.threshold);
  a("threshold_period", s.threshold_period)("state_in", s.state_in)("executor", s.executor.word);
}
void fill(Arguments& a, SrmForwardArgs& s) {
  fill(a, static_cast<SrmArgs&>(s));
  a("spikes", s.spikes)("state_out", s.state_out)("potential", s.potential)("delta_u", s.delta_u);
  a("delta_ut", s.delta_ut);
}
void fill(Arguments& a, SrmBackwardArgs& s) {
  fill(a, static_cast<SrmArgs&>(s));
  a("grad_spikes", s.grad_spikes)("weight_signal", s.weight_signal)("input_signal", s.input_signal);
}
void fill(Arguments& a, SrmPoolForwardArgs& s) {
  fill(a, s.srm);
  a("planes", s.planes);
}
void fill(Arguments& a, SrmPoolBackwardArgs& s) {
  fill(a, s.srm);
  a("planes", s.planes);
}

void fill(Arguments& a, RecurrentDelays& d) { a("delay", d.delay)("longest", d.longest)("two", d.two); }
void fill(Arguments& a, RecurrentArgs& r) {
  fill(a, static_cast<ScanArgs&>(r));
  a("weight", r.weight)("row", r.row)("delays", r.delays)("lengths", r.lengths);
}
void fill(Arguments& a, RecurrentForwardArgs& r) {
  fill(a, static_cast<RecurrentArgs&>(r));
  a("value", r.value)("state_out", r.state_out)("total", r.total);
}
void fill(Arguments& a, RecurrentBackwardArgs& r) {
  fill(a, static_cast<RecurrentArgs&>(r));
  a("value", r.value)("grad_value", r.grad_value)("grad_state_out", r.grad_state_out)("kept", r.kept);
  a("grad_current", r.grad_current)("grad_state_in", r.grad_state_in)("grad_weight", r.grad_weight);
  a("grad_coefficients", r.grad_coefficients);
}

template <class Args>
void fill(Arguments& a, SparseRecurrent<Args>& s) {
  fill(a, static_cast<Args&>(s));
  a("starts", s.starts)("targets", s.targets);
}

void fill(Arguments& a, SparseArgs& s) {
  a("dtype", s.dtype)("frames", s.frames)("inputs", s.inputs)("outputs", s.outputs)("x", s.x)("weight", s.weight);
  a("starts", s.starts)("targets", s.targets)("executor", s.executor.word);
}
void fill(Arguments& a, SparseCurrentsArgs& s) {
  fill(a, s.map);
  a("out", s.out);
}
void fill(Arguments& a, SparseGradientsArgs& s) {
  fill(a, s.map);
  a("signal", s.signal)("grad_x", s.grad_x)("grad_weight", s.grad_weight);
}

void fill(Arguments& a, PoolArgs& p) {
  a("dtype", p.dtype)("outer", p.outer)("inner", p.inner)("in", p.in)("out", p.out)("kernel", p.kernel);
  a("stride", p.stride)("padding", p.padding)("executor", p.executor.word);
}
void fill(Arguments& a, PoolForwardArgs& p) {
  fill(a, p.pool);
  a("input", p.pool.input)("count_include_pad", p.count_include_pad)("divisor_override", p.divisor_override);
  a("output", p.output);
}
void fill(Arguments& a, PoolBackwardArgs& p) {
  fill(a, p.pool);
  a("input", p.pool.input)("grad_output", p.grad_output)("grad_input", p.grad_input);
}
void fill(Arguments& a, MaxPoolForwardArgs& p) {
  fill(a, p.pool);
  a("input", p.pool.input)("output", p.output)("taps", p.taps);
}
void fill(Arguments& a, MaxPoolBackwardArgs& p) {
  fill(a, p.pool);
  a("grad_output", p.grad_output)("taps", p.taps)("grad_input", p.grad_input);
}

// The sequence alone; the taps are those of a shift.
static void fill_sequence(Arguments& a, DelayShiftArgs& d) {
  a("dtype", d.dtype)("steps", d.steps)("batch", d.batch)("channels", d.channels)("space", d.space);
  a("step_stride", d.step_stride)("batch_stride", d.batch_stride)("channel_stride", d.channel_stride);
  a("space_stride", d.space_stride)("x", d.x)("delays", d.delays)("executor", d.executor.word);
}
void fill(Arguments& a, DelayShiftArgs& d) {
  fill_sequence(a, d);
  a("first", d.first)("second", d.second)("out", d.out)("earlier", d.earlier);
}
void fill(Arguments& a, DelaySumsArgs& d) {
  fill_sequence(a, d.sequence);
  a("grad", d.grad)("sums", d.sums);
}

void fill(Arguments& a, DelayedLinearArgs& d) {
  a("dtype", d.dtype)("steps", d.steps)("batch", d.batch)("inputs", d.inputs)("outputs", d.outputs);
  a("step_rows", d.step_rows)("batch_rows", d.batch_rows)("longest", d.longest)("per_channel", d.per_channel);
  a("two", d.two)("x", d.x)("delay", d.delay)("delays", d.delays)("taps", d.taps)("weight", d.weight);
  a("weight_row", d.weight_row)("executor", d.executor.word);
}
void fill(Arguments& a, DelayedCurrentsArgs& d) {
  fill(a, d.linear);
  a("out", d.out);
}
void fill(Arguments& a, DelayedSumsArgs& d) {
  fill(a, d.linear);
  a("grad", d.grad)("sums", d.sums)("first", d.first)("count", d.count);
}
void fill(Arguments& a, DelayedGradientsArgs& d) {
  fill(a, d.linear);
  a("grad", d.grad)("grad_weight", d.grad_weight)("grad_delay", d.grad_delay);
}
void fill(Arguments& a, DelayedInputArgs& d) {
  fill(a, d.linear);
  a("grad", d.grad)("grad_x", d.grad_x);
}

void fill(Arguments& a, TapShape& s) {
  a("frames", s.frames)("in_channels", s.in_channels)("in_height", s.in_height)("in_width", s.in_width);
  a("channels", s.channels)("height", s.height)("width", s.width)("kernel_h", s.kernel_h)("kernel_w", s.kernel_w);
  a("stride_h", s.stride_h)("stride_w", s.stride_w)("padding_h", s.padding_h)("padding_w", s.padding_w);
  a("dilation_h", s.dilation_h)("dilation_w", s.dilation_w);
}
void fill(Arguments& a, TapCurrentsArgs& t) {
  a("shape", t.shape)("input", t.input)("weight", t.weight)("piece", t.piece)("current", t.current);
  a("executor", t.executor.word);
}
void fill(Arguments& a, TapWeightsArgs& t) {
  a("shape", t.shape)("input", t.input)("signal", t.signal)("grad_weight", t.grad_weight);
  a("executor", t.executor.word);
}
void fill(Arguments& a, EventCurrentsArgs& e) {
  a("shape", e.shape)("dtype", e.dtype)("batch", e.batch)("input", e.input)("strides", e.strides);
  a("weight", e.weight)("output", e.output)("executor", e.executor.word);
}

void fill(Arguments& a, WinogradArgs& w) {
  a("frames", w.shape.frames)("channels", w.shape.channels)("height", w.shape.height)("width", w.shape.width);
  a("out_channels", w.shape.out_channels)("out_height", w.shape.out_height)("out_width", w.shape.out_width);
  a("padding", w.shape.padding)("signal", w.signal)("weight", w.weight)("out", w.out)("executor", w.executor.word);
}

void fill(Arguments& a, MomentsArgs& m) {
  a("rows", m.rows)("channels", m.channels)("values", m.values)("mean", m.mean)("variance", m.variance);
  a("executor", m.executor.word);
}
void fill(Arguments& a, NormalizeBackwardArgs& n) {
  a("rows", n.rows)("channels", n.channels)("values", n.values)("mean", n.mean)("variance", n.variance);
  a("epsilon", n.epsilon)("grad", n.grad)("sums", n.sums)("executor", n.executor.word);
}

void fill(Arguments& a, NonzeroArgs& n) {
  a("dtype", n.dtype)("frames", n.frames)("cells", n.cells)("frame_stride", n.frame_stride)("parts", n.parts);
  a("elements", n.elements)("counts", n.counts)("executor", n.executor.word);
}

void bind_kernels(pybind11::module_& module, KernelTable table) {
  const auto bind = [&](const char* name, auto family, auto kernel) {
    bind_kernel(module, table, name, family, kernel);
  };
  bind("srm_forward", &Kernels::srm, &SrmKernels::forward);
  bind("srm_backward", &Kernels::srm, &SrmKernels::backward);
  bind("srm_pool_forward", &Kernels::srm_pool, &SrmPoolKernels::forward);
  bind("srm_pool_backward", &Kernels::srm_pool, &SrmPoolKernels::backward);
  bind("scan_forward", &Kernels::scan, &ScanKernels::forward);
  bind("scan_backward", &Kernels::scan, &ScanKernels::backward);
  bind("exact_forward", &Kernels::exact, &ExactKernels::forward);
  bind("exact_backward", &Kernels::exact, &ExactKernels::backward);
  bind("scan_pool_forward", &Kernels::scan_pool, &ScanPoolKernels::forward);
  bind("scan_pool_backward", &Kernels::scan_pool, &ScanPoolKernels::backward);
  bind("recurrent_forward", &Kernels::recurrent, &RecurrentKernels::forward);
  bind("recurrent_backward", &Kernels::recurrent, &RecurrentKernels::backward);
  bind("sparse_currents", &Kernels::sparse, &SparseKernels::currents);
  bind("sparse_gradients", &Kernels::sparse, &SparseKernels::gradients);
  bind("sparse_recurrent_forward", &Kernels::sparse, &SparseKernels::recurrent_forward);
  bind("sparse_recurrent_backward", &Kernels::sparse, &SparseKernels::recurrent_backward);
  bind("pool_forward", &Kernels::pool, &PoolKernels::forward);
  bind("pool_backward", &Kernels::pool, &PoolKernels::backward);
  bind("max_pool_forward", &Kernels::max_pool, &MaxPoolKernels::forward);
  bind("max_pool_backward", &Kernels::max_pool, &MaxPoolKernels::backward);
  bind("delay_shift", &Kernels::delay, &DelayKernels::shift);
  bind("delay_shift_sums", &Kernels::delay, &DelayKernels::shift_sums);
  bind("delayed_currents", &Kernels::delayed_linear, &DelayedLinearKernels::currents);
  bind("delayed_sums", &Kernels::delayed_linear, &DelayedLinearKernels::sums);
  bind("delayed_gradients", &Kernels::delayed_linear, &DelayedLinearKernels::gradients);
  bind("delayed_input", &Kernels::delayed_linear, &DelayedLinearKernels::input);
  bind("tap_currents", &Kernels::tap, &TapKernels::currents);
  bind("tap_weights", &Kernels::tap, &TapKernels::weights);
  bind("event_currents", &Kernels::event, &EventKernels::currents);
  bind("winograd_adjoint", &Kernels::winograd, &WinogradKernels::adjoint);
  bind("batch_norm_moments", &Kernels::batch_norm, &BatchNormKernels::moments);
  bind("batch_norm_backward", &Kernels::batch_norm, &BatchNormKernels::backward);
  bind("count_nonzero", &Kernels::nonzero, &NonzeroKernels::count);
}

}  // namespace snnlib
