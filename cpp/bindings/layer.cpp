#include "snnlib/layer/layer.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "snnlib/core/isa.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace {

// As snnlib/backends/geometry.py has them: (steps, batch, in channels, height, width, out channels, height, width,
// kernel, stride and padding by height and width), (rows, count), (address, dtype code), (strides of t, n, c, h, w),
// (t, n) or a pooling window (h, w).
using Shape = std::array<int64_t, 14>;
using BandList = std::array<int64_t, 2>;
using Stored = std::tuple<Address, int>;
using Input = std::tuple<Stored, std::array<int64_t, 5>>;
using Pair = std::array<int64_t, 2>;
// (LayerNeuron, address of the coefficients, their period, flags); the last three for neurons of one state.
using Neuron = std::tuple<int, Address, int64_t, Flags>;

ConvShape to_shape(const Shape& s) {
  return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13]};
}
Bands to_bands(const BandList& b) { return {b[0], b[1]}; }
Elements to_elements(const Stored& s) { return {pointer(std::get<0>(s)), DType(std::get<1>(s))}; }
InputTrain to_input(const Input& x) {
  const auto& [elements, s] = x;
  return {to_elements(elements), s[0], s[1], s[2], s[3], s[4]};
}
FrameOrder to_frames(const Pair& f) { return {f[0], f[1]}; }
PoolWindow to_pool(const Pair& p) { return {p[0], p[1]}; }
LayerNeuron to_kind(const Neuron& n) { return LayerNeuron(std::get<0>(n)); }
LinearNeuron to_linear(const Neuron& n) {
  return {static_cast<const float*>(pointer(std::get<1>(n))), std::get<2>(n), to_flags(std::get<3>(n))};
}
float* floats(Address address) { return static_cast<float*>(pointer(address)); }

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
  void move_to(Address slope, Address gain, Address starts, int threads) {
    int64_t* start = static_cast<int64_t*>(pointer(starts));
    start[0] = 0;
    for (size_t i = 0; i < tasks_.size(); ++i) start[i + 1] = start[i] + tasks_[i].count;
    parallel_for(int64_t(tasks_.size()), threads, [&](int64_t i) {
      TaskSpikes& task = tasks_[size_t(i)];
      if (task.count) {
        std::memcpy(floats(slope) + start[i], task.slope_gain, size_t(task.count) * sizeof(float));
        if (gain)
          std::memcpy(floats(gain) + start[i], task.slope_gain + task.count, size_t(task.count) * sizeof(float));
      }
      std::free(task.slope_gain);
      task.slope_gain = nullptr;
    });
  }

 private:
  std::vector<TaskSpikes> tasks_;
  std::vector<Tally> tallies_;
};

std::unique_ptr<SpikeRecord> forward(const Shape& shape, const BandList& bands, const Constants& constants,
                                     const Input& input, Address weight, bool scatter, Address current,
                                     const Pair& frames, const Pair& pool, Address threshold, int64_t threshold_period,
                                     Address state_in, Address state_out, const Stored& output, Address bits,
                                     const Neuron& neuron, Address fan_out, int threads) {
  auto record = std::make_unique<SpikeRecord>(shape[1] * bands[1], bits, fan_out && !bits);
  kernels().layer->forward({to_shape(shape),
                            to_bands(bands),
                            to_constants(constants),
                            to_input(input),
                            floats(weight),
                            scatter,
                            floats(current),
                            to_frames(frames),
                            to_pool(pool),
                            floats(threshold),
                            threshold_period,
                            floats(state_in),
                            floats(state_out),
                            to_elements(output),
                            static_cast<uint16_t*>(pointer(bits)),
                            record->tasks(),
                            threads,
                            to_kind(neuron),
                            to_linear(neuron),
                            static_cast<const int32_t*>(pointer(fan_out)),
                            record->tallies()});
  return record;
}

// As the Python side hands it over, in the order of the struct.
using Record = std::tuple<Shape, BandList, Constants, Pair, Address, Address, Address, Address, Pair, Stored, Stored,
                          Neuron, Address>;

LayerRecord to_record(const Record& record) {
  const auto& [shape, bands, constants, frames, bits, slope, gain, starts, pool, output, grad_output, neuron,
               grad_state] = record;
  return {to_shape(shape),
          to_bands(bands),
          to_constants(constants),
          to_frames(frames),
          static_cast<const uint16_t*>(pointer(bits)),
          floats(slope),
          floats(gain),
          static_cast<const int64_t*>(pointer(starts)),
          to_pool(pool),
          to_elements(output),
          to_elements(grad_output),
          to_kind(neuron),
          to_linear(neuron),
          floats(grad_state)};
}

void backward(const Record& record, const Input& input, int64_t by_inputs, Address grad_weight_blocks,
              Address grad_weight, int64_t block_floats, int64_t tasks_per_block, const Stored& grad_input,
              const Pair& input_frames, Address weight, bool scatter, double input_grad_scale, Address grad_start,
              int threads) {
  kernels().layer->backward({to_record(record), to_input(input), by_inputs, floats(grad_weight_blocks),
                             floats(grad_weight), block_floats, tasks_per_block, to_elements(grad_input),
                             to_frames(input_frames), floats(weight), scatter, float(input_grad_scale),
                             floats(grad_start), threads});
}

void signals(const Record& record, Address a, Address b, Address grad_start, int threads) {
  kernels().layer->signals({to_record(record), floats(a), floats(b), floats(grad_start), threads});
}

}  // namespace

void bind_layer(pybind11::module_& module) {
  namespace py = pybind11;
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<SpikeRecord>(module, "SpikeRecord")
      .def_property_readonly("count", &SpikeRecord::count)
      .def_property_readonly("tally", &SpikeRecord::tally)
      .def("move_to", &SpikeRecord::move_to, unlocked);
  module.def("srm_conv_forward", &forward, unlocked);
  module.def("srm_conv_backward", &backward, unlocked);
  module.def("srm_conv_signals", &signals, unlocked);
}

}  // namespace snnlib
