// Threads of a block that wait for each other, on one thread of the CPU: each has a stack of its own and runs until it
// waits or ends, then the next takes over. Between two waits they run one after the other, from the first to the last
// or the other way round: a kernel whose result depends on that lacks a wait.
#pragma once

#include <ucontext.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace snnlib {
namespace cuda {

class Fibres {
 public:
  bool backwards = false;

  // Calls `body` once for each of `count` threads, a multiple of the `warp` threads that can wait for each other alone.
  void run(int count, int warp, const std::function<void()>& body) {
    body_ = &body;
    while (int(fibres_.size()) < count) fibres_.push_back(std::make_unique<Fibre>());
    for (int i = 0; i < count; ++i) begin(*fibres_[size_t(i)]);
    for (Place place = Place::kBlock; place == Place::kBlock;) {
      place = each(0, count, warp, [&](int first) {
        Place reached = Place::kWarp;
        while (reached == Place::kWarp) reached = each(first, first + warp, 1, [&](int i) { return resume(i); });
        return reached;
      });
    }
  }

  int current() const { return current_; }
  // Returns when all threads of the warp or of the block have come here.
  void wait_for_warp() { stop(Place::kWarp); }
  void wait_for_block() { stop(Place::kBlock); }

 private:
  static constexpr size_t kStackBytes = 256 << 10;

  // Where a thread stops.
  enum class Place { kWarp, kBlock, kEnd };

  struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
    Place place;
  };

  // Where f(first), f(first + step) ... up to `end` come to, which is the same place for all.
  template <class F>
  Place each(int first, int end, int step, const F& f) {
    const int turns = (end - first) / step;
    Place all = Place::kEnd;
    for (int turn = 0; turn < turns; ++turn) {
      const Place place = f(first + (backwards ? turns - 1 - turn : turn) * step);
      if (turn > 0 && place != all)
        throw std::logic_error("threads of a block wait for each other at different places");
      all = place;
    }
    return all;
  }

  Place resume(int i) {
    current_ = i;
    swapcontext(&outside_, &fibres_[size_t(i)]->context);
    return fibres_[size_t(i)]->place;
  }

  void stop(Place place) {
    Fibre& fibre = *fibres_[size_t(current_)];
    fibre.place = place;
    swapcontext(&fibre.context, &outside_);
  }

  void begin(Fibre& fibre) {
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.get();
    fibre.context.uc_stack.ss_size = kStackBytes;
    fibre.context.uc_link = &outside_;
    running() = this;
    makecontext(&fibre.context, &enter, 0);
  }

  static Fibres*& running() {
    static thread_local Fibres* fibres = nullptr;
    return fibres;
  }

  static void enter() {
    Fibres* fibres = running();
    (*fibres->body_)();
    fibres->fibres_[size_t(fibres->current_)]->place = Place::kEnd;
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  ucontext_t outside_;
  int current_ = 0;
};

}  // namespace cuda
}  // namespace snnlib
