// The simulation of nets in integers: the functions of the header that exported C programs contain, run over sequences.
#include "snnlib/exchange/integers/integer_net.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bindings.h"
#include "snnlib/core/threads.h"

namespace snnlib {
namespace {

// A layer as Python names its fields.
struct LayerArgs : snn_layer {
  SNNLIB_FIELDS(in_height, in_width, in_channels, height, width, channels, kernel_height, kernel_width, stride_y,
                stride_x, padding_y, padding_x, dilation_y, dilation_x, pool_y, pool_x, refractory, toward_zero, levels,
                leak_m, leak_s, fraction, has_synapse, resets_all, keep, is_wide, packed, weight, recurrent, delay,
                weight_delay, recurrent_delay, period, bias, drive, above, offset)
};

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
      own.left.resize(layer.refractory ? neurons(layer) : 0);
      own.last.resize(layer.recurrent ? layer.channels : 0);
      layer.potential = own.potential.data();
      layer.current = layer.has_synapse ? own.current.data() : nullptr;
      layer.left = layer.refractory ? own.left.data() : nullptr;
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
    std::vector<uint8_t> left, last, waiting;
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

// Frames [samples][steps][y][x][channel]; the result is that of the last layer.
struct IntegerNetArgs {
  pybind11::list layers;
  int64_t steps, samples;
  const uint8_t* frames;
  int32_t* result;
  Executor executor;
  SNNLIB_FIELDS(layers, steps, samples, frames, result, executor)
};

void run(const pybind11::kwargs& values) {
  const IntegerNetArgs args = Arguments::filled<IntegerNetArgs>(values);
  std::vector<snn_layer> layers;
  for (const auto& layer : args.layers) layers.push_back(Arguments::filled<LayerArgs>(layer.cast<pybind11::dict>()));
  const int64_t in = int64_t(layers[0].in_height) * layers[0].in_width * layers[0].in_channels;
  const int64_t out = neurons(layers.back());
  const pybind11::gil_scoped_release unlocked;
  parallel_for(args.samples, args.executor.threads(), [&](int64_t sample) {
    Net net(layers);
    net.clear();
    for (int64_t t = sample * args.steps; t < (sample + 1) * args.steps; ++t) {
      net.step(args.frames + t * in, args.result + t * out);
    }
  });
}

const PartBindings simulation([](pybind11::module_& module) { module.def("integer_net", &run); });

}  // namespace
}  // namespace snnlib
