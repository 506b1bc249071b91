// Forward of convolution and neurons: a task walks one band of one sample through all time steps. Per step it lists the
// events of the rows that the band sees, and computes row by row the currents, which stay in the L1 cache, and the
// neurons.
#include <cstdlib>

#include "snnlib/core/simd.h"
#include "snnlib/core/threads.h"
#include "snnlib/events/conv.h"
#include "snnlib/layer/layer.h"
#include "snnlib/layer/rows.h"

namespace snnlib {
namespace SNNLIB_ISA {
namespace {

// Scratch memory of a thread.
struct Workspace {
  EventRows events;
  Scratch<float*> reached;
  Scratch<bool> touched;
  Scratch<float> in_row, tile, current, spike_row, pooled_row, threshold, state, delta_u, delta_ut;
  LinearRowCoefficients<1> one_state;
  LinearRowCoefficients<2> two_states;
  ExactRowCoefficients exact;
  // Spikes of one time step, lane by lane.
  Floats fired;
};

// Rows of currents that leave room for the weights of a kernel row in the L1 cache.
int64_t strip_rows(int64_t row_floats, int64_t rows) {
  constexpr int64_t kStripFloats = 4096;
  const int64_t fit = kStripFloats / row_floats;
  return fit < 1 ? 1 : fit < rows ? fit : rows;
}

class Band {
 public:
  Band(const LayerForwardArgs& a, int64_t task, Workspace& w)
      : a_(a),
        s_(a.shape),
        w_(w),
        conv_{a.scatter, s_.in_width, s_.in_channels, s_.width, s_.channels, s_.kernel_w, s_.stride_w, s_.padding_w},
        n_(task / a.bands.count),
        rows_(output_rows(s_, a.bands, task % a.bands.count)),
        seen_(seen_rows(s_, rows_)),
        counted_{rows_.first ? seen_rows(s_, {0, rows_.first}).last : 0,
                 rows_.last == s_.height ? s_.in_height : seen_.last},
        row_(s_.row()),
        padded_row_(padded(row_)),
        strip_(strip_rows(padded(conv_.tile_floats()), rows_.count())),
        streamed_(a.gives_currents() && a.output.dtype == DType::kFloat32 &&
                  streamable(a.output.data, s_.steps * s_.batch * s_.height * row_ * int64_t(sizeof(float)),
                             row_ * int64_t(sizeof(float)))) {
    w.in_row.reserve(s_.in_width * s_.in_channels);
    if (!a.current) w.events.start(conv_, seen_.count());
    w.current.zeroed(padded_row_);
    w.spike_row.zeroed(padded_row_ + kGroup);
    w.pooled_row.reserve(padded_row_ + kGroup);
    if (a.is_srm()) {
      float* limit = w.threshold.reserve(padded_row_);
      const float* limits = a.exact.rows + SrmRows::threshold * a.exact.period;
      for (int64_t i = 0; i < padded_row_; ++i) limit[i] = i < row_ ? limits[i % a.exact.period] : 1.0f;
    } else if (a.is_linear()) {
      a.states == 1 ? w.one_state.load(a.linear, row_) : w.two_states.load(a.linear, row_);
    } else if (a.moves_spikes()) {
      w.exact.load(a.exact, row_);
    }
    // Rows of the tile that may hold something but zeros.
    const int64_t tile_rows = a.scatter ? s_.kernel_h : strip_;
    w.tile.reserve(tile_rows * padded(conv_.tile_floats()));
    bool* touched = w.touched.reserve(tile_rows);
    for (int64_t i = 0; i < tile_rows; ++i) touched[i] = true;
    load_state();
  }

  // Returns the number of spikes, whose deltas lie in the workspace.
  template <bool kKeep, bool Count>
  int64_t run() {
    int64_t count = 0;
    for (int64_t t = 0; t < s_.steps; ++t) {
      const int64_t before = count;
      if (!a_.current) list_events<Count>(t);
      if (Count) w_.fired = Floats{};
      const int64_t frame = a_.frames(t, n_);
      for (int64_t y = rows_.first; y < rows_.last; ++y) {
        const float* current = current_row(frame, y);
        if (a_.gives_currents()) {
          write_current(current, (frame * s_.height + y) * row_);
          continue;
        }
        if (kKeep && !a_.entries) {
          w_.delta_u.grow(count + padded_row_ + kGroup, count);
          if (!a_.is_linear()) w_.delta_ut.grow(count + padded_row_ + kGroup, count);
        }
        // The rows of a window are summed in `spike_row`.
        const int64_t at = (frame * s_.height + y) * row_;
        float* place = a_.pool.none() && row_ == padded_row_ ? in_place(a_.output, at) : nullptr;
        float* out = place ? place : w_.spike_row.data();
        uint16_t* bits = kKeep ? a_.bits + (frame * s_.height + y) * s_.row_words() : nullptr;
        const int64_t line = y % a_.pool.h;
        const int64_t kept = step_row<kKeep, Count>(current, y, line > 0, out, bits, count);
        if (kKeep && a_.entries && ends_record(count)) {
          std::memcpy(a_.entries + first_entry() + count, w_.delta_u.data(), size_t(row_) * sizeof(float));
        }
        if (a_.pool.none()) {
          if (!place) write_floats(out, row_, a_.output, at);
        } else if (line == a_.pool.h - 1) {
          write_windows(frame, y / a_.pool.h);
        }
        count += kept;
      }
      if (Count) add_fired();
      // The step that follows is mostly like this one.
      few_ = (count - before) * kFewShare < (rows_.count()) * row_;
    }
    store_state();
    if (streamed_) finish_streams();
    return count;
  }
  const Tally& tally() const { return tally_; }

