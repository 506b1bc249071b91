// The two backward convolutions of cuDNN in three stages: describe the operation (no device needed), find and prepare
// engines for a device, run one as often as wanted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cudnn_api.h"

namespace snnlib::cudnn {

struct DestroyDescriptor {
  void operator()(Descriptor descriptor) const { destroy(descriptor); }
};
using OwnedDescriptor = std::unique_ptr<DescriptorTag, DestroyDescriptor>;

using Size4 = std::array<int64_t, 4>;
using Size2 = std::array<int64_t, 2>;

// x is [B, C, H, W], w is [C_out, C / groups, kh, kw], y is the output's gradient; all dense, in one layout.
// The number of groups follows from the channels of x and w. Alignments in bytes.
struct ConvGeometry {
  bool to_input;  // whether x is the result, else w
  DataType dtype;
  bool channels_last;
  Size4 x, w, y;
  Size2 stride, padding, dilation;
  int64_t x_alignment, w_alignment, y_alignment;
};

// Strides in elements of a dense tensor [N, C, H, W].
Size4 dense_strides(const Size4& size, bool channels_last);

// The operation, its graph and the ranked engines for a device. Descriptors refer to those before them.
struct ConvDescriptors {
  OwnedDescriptor x, w, y, convolution, operation, graph;
  std::vector<OwnedDescriptor> configs;
};

// An engine, ready to run on the device that it was prepared for.
class ConvPlan {
 public:
  // Throws std::runtime_error if the engine turns out not to support the operation.
  ConvPlan(std::shared_ptr<const ConvDescriptors> descriptors, int engine, int device);
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // The result is written, the two others are read. The device must be the current one.
  void run(void* x, void* w, void* y, void* workspace, void* stream);

 private:
  std::shared_ptr<const ConvDescriptors> descriptors_;
  OwnedDescriptor plan_;
  int64_t workspace_bytes_ = 0;
  int device_;
  // Not every engine can start twice at once.
  std::mutex running_;
};

class ConvBackward {
 public:
  // Throws std::runtime_error where cuDNN finds the geometry inconsistent.
  explicit ConvBackward(const ConvGeometry& geometry);
  // Ranks the engines for the current device, best first, and returns how many fit the wishes. `tensor_cores`: whether
  // float32 may be rounded to tf32 for them. Called once, before `plan`.
  int find_engines(int device, bool deterministic, bool tensor_cores);
  std::unique_ptr<ConvPlan> plan(int engine) const;

 private:
  std::shared_ptr<ConvDescriptors> descriptors_ = std::make_shared<ConvDescriptors>();
  int device_ = 0;
};

}  // namespace snnlib::cudnn
