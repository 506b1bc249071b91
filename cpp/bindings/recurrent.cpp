#include "snnlib/loop/recurrent.h"

#include <array>
#include <tuple>

#include "bindings.h"

namespace snnlib {
namespace {

// What both calls share, as snnlib/ops/recurrent.py has it: (batch, steps, neurons, batch stride, step stride), dtype
// code, states, flags, then the addresses and sizes of coefficients, current, state before, weight and lengths, and
// those of delays: (address, longest, whether there are second taps).
using Sizes = std::array<int64_t, 5>;
using Tensors = std::array<Address, 7>;
using Delays = std::tuple<Address, int64_t, bool>;

RecurrentArgs to_args(const Sizes& v, int dtype, int states, const Flags& flags, const Tensors& t, const Delays& delays,
                      intptr_t executor) {
  const ScanArgs scan = {{v[0], v[1], v[2], v[3], v[4]},
                         DType(dtype),
                         states,
                         to_flags(flags),
                         pointer(t[0]),
                         int64_t(t[1]),
                         pointer(t[2]),
                         pointer(t[3]),
                         {executor}};
  return {scan,
          pointer(t[4]),
          int64_t(t[5]),
          {pointer(std::get<0>(delays)), std::get<1>(delays), std::get<2>(delays)},
          static_cast<const int64_t*>(pointer(t[6]))};
}

}  // namespace

void bind_recurrent(pybind11::module_& module, KernelTable table) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "recurrent_forward",
      [table](const Sizes& sizes, int dtype, int states, const Flags& flags, const Tensors& tensors,
              const Delays& delays, Address value, Address state_out, Address total, intptr_t executor) {
        table().recurrent->forward({to_args(sizes, dtype, states, flags, tensors, delays, executor), pointer(value),
                                    pointer(state_out), pointer(total)});
      },
      unlocked);
  module.def(
      "recurrent_backward",
      [table](const Sizes& sizes, int dtype, int states, const Flags& flags, const Tensors& tensors,
              const Delays& delays, Address value, Address grad_value, Address grad_state_out, Address grad_current,
              Address grad_state_in, Address grad_coefficients, Address grad_weight, Address kept, intptr_t executor) {
        table().recurrent->backward({to_args(sizes, dtype, states, flags, tensors, delays, executor), pointer(value),
                                     pointer(grad_value), pointer(grad_state_out), pointer(grad_current),
                                     pointer(grad_state_in), pointer(grad_coefficients), pointer(grad_weight),
                                     pointer(kept)});
      },
      unlocked);
}

}  // namespace snnlib
