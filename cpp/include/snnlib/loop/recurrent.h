// Neurons of the linear family whose spikes come back as currents one step later: the launchers that the bindings call.
//
//   I[t] = x[t] + W s[t-1],   s[t] = the neurons' step with I[t]            neurons/linear.h
//
// Backward, with dL/dI[t] from the neurons' adjoint:
//
//   dL/ds[t] = q[t] + W^T dL/dI[t+1],   dL/dx = dL/dI,   dL/dW = sum over t of dL/dI[t] s[t-1]^T
//
// E-prop leaves out W^T dL/dI[t+1], the path back through recurrent spikes.
//
// With a delay of k + f further steps for each connection, 0 <= f < 1, there are two taps of it, first = (1 - f) w and
// second = f w:
//
//   I[t]_i = x[t]_i + sum over j of first_ij s[t-1-k_ij]_j + second_ij s[t-2-k_ij]_j
//   dL/ds[t]_j = q[t]_j + sum over i of first_ij dL/dI[t+1+k_ij]_i + second_ij dL/dI[t+2+k_ij]_i
#pragma once

#include "snnlib/loop/scan.h"

namespace snnlib {

// Delays of connections.
struct RecurrentDelays {
  // To neuron i from neuron j at [i * neurons + j], or of each sparse connection, in steps >= 0. Null is no delays.
  const void* delay;
  // No delay is more whole steps.
  int64_t longest;
  // True if there are second taps; else delays are rounded to whole steps.
  bool two;
  SNNLIB_FIELDS(delay, longest, two)
};

// As `ScanArgsOf` with the samples outside: `view` is [batch, steps, neurons]. States have one row more, the spikes of
// the step before; the current is x forward and I backward. With delays the state before the first step and its
// gradient have longest + 2 such rows, the newest spikes first, and the state after the last step has none.
template <class Flags>
struct RecurrentArgsOf : ScanArgsOf<Flags> {
  // From neuron j to neuron i at [j * row + i]; rows end in zeros and are whole groups of kGroup long. With delays as
  // they are laid out.
  const void* weight;
  int64_t row;
  RecurrentDelays delays;
  // Sparse connections, whose weights and delays lie one after the other (events/sparse.h); null for a full matrix.
  const int64_t* starts;
  const int32_t* targets;
  // Steps of each sample; null: all of them.
  const int64_t* lengths;
  SNNLIB_MORE_FIELDS(ScanArgsOf<Flags>, weight, row, delays, starts, targets, lengths)
};

template <class Flags>
struct RecurrentForwardArgsOf : RecurrentArgsOf<Flags> {
  void* value;
  void* state_out;
  void* total;  // I of every step; null where not wanted
  SNNLIB_MORE_FIELDS(RecurrentArgsOf<Flags>, value, state_out, total)
};

template <class Flags>
struct RecurrentBackwardArgsOf : RecurrentArgsOf<Flags> {
  const void* value;
  const void* grad_value;
  const void* grad_state_out;  // null: zero
  bool spikes_back;            // whether gradients come back through recurrent spikes
  void* grad_current;
  void* grad_state_in;
  void* grad_coefficients;  // of every neuron, [rows][batch * neurons]; null where not wanted
  void* grad_weight;        // in the layout of `weight`; null where not wanted, and with delays
  // For kernels that take a sample by a block of threads; null for others. Room for all but one of the values that the
  // repeated forward pass leaves of a neuron's step, [values - 1][batch * steps * neurons]: K of them, one more with
  // reset_next, one with a refractory time, K more where coefficients have gradients or the neuron has products of
  // states.
  void* kept;
  SNNLIB_MORE_FIELDS(RecurrentArgsOf<Flags>, value, grad_value, grad_state_out, spikes_back, grad_current,
                     grad_state_in, grad_coefficients, grad_weight, kept)
};

using RecurrentArgs = RecurrentArgsOf<LinearFlags>;
using RecurrentForwardArgs = RecurrentForwardArgsOf<LinearFlags>;
using RecurrentBackwardArgs = RecurrentBackwardArgsOf<LinearFlags>;

// Kernels of sparse connections, which the CPU alone has.
template <class Args>
struct SparseRecurrent : Args {};

struct RecurrentKernels {
  void (*forward)(const RecurrentForwardArgs&);
  void (*backward)(const RecurrentBackwardArgs&);
};

namespace portable {
extern const RecurrentKernels recurrent_kernels;
}

}  // namespace snnlib
