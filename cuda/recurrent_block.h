// Shared by recurrent kernels: a block of threads has a sample, a thread one or several of its neurons. What happened
// in a step becomes a list in shared memory, in rising order, from which the threads take up their sums: these have the
// order of the CPU's.
#pragma once

#include "divider.h"
#include "element.h"
#include "launch.h"
#include "snnlib/loop/recurrent.h"

namespace snnlib {
namespace cuda {

// Shared memory that any device gives without asking, and the neurons of which it holds what both passes need.
constexpr size_t kSharedBytes = 48 << 10;
template <class S>
constexpr int kMostNeurons = sizeof(S) == 4 ? 4032 : 2016;

// Threads of a block: half as many where a thread needs more registers.
template <class S, int K>
constexpr int kMostThreads = sizeof(S) == 4 && K < 3 ? 512 : 256;

inline int whole_warps(int64_t threads, int most) {
  const int64_t whole = (threads + kWarpThreads - 1) / kWarpThreads * kWarpThreads;
  return whole < most ? int(whole) : most;
}

// Candidates, up to `most`, that the threads of a block vote for, as a list in shared memory.
template <class Item>
class BlockList {
 public:
  static constexpr size_t bytes(int most) {
    return size_t(words_for(most)) * (kWarpThreads * sizeof(Item) + sizeof(uint32_t));
  }

  __device__ BlockList(int most, void* memory)
      : words_(words_for(most)),
        items_(static_cast<Item*>(memory)),
        bits_(reinterpret_cast<uint32_t*>(items_ + words_ * kWarpThreads)) {}

  // Each thread votes on candidate `first + block_thread()`; `first` is a multiple of the threads.
  __device__ void vote(int first, bool yes) {
    const int candidate = first + block_thread();
    const uint32_t bits = warp_vote(yes);
    if (candidate % kWarpThreads == 0 && candidate / kWarpThreads < words_) bits_[candidate / kWarpThreads] = bits;
  }

  // After the votes on all candidates: the list, for which item(candidate) is called by the thread that voted on it.
  template <class F>
  __device__ void collect(const F& item) {
    block_wait();
    const int lane = block_thread() % kWarpThreads;
    const uint32_t before = (uint32_t(1) << lane) - 1;
    int found = 0, mine = block_thread() / kWarpThreads;
    for (int word = 0; word < words_; ++word) {
      const uint32_t bits = bits_[word];
      if (word == mine) {
        if (bits >> lane & 1) items_[found + count_ones(bits & before)] = item(word * kWarpThreads + lane);
        mine += block_threads() / kWarpThreads;
      }
      found += count_ones(bits);
    }
    size_ = found;
    block_wait();
  }

  __device__ int size() const { return size_; }
  __device__ const Item& operator[](int i) const { return items_[i]; }

 private:
  static constexpr SNNLIB_HD int words_for(int most) { return (most + kWarpThreads - 1) / kWarpThreads; }

