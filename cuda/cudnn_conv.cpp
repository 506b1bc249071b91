#include "cudnn_conv.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace snnlib::cudnn {
namespace {

constexpr int64_t kX = 1, kW = 2, kY = 3;

OwnedDescriptor create(DescriptorType type) {
  Descriptor descriptor = nullptr;
  check(api().create(type, &descriptor), "create a descriptor");
  return OwnedDescriptor(descriptor);
}

template <class T>
void set(const OwnedDescriptor& descriptor, Attribute attribute, const T* values, size_t count) {
  check(api().set(descriptor.get(), attribute, TypeCode<T>::value, int64_t(count), values), "set an attribute");
}

template <class T>
void set(const OwnedDescriptor& descriptor, Attribute attribute, T value) {
  set(descriptor, attribute, &value, 1);
}

template <size_t N>
void set(const OwnedDescriptor& descriptor, Attribute attribute, const std::array<int64_t, N>& values) {
  set(descriptor, attribute, values.data(), N);
}

// A stock of handles per device. A call takes one and gives it back, so that no two threads share one. They are never
// destroyed: at the end of the process CUDA may be gone before them.
class HandleLease {
 public:
  explicit HandleLease(int device) : device_(device) {
    {
      const std::lock_guard<std::mutex> guard(stock().mutex);
      auto& free = stock().free[device];
      if (!free.empty()) {
        handle_ = free.back();
        free.pop_back();
        return;
      }
    }
    check(api().create_handle(&handle_), "create a handle on this device");
  }
  ~HandleLease() {
    const std::lock_guard<std::mutex> guard(stock().mutex);
    stock().free[device_].push_back(handle_);
  }
  HandleLease(const HandleLease&) = delete;
  HandleLease& operator=(const HandleLease&) = delete;

  Handle get() const { return handle_; }

 private:
  struct Stock {
    std::mutex mutex;
    std::map<int, std::vector<Handle>> free;
  };
  static Stock& stock() {
    static Stock& all = *new Stock;
    return all;
  }

  int device_;
  Handle handle_ = nullptr;
};

OwnedDescriptor tensor(int64_t id, DataType dtype, const Size4& size, bool channels_last, int64_t alignment) {
  OwnedDescriptor descriptor = create(DescriptorType::kTensor);
  set(descriptor, Attribute::kTensorDataType, dtype);
  set(descriptor, Attribute::kTensorDimensions, size);
  set(descriptor, Attribute::kTensorStrides, dense_strides(size, channels_last));
  set(descriptor, Attribute::kTensorId, id);
  set(descriptor, Attribute::kTensorAlignment, alignment);
  check(api().finalize(descriptor.get()), "describe a tensor");
  return descriptor;
}

OwnedDescriptor convolution(const ConvGeometry& g) {
  OwnedDescriptor descriptor = create(DescriptorType::kConvolution);
  set(descriptor, Attribute::kConvolutionComputeType, DataType::kFloat32);
  set(descriptor, Attribute::kConvolutionMode, ConvolutionMode::kCrossCorrelation);
  set(descriptor, Attribute::kConvolutionSpatialDims, int64_t(2));
  set(descriptor, Attribute::kConvolutionDilations, g.dilation);
  set(descriptor, Attribute::kConvolutionStrides, g.stride);
  set(descriptor, Attribute::kConvolutionPrePaddings, g.padding);
  set(descriptor, Attribute::kConvolutionPostPaddings, g.padding);
  check(api().finalize(descriptor.get()), "describe the convolution");
  return descriptor;
}

// The two operations have the same attributes under numbers of their own.
struct OperationAttributes {
  DescriptorType type;
  Attribute alpha, beta, convolution, x, w, y;
};
constexpr OperationAttributes kBackwardData = {DescriptorType::kBackwardData, Attribute::kBackwardDataAlpha,
                                               Attribute::kBackwardDataBeta,  Attribute::kBackwardDataConvolution,
                                               Attribute::kBackwardDataDx,    Attribute::kBackwardDataW,
                                               Attribute::kBackwardDataDy};
constexpr OperationAttributes kBackwardFilter = {DescriptorType::kBackwardFilter, Attribute::kBackwardFilterAlpha,
                                                 Attribute::kBackwardFilterBeta,  Attribute::kBackwardFilterConvolution,
                                                 Attribute::kBackwardFilterX,     Attribute::kBackwardFilterDw,
                                                 Attribute::kBackwardFilterDy};

bool fits(const OwnedDescriptor& config, bool deterministic, bool tensor_cores) {
  const OwnedDescriptor engine = create(DescriptorType::kEngine);
  Descriptor target = engine.get();
  int64_t count = 0;
  check(api().get(config.get(), Attribute::kConfigEngine, TypeCode<Descriptor>::value, 1, &count, &target),
        "read an engine");
  std::array<NumericalNote, 32> notes;
  check(api().get(engine.get(), Attribute::kEngineNumericalNotes, TypeCode<NumericalNote>::value, notes.size(), &count,
                  notes.data()),
        "read the notes of an engine");
  for (size_t i = 0; i < std::min(size_t(count), notes.size()); ++i) {
    // Inputs rounded to fewer bits than tf32 are never wanted.
    if (notes[i] == NumericalNote::kDownConvertInputs) return false;
    if (notes[i] == NumericalNote::kTensorCore && !tensor_cores) return false;
    if (notes[i] == NumericalNote::kNondeterministic && deterministic) return false;
  }
  return true;
}

}  // namespace