 private:
  // A step of the neurons of row y; returns the number of entries kept behind the first `count`.
  template <bool kKeep, bool Count>
  int64_t step_row(const float* current, int64_t y, bool add, float* out, uint16_t* bits, int64_t count) {
    constexpr Keep kMany = kKeep ? Keep::kMany : Keep::kNothing, kFew = kKeep ? Keep::kFew : Keep::kNothing;
    return few_ ? step_row_as<kFew, Count>(current, y, add, out, bits, count)
                : step_row_as<kMany, Count>(current, y, add, out, bits, count);
  }

  template <Keep kKeep, bool Count>
  int64_t step_row_as(const float* current, int64_t y, bool add, float* out, uint16_t* bits, int64_t count) {
    float* du = kKeep == Keep::kNothing || !a_.entries ? w_.delta_u.data() + count
                : ends_record(count)                   ? w_.delta_u.reserve(padded_row_ + kGroup)
                                                       : a_.entries + first_entry() + count;
    if (a_.is_linear()) {
      const auto run = [&](auto states, const auto& coefficients) {
        constexpr int K = decltype(states)::value;
        const auto step = add ? linear_row<K, kKeep, true, Count> : linear_row<K, kKeep, false, Count>;
        return step(current, coefficients, a_.linear.flags, state(0, y), rows_.count() * padded_row_, row_, out, bits,
                    du, &w_.fired);
      };
      return a_.states == 1 ? run(std::integral_constant<int, 1>(), w_.one_state)
                            : run(std::integral_constant<int, 2>(), w_.two_states);
    }
    if (a_.times_spikes()) {
      const auto step = add ? exact_row<kKeep, true, Count> : exact_row<kKeep, false, Count>;
      return step(current, w_.exact, a_.exact.flags, state(0, y), state(1, y), states() > 2 ? state(2, y) : nullptr,
                  row_, out, bits, du, w_.delta_ut.data() + count, &w_.fired);
    }
    const auto step = add ? srm_row<kKeep, true, Count> : srm_row<kKeep, false, Count>;
    return step(current, w_.threshold.data(), state(0, y), state(1, y), state(2, y), row_, srm_decay(a_), out, bits, du,
                w_.delta_ut.data() + count, &w_.fired);
  }

  // Place of this band's entries among all.
  int64_t first_entry() const { return (n_ * s_.height + rows_.first) * s_.steps * row_; }
  // True for a row behind `count` entries that is written elsewhere first: kernels write whole groups, and behind the
  // last rows of a band stand the entries of another task.
  bool ends_record(int64_t count) const { return count + padded_row_ + kGroup > rows_.count() * s_.steps * row_; }

  void add_fired() {
    float lanes[kLanes];
    store(lanes, w_.fired);
    for (const float spikes : lanes) {
      // NaN: what fired cannot be told from sums.
      tally_.unknown += !(spikes >= 0);
      tally_.spikes += spikes >= 0 ? int64_t(spikes) : 0;
    }
  }

  // Counts the events of an input row, of which neighbouring bands may see some: each row belongs to one.
  void count_events(int64_t y, const float* row, const int32_t* at, int64_t count, bool binary) {
    if (!counted_.has(y)) return;
    const int32_t* fan_out = a_.fan_out + y * s_.in_width * s_.in_channels;
    int64_t products = 0;
    for (int64_t i = 0; i < count; ++i) products += fan_out[at[i]];
    tally_.products += products;
    tally_.events += count;
    // A single graded event is enough.
    if (binary || tally_.graded) return;
    for (int64_t i = 0; i < count; ++i) tally_.graded += row[at[i]] != 1.0f && row[at[i]] != -1.0f;
  }

