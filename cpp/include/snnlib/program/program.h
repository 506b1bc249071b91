// Neurons whose step is a program of pointwise instructions, over whole sequences: the launchers that the bindings
// call. Tracing and derivatives: snnlib/neurons/program.py and adjoint.py; codes: snnlib/backends/machine.py.
#pragma once

#include "snnlib/core/call.h"
#include "snnlib/core/dtype.h"

namespace snnlib {

// Instructions of five numbers: operation, target, and up to three operands, which are registers.
struct ProgramCode {
  const int32_t* numbers;
  int64_t count;
  SNNLIB_FIELDS(numbers, count)
};

// Registers in this order: literals, constants, current, dL/dvalue, states before the step, states after it, the value
// (backward dL/dcurrent), dL/dstates after and before the step, saved values, temporaries, sums of dL/dconstant.
struct ProgramArgs {
  SequenceView view;
  DType dtype;
  int states, saved, temporaries, learned;
  int literals, constants;
  // [literals], and [constants][period]: constant `row` of neuron i of one step is [row][i % period].
  const void* literal_values;
  const void* constant_values;
  int64_t period;
  const void* current;
  const void* state_in;  // before the first step, [states][outer * inner]; null: zero
  // Neurons of a tile, and steps that backward repeats at a time, from a checkpoint each.
  int64_t tile, chunk;
  // States before the second and later chunks, [chunks - 1][states][outer * inner]; null where they are not saved.
  void* checkpoints;
  Executor executor;
  SNNLIB_FIELDS(view, dtype, states, saved, temporaries, learned, literals, constants, literal_values, constant_values,
                period, current, state_in, tile, chunk, checkpoints, executor)
};

struct ProgramForwardArgs : ProgramArgs {
  ProgramCode code;
  void* value;
  void* state_out;
  SNNLIB_MORE_FIELDS(ProgramArgs, code, value, state_out)
};

struct ProgramBackwardArgs : ProgramArgs {
  // A step with the values that its adjoint reads, and the adjoint.
  ProgramCode again, back;
  const void* grad_value;
  const void* grad_state_out;  // null: zero
  void* grad_current;
  void* grad_state_in;
  void* grad_constants;  // of every neuron, [learned][outer * inner]
  SNNLIB_MORE_FIELDS(ProgramArgs, again, back, grad_value, grad_state_out, grad_current, grad_state_in, grad_constants)
};

struct ProgramKernels {
  void (*forward)(const ProgramForwardArgs&);
  void (*backward)(const ProgramBackwardArgs&);
};

namespace portable {
extern const ProgramKernels program_kernels;
}  // namespace portable

}  // namespace snnlib
