// Shared by the binding files: kernels are called by keyword, one for each field of the struct that they take.
// Tensors, checked by snnlib/ops, lend their addresses, so that the module needs no torch header and works with any
// torch.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
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
  if (PyLong_Check(value.ptr())) return pointer(value.cast<Address>());
  static PyObject* const method = PyUnicode_InternFromString("data_ptr");
  const auto address = pybind11::reinterpret_steal<pybind11::object>(PyObject_CallMethodNoArgs(value.ptr(), method));
  if (!address) throw pybind11::error_already_set();
  return pointer(address.cast<Address>());
}

// Stands for a field: each call of a prepared kernel gives it as the argument of this number.
struct Slot {
  size_t argument;
};

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

  // How an argument of a prepared kernel becomes a field.
  struct Filling {
    size_t argument;
    ptrdiff_t offset;
    void (*set)(char* field, pybind11::handle value);
  };

  template <class T>
  static T filled(const pybind11::dict& values) {
    T out = T();
    Arguments().read_struct(values, out);
    return out;
  }

  // Reads the fields of a struct. `fillings`, where given, gets those that are slots.
  template <class T>
  void read_struct(const pybind11::dict& values, T& out, std::vector<Filling>* fillings = nullptr) {
    if (fillings) fillings_ = fillings, start_ = reinterpret_cast<char*>(&out);
    const pybind11::dict* const outer = std::exchange(values_, &values);
    const size_t taken = std::exchange(taken_, 0);
    out.read_fields(*this);
    if (taken_ != values.size()) {
      const std::string got = pybind11::str(pybind11::list(values)).cast<std::string>();
      refuse("expected " + std::to_string(taken_) + " arguments of the kernel, got " + got);
    }
    values_ = outer, taken_ = taken;
  }

  // True if one of the dtypes is float64.
  bool float64() const { return float64_; }

  template <class... Fields>
  void read(const Names& names, Fields&... fields) {
    PyObject* const* name = names.names.data();
    (take(*name++, fields), ...);
  }

 private:
  // Python code and compiled module are of one version, or somebody has to build.
  [[noreturn]] static void refuse(const std::string& problem) {
    throw pybind11::type_error(problem +
                               "; the compiled module and the Python code are of different versions: build the "
                               "module again (`make env`, or install snnlib again)");
  }

  template <class T>
  void take(PyObject* name, T& field) {
    const pybind11::handle value = PyDict_GetItemWithError(values_->ptr(), name);
    if (!value) refuse(pybind11::str(name).cast<std::string>() + ": expected as an argument of the kernel, got none");
    fill(value, field);
    ++taken_;
  }

  template <class T>
  static void set(char* field, pybind11::handle value) {
    T& out = *reinterpret_cast<T*>(field);
    if constexpr (std::is_pointer_v<T>) {
      out = static_cast<T>(address_of(value));
    } else {
      out = value.cast<T>();
    }
  }

  // Structs are dicts; None leaves them as they are.
  template <class T>
  void fill(pybind11::handle value, T& field) {
    if constexpr (std::is_pointer_v<T> || std::is_arithmetic_v<T>) {
      char* const place = reinterpret_cast<char*>(&field);
      if (fillings_ && pybind11::isinstance<Slot>(value)) {
        fillings_->push_back({value.cast<Slot>().argument, place - start_, &set<T>});
      } else {
        set<T>(place, value);
      }
    } else if constexpr (std::is_enum_v<T>) {
      field = T(value.cast<int>());
      if constexpr (std::is_same_v<T, DType>) float64_ |= field == DType::kFloat64;
    } else if constexpr (std::is_same_v<T, Executor>) {
      fill(value, field.word);
    } else if constexpr (std::is_base_of_v<pybind11::object, T>) {
      field = value.cast<T>();
    } else if constexpr (std::is_array_v<T>) {
      for (size_t i = 0; i < std::extent_v<T>; ++i) fill(value[pybind11::int_(i)], field[i]);
    } else if (!value.is_none()) {
      read_struct(value.cast<pybind11::dict>(), field);
    }
  }

  const pybind11::dict* values_ = nullptr;
  bool float64_ = false;
  size_t taken_ = 0;
  std::vector<Filling>* fillings_ = nullptr;
  char* start_ = nullptr;
};

// Defines a kernel by a function of its struct and of whether it computes with float64. `prepare_NAME` takes the fields
// once, slots among them, and gives a function of the arguments that fill the slots, for several threads at a time.
template <class Args, class Run>
void define_kernel(pybind11::module_& module, const std::string& name, Run run) {
  module.def(name.c_str(), [run](const pybind11::kwargs& values) {
    Args args = Args();
    Arguments arguments;
    arguments.read_struct(values, args);
    return run(args, arguments.float64());
  });
  module.def(("prepare_" + name).c_str(), [run](const pybind11::kwargs& values) {
    Args prepared = Args();
    Arguments arguments;
    std::vector<Arguments::Filling> fillings;
    arguments.read_struct(values, prepared, &fillings);
    size_t wanted = 0;
    for (const auto& filling : fillings) wanted = std::max(wanted, filling.argument + 1);
    return pybind11::cpp_function(
        [run, prepared, fillings, wanted, float64 = arguments.float64()](const pybind11::args& given) {
          if (given.size() != wanted) {
            throw pybind11::type_error("expected " + std::to_string(wanted) +
                                       " arguments of the prepared kernel, got " + std::to_string(given.size()));
          }
          Args args = prepared;
          for (const auto& [argument, offset, set] : fillings)
            set(reinterpret_cast<char*>(&args) + offset, PyTuple_GET_ITEM(given.ptr(), Py_ssize_t(argument)));
          return run(args, float64);
        });
  });
}

// Gives the kernels of a call: those of the instruction set in use, or CUDA's.
using KernelTable = const Kernels& (*)();

// Binds a kernel under a name, where the table has it. It runs without the interpreter's lock, and flushed unless it
// computes with float64.
template <class Family, class Result, class Args>
void bind_kernel(pybind11::module_& module, KernelTable table, const char* name, const Family* Kernels::* family,
                 Result (*Family::*kernel)(const Args&)) {
  if (!(table().*family)) return;
  define_kernel<Args>(module, name, [=](const Args& args, bool float64) {
    const pybind11::gil_scoped_release unlocked;
    const FloatMode mode(float64 ? FloatMode::current() : FloatMode::flushed());
    return ((table().*family)->*kernel)(args);
  });
}

// Bindings of another part, which core need not be built with: an object of static life in the part's own file.
struct PartBindings {
  using Bind = void (*)(pybind11::module_& module);
  explicit PartBindings(Bind bind) { all().push_back(bind); }

  static std::vector<Bind>& all() {
    static std::vector<Bind> bindings;
    return bindings;
  }
};

// The kernels that tensors of any device may have, as far as the table has them.
void bind_kernels(pybind11::module_& module, KernelTable table);
void bind_cuda(pybind11::module_& module);
void bind_cudnn(pybind11::module_& module);

}  // namespace snnlib