  // Counts a row that no neuron sees.
  SNNLIB_NOINLINE void count_unseen(int64_t t, int64_t y) {
    const float* row = read_row(a_.input, s_, t, n_, y, w_.in_row.data());
    const int64_t count = find_events(row, s_.in_width * s_.in_channels, w_.events.found());
    count_events(y, row, w_.events.found(), count, false);
  }

  // Variables of a neuron's state.
  int64_t states() const {
    if (a_.is_linear()) return a_.states + added_rows(a_.linear.flags);
    return a_.moves_spikes() ? 2 + added_rows(a_.exact.flags) : 0;
  }

  const float* current_row(int64_t frame, int64_t y) {
    if (a_.current) return given_current(frame, y);
    return a_.scatter ? scattered_current(y) : gathered_current(y);
  }
  float* state(int64_t which, int64_t y) {
    return w_.state.data() + (which * (rows_.count()) + y - rows_.first) * padded_row_;
  }
  int64_t state_offset(int64_t which, int64_t y) const { return ((which * s_.batch + n_) * s_.height + y) * row_; }

  void load_state() {
    w_.state.zeroed(states() * (rows_.count()) * padded_row_);
    for (int64_t which = 0; a_.state_in && which < states(); ++which) {
      for (int64_t y = rows_.first; y < rows_.last; ++y) {
        std::memcpy(state(which, y), a_.state_in + state_offset(which, y), size_t(row_) * sizeof(float));
      }
    }
  }
  void store_state() {
    for (int64_t which = 0; a_.state_out && which < states(); ++which) {
      for (int64_t y = rows_.first; y < rows_.last; ++y) {
        std::memcpy(a_.state_out + state_offset(which, y), state(which, y), size_t(row_) * sizeof(float));
      }
    }
  }

  template <bool Count>
  void list_events(int64_t t) {
    w_.events.clear();
    for (int64_t y = seen_.first; y < seen_.last; ++y) {
      const float* row = read_row(a_.input, s_, t, n_, y, w_.in_row.data());
      const int64_t count = w_.events.add_row(row);
      if (Count) count_events(y, row, w_.events.found(), count, w_.events.binary());
    }
    if (Count) {
      for (int64_t y = counted_.first; y < seen_.first; ++y) count_unseen(t, y);
      for (int64_t y = seen_.last; y < counted_.last; ++y) count_unseen(t, y);
    }
  }

  // A strip of rows is computed at once, so that the weights of a kernel row stay in the L1 cache for all of them.
  const float* gathered_current(int64_t y) {
    const int64_t floats = padded(conv_.tile_floats()), line = (y - rows_.first) % strip_;
    if (!line) {
      for (int64_t i = 0; i < strip_; ++i) clear_tile_row(i);
      for (int64_t ky = 0; ky < s_.kernel_h; ++ky) {
        for (int64_t i = 0; i < strip_ && y + i < rows_.last; ++i) {
          const int64_t in_y = (y + i) * s_.stride_h - s_.padding_h + ky;
          if (!seen_.has(in_y) || !w_.events.count(in_y - seen_.first)) continue;
          w_.touched.data()[i] = true;
          w_.events.add_kernel_row(in_y - seen_.first, a_.weight + ky * conv_.kernel_row_floats(),
                                   w_.tile.data() + i * floats);
        }
      }
    }
    const float* tile = w_.tile.data() + line * floats;
    if (conv_.pixel_floats() == s_.channels) return tile;
    for (int64_t x = 0; x < s_.width; ++x) {
      std::memcpy(w_.current.data() + x * s_.channels, tile + x * conv_.pixel_floats(),
                  size_t(s_.channels) * sizeof(float));
    }
    return w_.current.data();
  }

  // Input rows are scattered one after the other to all rows that they reach, of which there are `kernel_h` at a time.
  // Called with y = first, first + 1, ...
  const float* scattered_current(int64_t y) {
    if (y == rows_.first) {
      for (int64_t i = 0; i < s_.kernel_h; ++i) clear_tile_row(i);
      scattered_ = seen_.first;
    } else {
      clear_tile_row((y - 1) % s_.kernel_h);
    }
    const int64_t needed = clamp(y * s_.stride_h - s_.padding_h + s_.kernel_h, 0, s_.in_height);
    for (; scattered_ < needed; ++scattered_) scatter_row(scattered_);
    return tile_row(y) + conv_.first_pixel();
  }

  // Makes a row of the tile zeros, which silence leaves it.
  void clear_tile_row(int64_t row) {
    if (!w_.touched.data()[row]) return;
    const int64_t floats = padded(conv_.tile_floats());
    std::memset(w_.tile.data() + row * floats, 0, size_t(floats) * sizeof(float));
    w_.touched.data()[row] = false;
  }

