// Lists of the events of some rows of a sequence, sorted by input, for kernels that keep in registers what belongs to
// an input (its weights, its delays, their gradients) while its events go by.
#pragma once

#include "snnlib/core/threads.h"
#include "snnlib/events/matrix.h"

namespace snnlib {
namespace SNNLIB_ISA {

// Events as they are found; one serves all lists that a thread makes.
template <class S>
struct FoundEvents {
  Scratch<int32_t> input, place;
  Scratch<S> amount;
};

// Events sorted by input. Places and amounts lie apart: events that are all 1 have no amounts.
template <class S>
struct SortedEvents {
  const int32_t *ends, *places;
  const S* amounts;  // null where all are 1

  // The events of an input.
  struct Some {
    const int32_t* places;
    const S* amounts;
    int64_t count;
  };
  Some of(int64_t input) const {
    const int64_t start = input ? ends[input - 1] : 0;
    return {places + start, amounts ? amounts + start : nullptr, ends[input] - start};
  }
};

template <class S>
class EventsByInput {
 public:
  void clear(int64_t inputs) {
    inputs_ = inputs;
    count_ = 0;
    unit_ = true;
    ends_.zeroed(inputs + 1);
  }

  // Takes up a row; `place` goes with each of its events. How many there are.
  int64_t add(const S* row, int64_t place, FoundEvents<S>& found) {
    const int64_t room = count_ + inputs_ + kMoreEvents;
    int32_t *inputs = found.input.grow(room, count_), *places = found.place.grow(room, count_);
    S* amounts = found.amount.grow(room, count_);
    const int64_t end = count_ + append_numbers(row, inputs_, inputs + count_);
    bool unit = true;
    for (int64_t e = count_; e < end; ++e) {
      places[e] = int32_t(place);
      amounts[e] = row[inputs[e]];
      unit &= amounts[e] == S(1);
      ++ends_.data()[inputs[e] + 1];
    }
    const int64_t added = end - count_;
    unit_ &= unit;
    count_ = end;
    return added;
  }

  // After the last row. Events of an input stay in the order of the rows.
  void sort(const FoundEvents<S>& found) {
    int32_t* places = places_.reserve(count_);
    S* amounts = unit_ ? nullptr : amounts_.reserve(count_);
    int32_t* ends = ends_.data();
    for (int64_t i = 0; i < inputs_; ++i) ends[i + 1] += ends[i];
    for (int64_t e = 0; e < count_; ++e) {
      const int32_t at = ends[found.input.data()[e]]++;
      places[at] = found.place.data()[e];
      if (amounts) amounts[at] = found.amount.data()[e];
    }
  }

  SortedEvents<S> sorted() const { return {ends_.data(), places_.data(), unit_ ? nullptr : amounts_.data()}; }

 private:
  int64_t inputs_ = 0, count_ = 0;
  bool unit_ = true;
  Scratch<int32_t> ends_, places_;
  Scratch<S> amounts_;
};

}  // namespace SNNLIB_ISA
}  // namespace snnlib
