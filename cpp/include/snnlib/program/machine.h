// Machine for straight-line programs: an instruction is a loop over a tile of neurons, a register is a tile in the L1
// cache, a row of the sequence, or one number for all neurons.
#pragma once

#include "snnlib/core/dtype.h"
#include "snnlib/neurons/surrogate.h"
#include "snnlib/program/functions.h"
#include "snnlib/program/program.h"

namespace snnlib {

// Operations: name, operands, value of a vector of x, y and z. Comparisons give 1 or 0. The order is that of the codes,
// which Python reads from the module. Sums and products of a sum or product are rounded twice, as the two are. `slope`
// is the surrogate's of a distance x, with its scale y and height z.
// clang-format off
#define SNNLIB_PROGRAM_PAIRS(one, name, inner)       \
  one(name##_add, 3, (inner) + z) one(name##_sub, 3, (inner) - z) \
  one(name##_rsub, 3, z - (inner)) one(name##_mul, 3, (inner) * z)
#define SNNLIB_PROGRAM_OPS(one)                                                                     \
  one(copy, 1, x) one(neg, 1, -x) one(reciprocal, 1, unit / x)                                      \
  one(add, 2, x + y) one(sub, 2, x - y) one(mul, 2, x * y) one(div, 2, x / y)                       \
  SNNLIB_PROGRAM_PAIRS(one, add, x + y) SNNLIB_PROGRAM_PAIRS(one, sub, x - y)                       \
  SNNLIB_PROGRAM_PAIRS(one, mul, x * y)                                                             \
  one(lt, 2, x < y ? unit : zero) one(le, 2, x <= y ? unit : zero) one(gt, 2, x > y ? unit : zero)  \
  one(ge, 2, x >= y ? unit : zero) one(eq, 2, x == y ? unit : zero) one(ne, 2, x != y ? unit : zero) \
  one(maximum, 2, y > x ? y : y == y ? x : y) one(minimum, 2, y < x ? y : y == y ? x : y)           \
  one(clamp_low, 2, x < y ? y : x) one(clamp_high, 2, x > y ? y : x)                                \
  one(where, 3, x != zero ? y : z)                                                                  \
  one(fired, 1, x >= zero ? unit : x - x) one(fired_above, 1, x > zero ? unit : x - x)              \
  one(sign, 1, x > zero ? unit : x < zero ? zero - unit : zero)                                     \
  one(abs, 1, absolute_of(x)) one(floor, 1, floor_of(x)) one(ceil, 1, ceil_of(x)) one(round, 1, round_of(x)) \
  one(exp, 1, exp_of(x)) one(log, 1, log_of(x)) one(log1p, 1, log1p_of(x)) one(expm1, 1, expm1_of(x)) \
  one(sigmoid, 1, sigmoid_of(x)) one(softplus, 1, softplus_of(x)) one(tanh, 1, tanh_of(x))          \
  one(sin, 1, sin_of(x)) one(cos, 1, cos_of(x)) one(sqrt, 1, sqrt_of(x)) one(pow, 2, pow_of(x, y))  \
  one(triangle, 3, slope(SurrogateKind::kTriangle)) one(rectangle, 3, slope(SurrogateKind::kRectangle)) one(atan, 3, slope(SurrogateKind::kATan)) \
  one(fast_sigmoid, 3, slope(SurrogateKind::kFastSigmoid)) one(bump_sigmoid, 3, slope(SurrogateKind::kSigmoid))                   \
  one(exponential, 3, slope(SurrogateKind::kExponential)) one(gaussian, 3, slope(SurrogateKind::kGaussian))                       \
  one(multi_gaussian, 3, slope(SurrogateKind::kMultiGaussian))
// clang-format on

enum class ProgramOp : int32_t {
#define SNNLIB_ENUMERATE(name, operands, value) name##_op,
  SNNLIB_PROGRAM_OPS(SNNLIB_ENUMERATE)
#undef SNNLIB_ENUMERATE
};

constexpr const char* kProgramOps[] = {
#define SNNLIB_NAME(name, operands, value) #name,
    SNNLIB_PROGRAM_OPS(SNNLIB_NAME)
#undef SNNLIB_NAME
};
constexpr int64_t kProgramOpCount = sizeof(kProgramOps) / sizeof(*kProgramOps);
// Numbers of an instruction.
constexpr int64_t kCodeNumbers = 5;

namespace SNNLIB_ISA {

// Neurons that an instruction takes at a time, two vectors of the widest instruction set; tiles are whole multiples.
constexpr int64_t kProgramUnit = 32;

template <class S>
struct Register {
  S* at;
  // Elements from a vector of neurons to the next: 0 of a number, which fills the vectors of a unit.
  int64_t step;
};

// Value of an operation for vectors x, y and z.
template <ProgramOp Op>
struct Operation;
#define SNNLIB_OPERATION(name, operands, value)                                                                \
  template <>                                                                                                  \
  struct Operation<ProgramOp::name##_op> {                                                                     \
    static constexpr int kOperands = operands;                                                                 \
    template <class S, class F>                                                                                \
    static SNNLIB_INLINE F of(F x, F y, F z, S one) {                                                          \
      const F zero = F{}, unit = zero + one;                                                                   \
      const auto slope = [&](SurrogateKind kind) { return z * surrogate_shape(kind, magnitude(x * y), one); }; \
      (void)zero, (void)unit, (void)slope;                                                                     \
      return value;                                                                                            \
    }                                                                                                          \
  };
SNNLIB_PROGRAM_OPS(SNNLIB_OPERATION)
#undef SNNLIB_OPERATION

template <class S, class Op>
void run_instruction(const Register<S>* r, const int32_t* code, int64_t neurons) {
  using F = typename Simd<S>::Vector;
  constexpr int64_t L = Simd<S>::kLanes;
  constexpr int kOperands = Op::kOperands;
  S* to = r[code[1]].at;
  const S *x = r[code[2]].at, *y = r[code[3]].at, *z = r[code[4]].at;
  const int64_t x_step = r[code[2]].step, y_step = r[code[3]].step, z_step = r[code[4]].step;
  const auto read = [](const S* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  for (int64_t i = 0; i < neurons; i += 2 * L, to += 2 * L) {
    // Both vectors are read before one is written: the target may be an operand.
    F out[2];
    for (int j = 0; j < 2; ++j) {
      const F a = read(x), b = kOperands > 1 ? read(y) : F{}, c = kOperands > 2 ? read(z) : F{};
      out[j] = Op::of(a, b, c, S(1));
      x += x_step;
      if (kOperands > 1) y += y_step;
      if (kOperands > 2) z += z_step;
    }
    std::memcpy(to, out, sizeof out);
  }
}

template <class S>
using Run = void (*)(const Register<S>*, const int32_t*, int64_t);

template <class S>
struct Operations {
  static constexpr Run<S> kAll[] = {
#define SNNLIB_RUN(name, operands, value) run_instruction<S, Operation<ProgramOp::name##_op>>,
      SNNLIB_PROGRAM_OPS(SNNLIB_RUN)
#undef SNNLIB_RUN
  };
};

// Runs a program. Compiled once for each instruction set, in cpp/cpu/program.cpp.
void run_code(const ProgramCode& code, const Register<float>* r, int64_t neurons);
void run_code(const ProgramCode& code, const Register<double>* r, int64_t neurons);

}  // namespace SNNLIB_ISA
}  // namespace snnlib