  float* tile_row(int64_t y) { return w_.tile.data() + y % s_.kernel_h * padded(conv_.tile_floats()); }

  void scatter_row(int64_t in_y) {
    if (!w_.events.count(in_y - seen_.first)) return;
    float** reached = w_.reached.reserve(s_.kernel_h);
    // The kernel rows go down as the rows of outputs go up.
    const int64_t below = in_y + s_.padding_h, lowest = below / s_.stride_h;
    const int64_t start = lowest < rows_.last ? lowest : rows_.last - 1;
    int64_t count = 0;
    for (int64_t y = start; y >= rows_.first && below - y * s_.stride_h < s_.kernel_h; --y) {
      w_.touched.data()[y % s_.kernel_h] = true;
      reached[count++] = tile_row(y);
    }
    const int64_t row = conv_.kernel_row_floats();
    w_.events.scatter_row(in_y - seen_.first,
                          {a_.weight + (below - start * s_.stride_h) * row, s_.stride_h * row, reached, count});
  }

  const float* given_current(int64_t frame, int64_t y) {
    const float* row = a_.current + (frame * s_.height + y) * row_;
    if (row_ == padded_row_) return row;
    std::memcpy(w_.current.data(), row, size_t(row_) * sizeof(float));
    return w_.current.data();
  }

  void write_current(const float* current, int64_t at) {
    if (!streamed_) return write_floats(current, row_, a_.output, at);
    float* out = in_place(a_.output, at);
    for (int64_t i = 0; i < row_; i += kLanes) stream_bytes<kVectorBytes>(out + i, current + i);
  }

  // A row of windows, from the sums of their columns.
  void write_windows(int64_t frame, int64_t y) {
    const int64_t width = s_.width / a_.pool.w, height = s_.height / a_.pool.h;
    if (!width) return;
    float* pooled = w_.pooled_row.data();
    pool_columns(w_.spike_row.data(), s_.channels, a_.pool.w, width, float(a_.pool.h * a_.pool.w), pooled);
    write_floats(pooled, width * s_.channels, a_.output, (frame * height + y) * width * s_.channels);
  }

  const LayerForwardArgs& a_;
  const ConvShape& s_;
  Workspace& w_;
  const RowConv conv_;
  const int64_t n_;
  // Rows of neurons, input rows that they see, and those whose events this band counts.
  const Rows rows_, seen_, counted_;
  const int64_t row_, padded_row_, strip_;
  // True if currents go past the caches.
  const bool streamed_;
  int64_t scattered_ = 0;  // input row that is next
  // True if fewer than one neuron in `kFewShare` had an entry in the last step: not one vector in four.
  static constexpr int64_t kFewShare = 64;
  bool few_ = false;
  Tally tally_;
};

// The exact size, from malloc: the bindings hand it over to a tensor and free it. Nothing if the tensor has the
// entries.
void keep_entries(TaskSpikes& task, const Workspace& w, int64_t count, const LayerForwardArgs& a) {
  task.count = count;
  if (a.entries) return;
  const int64_t values = a.is_linear() ? 1 : 2;
  task.slope_gain = static_cast<float*>(std::malloc(count ? size_t(values * count) * sizeof(float) : 1));
  if (!task.slope_gain) throw std::bad_alloc();
  if (a.is_linear()) {
    if (count) std::memcpy(task.slope_gain, w.delta_u.data(), size_t(count) * sizeof(float));
    return;
  }
  if (a.times_spikes()) {
    if (count) std::memcpy(task.slope_gain, w.delta_u.data(), size_t(count) * sizeof(float));
    if (count) std::memcpy(task.slope_gain + count, w.delta_ut.data(), size_t(count) * sizeof(float));
    return;
  }
  const float clamp = a.shared(SrmRows::bound);
  to_slope_and_gain(w.delta_u.data(), w.delta_ut.data(), count, clamp, task.slope_gain, task.slope_gain + count);
}

void forward(const LayerForwardArgs& a) {
  parallel_for(a.shape.batch * a.bands.count, a.executor.threads(), [&](int64_t task) {
    thread_local Workspace local;
    Workspace& workspace = of_thread(local);
    Band band(a, task, workspace);
    if (a.bits) {
      keep_entries(a.tasks[task], workspace, band.run<true, false>(), a);
    } else if (a.tallies) {
      band.run<false, true>();
      a.tallies[task] = band.tally();
    } else {
      band.run<false, false>();
    }
  });
}

}  // namespace

void layer_backward(const LayerBackwardArgs& a);
void layer_signals(const LayerSignalsArgs& a);
extern const LayerKernels layer_kernels = {forward, layer_backward, layer_signals};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
