// Neurons whose step is a program of pointwise instructions, over whole sequences: the launchers that the bindings
// call. Tracing and derivatives: snnlib/neurons/program.py and adjoint.py; codes: snnlib/backends/machine.py.
#pragma once

#include "snnlib/loop/recurrent.h"

namespace snnlib {

// Instructions of five numbers: operation, target, and up to three operands, which are registers.
struct ProgramCode {
  const int32_t* numbers;
  int64_t count;
  SNNLIB_FIELDS(numbers, count)
};

// A program, in the place of the options of other neurons; their coefficients are its constants.
//
// Registers in this order: literals, constants, current, dL/dvalue, states before the step, states after it, the value
// (backward dL/dcurrent), dL/dstates after and before the step, saved values, temporaries, sums of dL/dconstant.
struct ProgramFlags {
  int saved, temporaries, learned;
  int literals, constants;
  const void* literal_values;
  // A step, a step with the values that its adjoint reads, and the adjoint.
  ProgramCode forward, again, back;
  SNNLIB_FIELDS(saved, temporaries, learned, literals, constants, literal_values, forward, again, back)
};

inline int added_rows(const ProgramFlags&) { return 0; }

// Gradients of coefficients are those of the constants that learn.
using ProgramArgs = ScanArgsOf<ProgramFlags>;

// Over sequences of neurons that run by themselves.
template <class Args>
struct Tiled : Args {
  // Neurons of a tile, and steps that backward repeats at a time, from a checkpoint each.
  int64_t tile, chunk;
  // States before the second and later chunks, [chunks - 1][states][outer * inner]; null where they are not saved.
  void* checkpoints;
  SNNLIB_MORE_FIELDS(Args, tile, chunk, checkpoints)
};
using ProgramForwardArgs = Tiled<ScanForwardArgsOf<ProgramFlags>>;
using ProgramBackwardArgs = Tiled<ScanBackwardArgsOf<ProgramFlags>>;
using ProgramRecurrentForwardArgs = RecurrentForwardArgsOf<ProgramFlags>;
using ProgramRecurrentBackwardArgs = RecurrentBackwardArgsOf<ProgramFlags>;

struct ProgramKernels {
  void (*forward)(const ProgramForwardArgs&);
  void (*backward)(const ProgramBackwardArgs&);
  void (*recurrent_forward)(const ProgramRecurrentForwardArgs&);
  void (*recurrent_backward)(const ProgramRecurrentBackwardArgs&);
};

namespace portable {
extern const ProgramKernels program_kernels;
}  // namespace portable

}  // namespace snnlib