  int words_, size_ = 0;
  Item* items_;
  uint32_t* bits_;
};

// Something to add: so many times the element at this place of a row.
template <class S, class Place>
struct Event {
  S amount;
  Place place;
};

// Loads of a sum that are on their way together.
constexpr int kSumAhead = 8;

// f(whole, first) for groups of kSumAhead of `count` terms; `whole` is false, as a constant, where some are missing.
template <class F>
__device__ void for_each_sum_group(int count, const F& f) {
  int first = 0;
  for (; first + kSumAhead <= count; first += kSumAhead) f(std::true_type{}, first);
  if (first < count) f(std::false_type{}, first);
}

// sum += amount row[place] of every event, one after the other.
template <class S, class Place>
__device__ S add_events(const BlockList<Event<S, Place>>& events, S sum, const S* row) {
  for_each_sum_group(events.size(), [&](auto whole, int first) {
    const auto there = [&](int j) { return decltype(whole)::value || first + j < events.size(); };
    S term[kSumAhead];
    SNNLIB_UNROLL
    for (int j = 0; j < kSumAhead; ++j) {
      const Event<S, Place> event = events[there(j) ? first + j : first];
      term[j] = event.amount * row[event.place];
    }
    SNNLIB_UNROLL
    for (int j = 0; j < kSumAhead; ++j) sum = there(j) ? sum + term[j] : sum;
  });
  return sum;
}

__device__ inline int64_t steps_of(const RecurrentArgs& a, int64_t sample) {
  return a.lengths ? a.lengths[sample] : a.view.steps;
}

// Row `number` of states [rows][batch][neurons], for one sample; null where there are none.
template <class S>
__device__ const S* state_row(const RecurrentArgs& a, const void* states, int64_t number, int64_t sample) {
  return states ? static_cast<const S*>(states) + (number * a.view.outer + sample) * a.view.inner : nullptr;
}
template <class S>
__device__ S* state_row(const RecurrentArgs& a, void* states, int64_t number, int64_t sample) {
  return static_cast<S*>(states) + (number * a.view.outer + sample) * a.view.inner;
}

template <class S, int K>
__device__ LinearCoefficients<K, S> coefficients_of(const RecurrentArgs& a, const Divider<uint32_t>& period,
                                                    int neuron) {
  LinearCoefficients<K, S> k;
  const S* p = static_cast<const S*>(a.coefficients) + (period.size == 1 ? 0 : period.remainder(uint32_t(neuron)));
  SNNLIB_UNROLL
  for (int row = 0; row < LinearRows<K>::count; ++row) k.row[row] = p[row * a.period];
  return k;
}

template <class S, int K, bool Next>
__device__ LinearState<K, S> own_state(const RecurrentArgs& a, const void* states, int64_t sample, int neuron) {
  LinearState<K, S> state = {};
  if (!states) return state;
  SNNLIB_UNROLL
  for (int s = 0; s < K; ++s) state.y[s] = state_row<S>(a, states, s, sample)[neuron];
  if (Next) state.fired = state_row<S>(a, states, K, sample)[neuron];
  if (a.flags.refractory) state.left = state_row<S>(a, states, K + Next, sample)[neuron];
  return state;
}

template <class S, int K, bool Next>
__device__ void store_state(const RecurrentArgs& a, void* states, int64_t sample, int neuron, const S (&y)[K], S fired,
                            S left) {
  SNNLIB_UNROLL
  for (int s = 0; s < K; ++s) state_row<S>(a, states, s, sample)[neuron] = y[s];
  if (Next) state_row<S>(a, states, K, sample)[neuron] = fired;
  if (a.flags.refractory) state_row<S>(a, states, K + Next, sample)[neuron] = left;
}

// True if every thread has a neuron to itself, and keeps its constants and state in registers.
template <class S, int K, bool Next, bool Quadratic>
constexpr bool kHasSingle = sizeof(S) == 4 && K < 3 && !Next && !Quadratic;

// f(first, neuron) for the neurons of a thread, of which the last turn may find none. All threads take all turns;
// blocks of more than one have the most threads.
template <class S, int K, bool Single, class F>
__device__ void for_each_turn(int neurons, const F& f) {
  for (int first = 0; first < (Single ? 1 : neurons); first += kMostThreads<S, K>) f(first, first + block_thread());
}

// f(constant) with whether this call does.
template <class S, int K, bool Next, bool Quadratic, class F>
void by_single(const RecurrentArgs& a, const F& f) {
  if constexpr (kHasSingle<S, K, Next, Quadratic>) {
    if (a.view.inner <= kMostThreads<S, K>) return f(std::true_type{});
  }
  f(std::false_type{});
}

template <class S>
void check_neurons(const char* name, const RecurrentArgs& a) {
  if (a.view.inner <= kMostNeurons<S>) return;
  throw std::runtime_error(std::string(name) + ": expected at most " + std::to_string(kMostNeurons<S>) +
                           " neurons, got " + std::to_string(a.view.inner));
}

// f(S, states, reset_next, quadratic) as constants.
template <class Args, class F>
void by_neuron(const char* name, const Args& a, const F& f) {
  constexpr std::true_type yes;
  constexpr std::false_type no;
  const auto by_options = [&](auto zero, auto states) {
    check_neurons<decltype(zero)>(name, a);
    if constexpr (decltype(states)::value > 1) {
      if (a.flags.quadratic) return f(zero, states, no, yes);
    }
    a.flags.reset_next ? f(zero, states, yes, no) : f(zero, states, no, no);
  };
  const auto by_states = [&](auto zero) {
    if (a.states == 1) return by_options(zero, std::integral_constant<int, 1>{});
    if (a.states == 2) return by_options(zero, std::integral_constant<int, 2>{});
    by_options(zero, std::integral_constant<int, 3>{});
  };
  if (a.dtype != DType::kFloat32 && a.dtype != DType::kFloat64)
    throw std::runtime_error(std::string(name) + ": expected float32 or float64");
  a.dtype == DType::kFloat32 ? by_states(0.0f) : by_states(0.0);
}

}  // namespace cuda
}  // namespace snnlib
