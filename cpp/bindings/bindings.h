// What the binding files share: kernels are called by keyword, one for each field of the struct that they take.
// Tensors, checked by snnlib/ops, lend their addresses, so that the module needs no torch header and works with any
// torch.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <type_traits>

#include "snnlib/core/dtype.h"
#include "snnlib/core/isa.h"
#include "snnlib/core/threads.h"
#include "snnlib/neurons/exact.h"
#include "snnlib/neurons/linear.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {

// Address of a tensor's first element; 0 stands for "not given".
using Address = uintptr_t;

inline void* pointer(Address address) { return reinterpret_cast<void*>(address); }

// Where a tensor begins, an address as it is, null for None.
inline void* address_of(pybind11::handle value) {
  if (value.is_none()) return nullptr;
  return pointer((PyLong_Check(value.ptr()) ? value : value.attr("data_ptr")()).cast<Address>());
}

// The arguments of a call by name; every field of a struct wants one, and no other may be there.
class Arguments {
 public:
  Arguments(const pybind11::dict& values, bool& float64) : values_(values), float64_(float64) {}

  template <class T>
  Arguments& operator()(const char* name, T& field) {
    const pybind11::handle value = PyDict_GetItemString(values_.ptr(), name);
    if (!value) throw pybind11::type_error(std::string(name) + ": expected as an argument of the kernel, got none");
    read(value, field);
    ++taken_;
    return *this;
  }

  template <class T>
  static T filled(const pybind11::dict& values) {
    bool float64 = false;
    return filled<T>(values, float64);
  }
  // Sets `float64` if that is a dtype of the call.
  template <class T>
  static T filled(const pybind11::dict& values, bool& float64) {
    T out = T();
    Arguments arguments(values, float64);
    fill(arguments, out);
    if (arguments.taken_ != values.size()) {
      throw pybind11::type_error("expected " + std::to_string(arguments.taken_) + " arguments of the kernel, got " +
                                 pybind11::str(pybind11::list(values)).cast<std::string>());
    }
    return out;
  }

 private:
  // Structs are dicts, filled by the function `fill` that stands beside their bindings.
  template <class T>
  void read(pybind11::handle value, T& field) {
    if constexpr (std::is_pointer_v<T>) {
      field = static_cast<T>(address_of(value));
    } else if constexpr (std::is_enum_v<T>) {
      field = T(value.cast<int>());
      if constexpr (std::is_same_v<T, DType>) float64_ |= field == DType::kFloat64;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_base_of_v<pybind11::object, T>) {
      field = value.cast<T>();
    } else if constexpr (std::is_array_v<T>) {
      for (size_t i = 0; i < std::extent_v<T>; ++i) read(value[pybind11::int_(i)], field[i]);
    } else {
      field = filled<T>(value.cast<pybind11::dict>(), float64_);
    }
  }

  const pybind11::dict& values_;
  bool& float64_;
  size_t taken_ = 0;
};

// Gives the kernels of a call: those of the instruction set in use, or CUDA's.
using KernelTable = const Kernels& (*)();

// Binds a kernel under a name, where the table has it. It runs without the interpreter's lock, and flushed unless it
// computes with float64.
template <class Family, class Result, class Args>
void bind_kernel(pybind11::module_& module, KernelTable table, const char* name, const Family* Kernels::* family,
                 Result (*Family::*kernel)(const Args&)) {
  if (!(table().*family)) return;
  module.def(name, [=](const pybind11::kwargs& values) {
    bool float64 = false;
    const Args args = Arguments::filled<Args>(values, float64);
    const pybind11::gil_scoped_release unlocked;
    const FloatMode mode(float64 ? FloatMode::current() : FloatMode::flushed());
    return ((table().*family)->*kernel)(args);
  });
}

inline void fill(Arguments& a, LinearFlags& f) {
  a("kind", f.surrogate)("strict", f.strict)("detach_reset", f.detach_reset)("detach_jump", f.detach_jump);
  a("reset_next", f.reset_next)("membrane", f.membrane)("through_time", f.through_time);
  a("rectified", f.rectified)("quadratic", f.quadratic)("fixed_point", f.fixed_point);
  a("refractory", f.refractory);
}

inline void fill(Arguments& a, ExactFlags& f) {
  a("strict", f.strict)("reset_current", f.reset_current)("by_time", f.by_time)("refractory", f.refractory);
}

inline void fill(Arguments& a, SrmConstants& c) {
  a("e_m", c.e_m)("e_s", c.e_s)("e_g", c.e_g)("r_s", c.r_s)("clamp", c.grad_clamp);
}

// The kernels that tensors of any device may have, as far as the table has them.
void bind_kernels(pybind11::module_& module, KernelTable table);
void bind_cuda(pybind11::module_& module);
void bind_cudnn(pybind11::module_& module);

}  // namespace snnlib