Size4 dense_strides(const Size4& size, bool channels_last) {
  const auto [n, c, h, w] = size;
  (void)n;
  if (channels_last) return {h * w * c, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

ConvBackward::ConvBackward(const ConvGeometry& g) {
  ConvDescriptors& d = *descriptors_;
  d.x = tensor(kX, g.dtype, g.x, g.channels_last, g.x_alignment);
  d.w = tensor(kW, g.dtype, g.w, g.channels_last, g.w_alignment);
  d.y = tensor(kY, g.dtype, g.y, g.channels_last, g.y_alignment);
  d.convolution = convolution(g);
  const OperationAttributes& attributes = g.to_input ? kBackwardData : kBackwardFilter;
  d.operation = create(attributes.type);
  set(d.operation, attributes.convolution, d.convolution.get());
  set(d.operation, attributes.x, d.x.get());
  set(d.operation, attributes.w, d.w.get());
  set(d.operation, attributes.y, d.y.get());
  set(d.operation, attributes.alpha, 1.0f);
  set(d.operation, attributes.beta, 0.0f);
  check(api().finalize(d.operation.get()), "describe the backward convolution");
}

int ConvBackward::find_engines(int device, bool deterministic, bool tensor_cores) {
  ConvDescriptors& d = *descriptors_;
  device_ = device;
  const HandleLease handle(device);
  d.graph = create(DescriptorType::kOperationGraph);
  set(d.graph, Attribute::kGraphOperations, d.operation.get());
  set(d.graph, Attribute::kGraphHandle, handle.get());
  check(api().finalize(d.graph.get()), "make a graph of the backward convolution");
  for (const HeuristicsMode mode : {HeuristicsMode::kRanked, HeuristicsMode::kFallback}) {
    const OwnedDescriptor heuristics = create(DescriptorType::kEngineHeuristics);
    set(heuristics, Attribute::kHeuristicsGraph, d.graph.get());
    set(heuristics, Attribute::kHeuristicsMode, mode);
    // A mode may know no engine for this operation.
    if (api().finalize(heuristics.get()) != 0) continue;
    int64_t count = 0;
    const auto results = [&](int64_t room, Descriptor* descriptors) {
      check(api().get(heuristics.get(), Attribute::kHeuristicsResults, TypeCode<Descriptor>::value, room, &count,
                      descriptors),
            "read the engines");
    };
    results(0, nullptr);
    std::vector<OwnedDescriptor> owned;
    std::vector<Descriptor> descriptors;
    for (int64_t i = 0; i < count; ++i) {
      owned.push_back(create(DescriptorType::kEngineConfig));
      descriptors.push_back(owned.back().get());
    }
    results(count, descriptors.data());
    for (int64_t i = 0; i < count; ++i) {
      if (fits(owned[i], deterministic, tensor_cores)) d.configs.push_back(std::move(owned[i]));
    }
  }
  return int(d.configs.size());
}

std::unique_ptr<ConvPlan> ConvBackward::plan(int engine) const {
  return std::make_unique<ConvPlan>(descriptors_, engine, device_);
}

ConvPlan::ConvPlan(std::shared_ptr<const ConvDescriptors> descriptors, int engine, int device)
    : descriptors_(std::move(descriptors)), device_(device) {
  const HandleLease handle(device);
  plan_ = create(DescriptorType::kExecutionPlan);
  set(plan_, Attribute::kPlanHandle, handle.get());
  set(plan_, Attribute::kPlanConfig, descriptors_->configs.at(engine).get());
  check(api().finalize(plan_.get()), "prepare an engine");
  int64_t count = 0;
  check(api().get(plan_.get(), Attribute::kPlanWorkspaceSize, TypeCode<int64_t>::value, 1, &count, &workspace_bytes_),
        "read the size of the workspace");
}

void ConvPlan::run(void* x, void* w, void* y, void* workspace, void* stream) {
  const std::array<int64_t, 3> ids = {kX, kW, kY};
  const std::array<void*, 3> pointers = {x, w, y};
  const OwnedDescriptor pack = create(DescriptorType::kVariantPack);
  set(pack, Attribute::kPackIds, ids);
  set(pack, Attribute::kPackPointers, pointers.data(), pointers.size());
  set(pack, Attribute::kPackWorkspace, workspace);
  check(api().finalize(pack.get()), "gather the tensors");
  const HandleLease handle(device_);
  check(api().set_stream(handle.get(), stream), "use this stream");
  const std::lock_guard<std::mutex> guard(running_);
  check(api().execute(handle.get(), plan_.get(), pack.get()), "run the backward convolution");
}

}  // namespace snnlib::cudnn
