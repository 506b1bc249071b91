// The part of cuDNN's backend (graph) API that convolutions need, under names of our own: the library is looked up when
// the program runs, so that building needs neither its headers nor the library. Numbers as in cuDNN 9.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace snnlib::cudnn {

using Descriptor = struct DescriptorTag*;
using Handle = struct HandleTag*;

enum class DescriptorType : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kBackwardFilter = 11,
  kBackwardData = 12,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};

enum class Attribute : int {
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceSize = 402,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvolution = 714,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNotes = 1303,
};

enum class DataType : int { kFloat32 = 0, kFloat16 = 2, kBFloat16 = 9 };
// The convolution of neural networks, with the kernel unflipped.
enum class ConvolutionMode : int { kCrossCorrelation = 1 };
enum class HeuristicsMode : int { kFallback = 2, kRanked = 3 };
enum class NumericalNote : int { kTensorCore = 0, kDownConvertInputs = 1, kNondeterministic = 4 };

// The code that tells cuDNN the type of an attribute's values.
template <class T>
struct TypeCode;
template <>
struct TypeCode<Handle> {
  static constexpr int value = 0;
};
template <>
struct TypeCode<DataType> {
  static constexpr int value = 1;
};
template <>
struct TypeCode<int64_t> {
  static constexpr int value = 3;
};
template <>
struct TypeCode<float> {
  static constexpr int value = 4;
};
template <>
struct TypeCode<void*> {
  static constexpr int value = 6;
};
template <>
struct TypeCode<ConvolutionMode> {
  static constexpr int value = 7;
};
template <>
struct TypeCode<HeuristicsMode> {
  static constexpr int value = 8;
};
template <>
struct TypeCode<NumericalNote> {
  static constexpr int value = 11;
};
template <>
struct TypeCode<Descriptor> {
  static constexpr int value = 15;
};

// Every function returns a status, 0 for success, except where it says otherwise.
struct Api {
  size_t (*version)();  // 92400 for 9.24.0
  const char* (*error_string)(int status);
  void (*last_error)(char* message, size_t size);
  int (*create_handle)(Handle*);
  int (*set_stream)(Handle, void* stream);
  int (*create)(DescriptorType, Descriptor*);
  int (*destroy)(Descriptor);
  int (*set)(Descriptor, Attribute, int type, int64_t count, const void* values);
  int (*finalize)(Descriptor);
  int (*get)(Descriptor, Attribute, int type, int64_t room, int64_t* count, void* values);
  int (*execute)(Handle, Descriptor plan, Descriptor pack);
};

// Looks the functions up in the copy of libcudnn.so.9 that the process has loaded already if `path` is empty, else in
// the library at `path`. Throws std::runtime_error with the reason if it cannot. Not for two threads at once.
void load(const std::string& path);

// Throws std::runtime_error before `load`.
const Api& api();

// From here on descriptors are left to the end of the process: when the interpreter is torn down, CUDA may be gone
// before them, and cuDNN is known to crash then.
void leave();
// Does nothing after `leave`.
void destroy(Descriptor descriptor);

// Throws std::runtime_error with cuDNN's own words unless the status is that of success.
void check(int status, const char* doing);

}  // namespace snnlib::cudnn
