// What the binding files share: kernels are called by keyword, one for each field of the struct that they take.
// Tensors, checked by snnlib/ops, lend their addresses, so that the module needs no torch header and works with any
// torch.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "snnlib/core/dtype.h"
#include "snnlib/core/isa.h"
#include "snnlib/core/threads.h"

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
  // The names of the fields in a list of expressions, as Python compares them fastest. They live as long as the
  // process.
  struct Names {
    explicit Names(const std::string& fields) {
      std::istringstream list(fields);
      for (std::string field; std::getline(list >> std::ws, field, ',');)
        names.push_back(PyUnicode_InternFromString(field.c_str()));
    }
    std::vector<PyObject*> names;
  };

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
    out.read_fields(arguments);
    if (arguments.taken_ != values.size()) {
      const std::string got = pybind11::str(pybind11::list(values)).cast<std::string>();
      arguments.refuse("expected " + std::to_string(arguments.taken_) + " arguments of the kernel, got " + got);
    }
    return out;
  }

  template <class... Fields>
  void read(const Names& names, Fields&... fields) {
    PyObject* const* name = names.names.data();
    (take(*name++, fields), ...);
  }

 private:
  Arguments(const pybind11::dict& values, bool& float64) : values_(values), float64_(float64) {}

  // Python code and compiled module are of one version, or somebody has to build.
  [[noreturn]] static void refuse(const std::string& problem) {
    throw pybind11::type_error(problem +
                               "; the compiled module and the Python code are of different versions: build the "
                               "module again (`make env`, or install snnlib again)");
  }

  template <class T>
  void take(PyObject* name, T& field) {
    const pybind11::handle value = PyDict_GetItemWithError(values_.ptr(), name);
    if (!value) refuse(pybind11::str(name).cast<std::string>() + ": expected as an argument of the kernel, got none");
    fill(value, field);
    ++taken_;
  }

  // Structs are dicts; None leaves them as they are.
  template <class T>
  void fill(pybind11::handle value, T& field) {
    if constexpr (std::is_pointer_v<T>) {
      field = static_cast<T>(address_of(value));
    } else if constexpr (std::is_enum_v<T>) {
      field = T(value.cast<int>());
      if constexpr (std::is_same_v<T, DType>) float64_ |= field == DType::kFloat64;
    } else if constexpr (std::is_same_v<T, Executor>) {
      field.word = value.cast<intptr_t>();
    } else if constexpr (std::is_arithmetic_v<T> || std::is_base_of_v<pybind11::object, T>) {
      field = value.cast<T>();
    } else if constexpr (std::is_array_v<T>) {
      for (size_t i = 0; i < std::extent_v<T>; ++i) fill(value[pybind11::int_(i)], field[i]);
    } else if (!value.is_none()) {
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

// The kernels that tensors of any device may have, as far as the table has them.
void bind_kernels(pybind11::module_& module, KernelTable table);
void bind_cuda(pybind11::module_& module);
void bind_cudnn(pybind11::module_& module);

}  // namespace snnlib
