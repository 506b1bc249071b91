#include "snnlib/layer/layer.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "bindings.h"
#include "snnlib/core/isa.h"
#include "snnlib/core/threads.h"
#include "snnlib/layer/weight_copy.h"

namespace snnlib {
using SNNLIB_ISA::copy_weights;
using SNNLIB_ISA::Scratch;
namespace {

// Slopes and gains of a forward pass until a tensor of the right size takes them, or what it counted instead.
class SpikeRecord {
 public:
  SpikeRecord(int64_t tasks, bool keeps, bool counts)
      : tasks_(keeps ? size_t(tasks) : 0), tallies_(counts ? size_t(tasks) : 0) {}
  SpikeRecord(const SpikeRecord&) = delete;
  SpikeRecord& operator=(const SpikeRecord&) = delete;
  ~SpikeRecord() {
    for (TaskSpikes& task : tasks_) std::free(task.slope_gain);
  }

  TaskSpikes* tasks() { return tasks_.data(); }
  Tally* tallies() { return tallies_.empty() ? nullptr : tallies_.data(); }
  // The fields of `Tally`, summed over all tasks.
  std::array<int64_t, 5> tally() const {
    std::array<int64_t, 5> sum = {};
    for (const Tally& t : tallies_) {
      const int64_t parts[] = {t.products, t.events, t.graded, t.spikes, t.unknown};
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[i];
    }
    return sum;
  }
  int64_t count() const {
    int64_t total = 0;
    for (const TaskSpikes& task : tasks_) total += task.count;
    return total;
  }
  // Fills slope[count], gain[count] (0: there is none) and starts[tasks + 1].
  void move_to(pybind11::handle slopes, pybind11::handle gains, pybind11::handle starts, int threads) {
    float *slope = static_cast<float*>(address_of(slopes)), *gain = static_cast<float*>(address_of(gains));
    int64_t* start = static_cast<int64_t*>(address_of(starts));
    const pybind11::gil_scoped_release unlocked;
    start[0] = 0;
    for (size_t i = 0; i < tasks_.size(); ++i) start[i + 1] = start[i] + tasks_[i].count;
    parallel_for(int64_t(tasks_.size()), threads, [&](int64_t i) {
      TaskSpikes& task = tasks_[size_t(i)];
      if (task.count && task.slope_gain) {
        std::memcpy(slope + start[i], task.slope_gain, size_t(task.count) * sizeof(float));
        if (gain) std::memcpy(gain + start[i], task.slope_gain + task.count, size_t(task.count) * sizeof(float));
      }
      std::free(task.slope_gain);
      task.slope_gain = nullptr;
    });
  }

 private:
  std::vector<TaskSpikes> tasks_;
  std::vector<Tally> tallies_;
};

// Passes with the weight as torch has it. Copies are made in the caller's mode of denormal numbers, as torch's are.
struct ForwardCall : LayerForwardArgs {
  WeightCopy rows;
  SNNLIB_MORE_FIELDS(LayerForwardArgs, rows)
};
struct BackwardCall : LayerBackwardArgs {
  WeightCopy rows;
  WeightCopy gradient;  // from `grad_weight`
  SNNLIB_MORE_FIELDS(LayerBackwardArgs, rows, gradient)
};

// The weight in the order of the kernels, in this memory; null where there is none to copy.
const float* ordered(WeightCopy rows, Scratch<float>& memory, const Executor& executor) {
  if (!rows.from.data) return nullptr;
  rows.to = memory.reserve(rows.floats);
  copy_weights(rows, executor.threads());
  return rows.to;
}

std::unique_ptr<SpikeRecord> forward(ForwardCall args, bool) {
  const pybind11::gil_scoped_release unlocked;
  Scratch<float> rows;
  args.weight = ordered(args.rows, rows, args.executor);
  auto record =
      std::make_unique<SpikeRecord>(args.shape.batch * args.bands.count, args.bits, args.fan_out && !args.bits);
  args.tasks = record->tasks();
  args.tallies = record->tallies();
  const FloatMode mode(FloatMode::flushed());
  kernels().layer->forward(args);
  return record;
}

void backward(BackwardCall args, bool) {
  const pybind11::gil_scoped_release unlocked;
  Scratch<float> rows, blocks;
  args.weight = ordered(args.rows, rows, args.executor);
  if (args.gradient.to) {
    const int64_t tasks = args.shape.batch * args.bands.count;
    const int64_t floats = (tasks + args.tasks_per_block - 1) / args.tasks_per_block * args.block_floats;
    args.grad_weight_blocks = blocks.reserve(floats + args.block_floats);
    args.grad_weight = args.grad_weight_blocks + floats;
  }
  {
    const FloatMode mode(FloatMode::flushed());
    kernels().layer->backward(args);
  }
  if (args.gradient.to) {
    args.gradient.from = {args.grad_weight, DType::kFloat32};
    copy_weights(args.gradient, args.executor.threads());
  }
}

}  // namespace

void bind_layer(pybind11::module_& module) {
  namespace py = pybind11;
  py::class_<SpikeRecord>(module, "SpikeRecord")
      .def_property_readonly("count", &SpikeRecord::count)
      .def_property_readonly("tally", &SpikeRecord::tally)
      .def("move_to", &SpikeRecord::move_to);
  define_kernel<ForwardCall>(module, "layer_forward", &forward);
  define_kernel<BackwardCall>(module, "layer_backward", &backward);
  bind_kernel(module, &kernels, "layer_signals", &Kernels::layer, &LayerKernels::signals);
}

}  // namespace snnlib
