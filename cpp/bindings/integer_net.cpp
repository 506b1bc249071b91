// The simulation of nets in integers: the functions of the header that exported C programs contain, run over sequences.
#include "snnlib/exchange/integers/integer_net.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bindings.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace {

class Reader {
 public:
  explicit Reader(const pybind11::dict& values) : values_(values) {}
  int32_t number(const char* name) const { return values_[name].cast<int32_t>(); }
  template <class T>
  const T* tensor(const char* name) const {
    return static_cast<const T*>(pointer(values_[name].cast<Address>()));
  }

 private:
  const pybind11::dict& values_;
};

snn_layer to_layer(const pybind11::dict& values) {
  const Reader read(values);
  snn_layer layer = {};
  layer.in_height = read.number("in_height");
  layer.in_width = read.number("in_width");
  layer.in_channels = read.number("in_channels");
  layer.height = read.number("height");
  layer.width = read.number("width");
  layer.channels = read.number("channels");
  layer.kernel_height = read.number("kernel_height");
  layer.kernel_width = read.number("kernel_width");
  layer.stride_y = read.number("stride_y");
  layer.stride_x = read.number("stride_x");
  layer.padding_y = read.number("padding_y");
  layer.padding_x = read.number("padding_x");
  layer.dilation_y = read.number("dilation_y");
  layer.dilation_x = read.number("dilation_x");
  layer.pool_y = read.number("pool_y");
  layer.pool_x = read.number("pool_x");
  layer.leak_m = read.number("leak_m");
  layer.leak_s = read.number("leak_s");
  layer.fraction = read.number("fraction");
  layer.has_synapse = read.number("has_synapse");
  layer.resets_all = read.number("resets_all");
  layer.keep = read.number("keep");
  layer.is_wide = read.number("is_wide");
  layer.packed = read.number("packed");
  layer.weight = read.tensor<uint8_t>("weight");
  layer.recurrent = read.tensor<uint8_t>("recurrent");
  layer.delay = read.tensor<uint8_t>("delay");
  layer.weight_delay = read.tensor<uint8_t>("weight_delay");
  layer.recurrent_delay = read.tensor<uint8_t>("recurrent_delay");
  layer.period = read.number("period");
  layer.bias = read.tensor<int32_t>("bias");
  layer.above = read.tensor<void>("above");
  layer.offset = read.tensor<void>("offset");
  return layer;
}

int64_t neurons(const snn_layer& layer) { return int64_t(layer.height) * layer.width * layer.channels; }

// A net with the states of one sample.
class Net {
 public:
  explicit Net(const std::vector<snn_layer>& layers) : layers_(layers), memory_(layers.size()) {
    int64_t row = 0, part = 0, ring = 0;
    for (size_t k = 0; k < layers_.size(); ++k) {
      snn_layer& layer = layers_[k];
      Memory& own = memory_[k];
      // States of 16 bits take half of it.
      own.potential.resize(neurons(layer));
      own.current.resize(layer.has_synapse ? neurons(layer) : 0);
      own.last.resize(layer.recurrent ? layer.channels : 0);
      layer.potential = own.potential.data();
      layer.current = layer.has_synapse ? own.current.data() : nullptr;
      layer.last = layer.recurrent ? own.last.data() : nullptr;
      const bool sees_all = snn_sees_all(&layer) != 0;
      if (layer.delay || (layer.weight_delay && !sees_all)) {
        own.waiting.resize(int64_t(layer.period) * layer.in_height * layer.in_width * layer.in_channels);
        layer.waiting = own.waiting.data();
      }
      if (layer.recurrent_delay || (layer.weight_delay && sees_all)) {
        own.waiting_sum.resize(int64_t(layer.period) * layer.channels);
        layer.waiting_sum = own.waiting_sum.data();
      }
      if (layer.waiting || layer.waiting_sum) layer.now = &own.now;
      row = std::max(row, int64_t(layer.width) * layer.channels);
      part = std::max(part, int64_t(snn_part_row(&layer)));
      if (snn_scatters(&layer)) ring = std::max(ring, int64_t(layer.kernel_height) * snn_reach(&layer));
      lists_.push_back(own.inputs.of(int64_t(layer.in_height) * layer.in_width * layer.in_channels, layer.in_height));
    }
    sum_.resize(row);
    part_.resize(part + SNN_SPARE);
    spikes_.resize(row);
    window_.resize(row);
    fired_.resize(row + SNN_SPARE);
    pooled_.resize(row);
    ring_.resize(ring + SNN_SPARE);
    scratch_ = {sum_.data(), part_.data(), spikes_.data(), window_.data(), fired_.data(), pooled_.data(), ring_.data()};
  }

  void clear() {
    for (const snn_layer& layer : layers_) snn_clear(&layer);
  }

  void step(const uint8_t* frame, int32_t* result) {
    snn_list_frame(&layers_[0], frame, &lists_[0]);
    for (size_t k = 0; k < layers_.size(); ++k) {
      const bool last = k + 1 == layers_.size();
      snn_step(&layers_[k], &lists_[k], last ? nullptr : &lists_[k + 1], &scratch_, last ? result : nullptr);
    }
  }

 private:
  struct List {
    std::vector<uint16_t> column, place;
    std::vector<uint8_t> count;
    std::vector<int32_t> row;

    snn_list of(int64_t cells, int64_t rows) {
      column.resize(cells);
      place.resize(cells + SNN_SPARE);
      count.resize(cells);
      row.resize(rows + 1);
      return {column.data(), place.data(), count.data(), row.data()};
    }
  };
  struct Memory {
    std::vector<int32_t> potential, current, waiting_sum;
    std::vector<uint8_t> last, waiting;
    int32_t now = 0;
    List inputs;
  };
  std::vector<snn_layer> layers_;
  std::vector<Memory> memory_;
  std::vector<snn_list> lists_;
  std::vector<int32_t> sum_;
  std::vector<int16_t> part_, ring_;
  std::vector<uint16_t> fired_;
  std::vector<uint8_t> spikes_, window_, pooled_;
  snn_scratch scratch_;
};

}  // namespace

void bind_integer_net(pybind11::module_& module) {
  namespace py = pybind11;
  // frames: [samples][steps][y][x][channel]; result: [samples][steps][y][x][channel] of the last layer.
  module.def("integer_net", [](const std::vector<py::dict>& described, int64_t steps, int64_t samples, Address frames,
                               Address result, int threads) {
    std::vector<snn_layer> layers;
    for (const py::dict& values : described) layers.push_back(to_layer(values));
    const int64_t in = int64_t(layers[0].in_height) * layers[0].in_width * layers[0].in_channels;
    const int64_t out = neurons(layers.back());
    const py::gil_scoped_release unlocked;
    parallel_for(samples, threads, [&](int64_t sample) {
      Net net(layers);
      net.clear();
      for (int64_t t = 0; t < steps; ++t) {
        net.step(static_cast<const uint8_t*>(pointer(frames)) + (sample * steps + t) * in,
                 static_cast<int32_t*>(pointer(result)) + (sample * steps + t) * out);
      }
    });
  });
}

}  // namespace snnlib
