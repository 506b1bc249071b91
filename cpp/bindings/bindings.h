// What the binding files share: tensors arrive as raw addresses with sizes checked by snnlib/ops, so that the module
// needs no torch header and works with any torch.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>

#include "snnlib/core/isa.h"
#include "snnlib/neurons/linear.h"
#include "snnlib/neurons/srm.h"

namespace snnlib {

// Address of a tensor's first element; 0 stands for "not given".
using Address = uintptr_t;

inline void* pointer(Address address) { return reinterpret_cast<void*>(address); }

// (e_m, e_s, e_g, r_s, grad_clamp) of SRM neurons, as snnlib/ops/scan_srm.py has them.
using Constants = std::array<double, 5>;
inline SrmConstants to_constants(const Constants& c) { return {c[0], c[1], c[2], c[3], c[4]}; }

// Options of neurons of the linear family: `Dynamics.flags` of snnlib/neurons/dynamics.py.
using Flags = std::array<int, 9>;

inline LinearFlags to_flags(const Flags& f) {
  return {SurrogateKind(f[0]), f[1] != 0, f[2] != 0, f[3] != 0, f[4] != 0, f[5] != 0, f[6] != 0, f[7] != 0, f[8] != 0};
}

// Gives the kernels of a call: those of the instruction set in use, or CUDA's.
using KernelTable = const Kernels& (*)();

void bind_srm(pybind11::module_& module, KernelTable table);
void bind_scan(pybind11::module_& module, KernelTable table);
void bind_scan_pool(pybind11::module_& module, KernelTable table);
void bind_recurrent(pybind11::module_& module, KernelTable table);
void bind_pool(pybind11::module_& module, KernelTable table);
void bind_max_pool(pybind11::module_& module, KernelTable table);
void bind_delay(pybind11::module_& module, KernelTable table);
void bind_layer(pybind11::module_& module);
void bind_nonzero(pybind11::module_& module, KernelTable table);
void bind_batch_norm(pybind11::module_& module, KernelTable table);
void bind_cuda(pybind11::module_& module);
void bind_cudnn(pybind11::module_& module);

}  // namespace snnlib
