// Currents of a convolution on CUDA with the CPU's bits: a thread adds the events of one output in the order of the
// event-driven kernels, by kernel row, kernel column and channel, each product rounded for itself. Sums on tensor cores
// and in cuDNN have orders of their own; this one is slower by far, and makes a net spike alike on both devices.
#include "divider.h"
#include "element.h"
#include "launch.h"
#include "snnlib/events/taps.h"

namespace snnlib {
namespace cuda {
namespace {

struct OutputPlaces {
  Divider<uint64_t> channels, width, height, batch;
};

template <class T>
__global__ void event_currents_kernel(EventCurrentsArgs a, OutputPlaces places, int64_t outputs) {
  const int64_t index = thread_index();
  if (index >= outputs) return;
  const TapShape& s = a.shape;
  const int64_t pixel = int64_t(places.channels.quotient(uint64_t(index))), channel = index - pixel * s.channels;
  const int64_t row = int64_t(places.width.quotient(uint64_t(pixel))), x = pixel - row * s.width;
  const int64_t frame = int64_t(places.height.quotient(uint64_t(row))), y = row - frame * s.height;
  const int64_t outer = int64_t(places.batch.quotient(uint64_t(frame))), sample = frame - outer * a.batch;
  const T* input = static_cast<const T*>(a.input) + outer * a.strides[0] + sample * a.strides[1];
  float sum = 0.0f;
  for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
    const int64_t in_y = y * s.stride_h - s.padding_h + ky * s.dilation_h;
    if (in_y < 0 || in_y >= s.in_height) continue;
    for (int64_t kx = 0; kx < s.kernel_w; ++kx) {
      const int64_t in_x = x * s.stride_w - s.padding_w + kx * s.dilation_w;
      if (in_x < 0 || in_x >= s.in_width) continue;
      const T* at = input + in_y * a.strides[3] + in_x * a.strides[4];
      const float* weight = a.weight + (ky * s.kernel_w + kx) * s.in_channels * s.channels + channel;
      for (int64_t c = 0; c < s.in_channels; ++c, at += a.strides[2], weight += s.channels) {
        const float amount = to_state(*at);
        if (amount != 0.0f) sum += amount * *weight;
      }
    }
  }
  a.output[index] = sum;
}

template <class T>
void run(const EventCurrentsArgs& a) {
  const TapShape& s = a.shape;
  const int64_t outputs = s.frames * s.height * s.width * s.channels;
  using D = Divider<uint64_t>;
  launch("event_currents", event_currents_kernel<T>, outputs, a.executor, Scratch{}, a,
         OutputPlaces{D(s.channels), D(s.width), D(s.height), D(a.batch)}, outputs);
}

void currents(const EventCurrentsArgs& a) {
  if (a.dtype == DType::kFloat32) return run<float>(a);
  if (a.dtype == DType::kBFloat16) return run<__nv_bfloat16>(a);
  if (a.dtype == DType::kFloat16) return run<__half>(a);
  throw std::runtime_error("event_currents: float64 is for gradient checks");
}

}  // namespace

extern const EventKernels event_kernels = {currents};

}  // namespace cuda
}  // namespace snnlib
