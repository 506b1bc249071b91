// A stand-in for libcudnn.so.9 that convolves on the CPU in plain loops, so that the calls of cuda/cudnn_conv.cpp run
// where there is no GPU. It reads its geometry from the attributes alone, by cuDNN's documented numbers, and refuses
// descriptors that are gone or not finalised. Float32 only. Engines 0 to 5 differ in notes and faults.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

struct Desc {
  int type;
  bool final = false;
  int engine = -1;
  std::map<int, std::vector<char>> values;

  template <class T>
  std::vector<T> all(int attribute) const {
    const std::vector<char>& bytes = values.at(attribute);
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  template <class T>
  T one(int attribute) const {
    return all<T>(attribute).at(0);
  }
};

std::set<Desc*> live;
std::set<void*> handles;
std::string fault;
int last_engine = -1, plans_made = 0, alignment_of_x = 0, workspace_bytes = 0;
void* last_stream = nullptr;

constexpr int kNotSupported = 3000, kBadParam = 2000, kSuccess = 0;
// Tensor core, down-converting, nondeterministic.
const std::vector<std::vector<int>> kNotes = {{4}, {0}, {1}, {}, {}, {}};
// Set by the tests: engines that cannot be prepared, and engines that fail when run.
std::set<int> unprepared, failing;

int element_bytes(int type) {
  // int64, void pointer, descriptor and handle have 8 bytes; float and the enumerations 4.
  return type == 0 || type == 3 || type == 6 || type == 15 ? 8 : 4;
}

bool usable(Desc* descriptor, int type) {
  return live.count(descriptor) && descriptor->final && descriptor->type == type;
}

struct Tensor {
  std::vector<int64_t> size, stride;
  explicit Tensor(Desc* d) : size(d->all<int64_t>(902)), stride(d->all<int64_t>(903)) {}
  int64_t at(int64_t a, int64_t b, int64_t c, int64_t e) const {
    return a * stride[0] + b * stride[1] + c * stride[2] + e * stride[3];
  }
};

int convolve(Desc* operation, float* xs, float* ws, float* ys) {
  const bool to_input = operation->type == 12;
  const int base = to_input ? 708 : 714;
  Desc* conv = operation->one<Desc*>(base);
  Desc* x_desc = operation->one<Desc*>(to_input ? 710 : 716);
  Desc* w_desc = operation->one<Desc*>(to_input ? 709 : 715);
  Desc* y_desc = operation->one<Desc*>(to_input ? 711 : 717);
  for (Desc* d : {x_desc, w_desc, y_desc}) {
    if (!usable(d, 17) || d->one<int>(901) != 0) return kBadParam;
  }
  if (!usable(conv, 1) || conv->one<int64_t>(106) != 2 || conv->one<int>(101) != 1) return kBadParam;
  if (conv->all<int64_t>(104) != conv->all<int64_t>(105)) return kNotSupported;
  if (operation->one<float>(to_input ? 706 : 712) != 1 || operation->one<float>(to_input ? 707 : 713) != 0) {
    return kNotSupported;
  }
  const auto dilation = conv->all<int64_t>(102), step = conv->all<int64_t>(103), pad = conv->all<int64_t>(105);
  const Tensor x(x_desc), w(w_desc), y(y_desc);
  alignment_of_x = int(x_desc->one<int64_t>(900));
  const Tensor& result = to_input ? x : w;
  float* out = to_input ? xs : ws;
  for (int64_t a = 0; a < result.size[0]; ++a)
    for (int64_t b = 0; b < result.size[1]; ++b)
      for (int64_t c = 0; c < result.size[2]; ++c)
        for (int64_t e = 0; e < result.size[3]; ++e) out[result.at(a, b, c, e)] = 0;
  const int64_t rows = y.size[1] * w.size[1] / x.size[1];
  for (int64_t n = 0; n < y.size[0]; ++n)
    for (int64_t k = 0; k < y.size[1]; ++k)
      for (int64_t i = 0; i < y.size[2]; ++i)
        for (int64_t j = 0; j < y.size[3]; ++j)
          for (int64_t c = 0; c < w.size[1]; ++c)
            for (int64_t u = 0; u < w.size[2]; ++u)
              for (int64_t v = 0; v < w.size[3]; ++v) {
                const int64_t row = i * step[0] - pad[0] + u * dilation[0];
                const int64_t column = j * step[1] - pad[1] + v * dilation[1];
                if (row < 0 || row >= x.size[2] || column < 0 || column >= x.size[3]) continue;
                const int64_t xi = x.at(n, k / rows * w.size[1] + c, row, column);
                const int64_t wi = w.at(k, c, u, v), yi = y.at(n, k, i, j);
                if (to_input) {
                  xs[xi] += ys[yi] * ws[wi];
                } else {
                  ws[wi] += ys[yi] * xs[xi];
                }
              }
  return kSuccess;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return 90000; }
const char* cudnnGetErrorString(int status) { return status == kNotSupported ? "NOT_SUPPORTED" : "BAD_PARAM"; }
void cudnnGetLastErrorString(char* message, size_t size) { std::strncpy(message, fault.c_str(), size); }

int cudnnCreate(void** handle) {
  *handle = new char;
  handles.insert(*handle);
  return kSuccess;
}

int cudnnSetStream(void* handle, void* stream) {
  last_stream = stream;
  return handles.count(handle) ? kSuccess : kBadParam;
}

int cudnnBackendCreateDescriptor(int type, void** descriptor) {
  Desc* made = new Desc{type, false, -1, {}};
  live.insert(made);
  *descriptor = made;
  return kSuccess;
}

int cudnnBackendDestroyDescriptor(void* descriptor) {
  if (!live.erase(static_cast<Desc*>(descriptor))) return kBadParam;
  delete static_cast<Desc*>(descriptor);
  return kSuccess;
}

int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count, const void* values) {
  Desc* d = static_cast<Desc*>(descriptor);
  if (!live.count(d) || d->final) return kBadParam;
  const char* bytes = static_cast<const char*>(values);
  d->values[attribute].assign(bytes, bytes + count * element_bytes(type));
  return kSuccess;
}

int cudnnBackendFinalize(void* descriptor) {
  Desc* d = static_cast<Desc*>(descriptor);
  if (!live.count(d) || d->final) return kBadParam;
  if (d->type == 5) {
    Desc* config = d->one<Desc*>(401);
    if (!usable(config, 3) || !handles.count(d->one<void*>(400))) return kBadParam;
    d->engine = config->engine;
    ++plans_made;
    if (unprepared.count(d->engine)) return kNotSupported;
  }
  if (d->type == 15 && !handles.count(d->one<void*>(800))) return kBadParam;
  if (d->type == 4 && !usable(d->one<Desc*>(201), 15)) return kBadParam;
  d->final = true;
  return kSuccess;
}

int cudnnBackendGetAttribute(void* descriptor, int attribute, int, int64_t room, int64_t* count, void* values) {
  Desc* d = static_cast<Desc*>(descriptor);
  if (!live.count(d) || !d->final) return kBadParam;
  if (d->type == 4 && attribute == 202) {
    // The last engine is the fallback.
    const bool fallback = d->one<int>(200) == 2;
    const int first = fallback ? int(kNotes.size()) - 1 : 0;
    *count = fallback ? 1 : int64_t(kNotes.size()) - 1;
    for (int64_t i = 0; i < room; ++i) {
      Desc* config = static_cast<Desc**>(values)[i];
      config->engine = first + int(i);
      config->values[201] = d->values[201];
      config->final = true;
    }
  } else if (d->type == 3 && attribute == 300) {
    Desc* engine = *static_cast<Desc**>(values);
    engine->engine = d->engine;
    engine->final = true;
    *count = 1;
  } else if (d->type == 2 && attribute == 1303) {
    const std::vector<int>& notes = kNotes[d->engine];
    *count = int64_t(notes.size());
    for (size_t i = 0; i < notes.size(); ++i) static_cast<int*>(values)[i] = notes[i];
  } else if (d->type == 5 && attribute == 402) {
    *count = 1;
    *static_cast<int64_t*>(values) = workspace_bytes;
  } else {
    return kBadParam;
  }
  return kSuccess;
}

int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  Desc* p = static_cast<Desc*>(plan);
  Desc* v = static_cast<Desc*>(pack);
  if (!handles.count(handle) || !usable(p, 5) || !usable(v, 16)) return kBadParam;
  Desc* config = p->one<Desc*>(401);
  if (!usable(config, 3)) return kBadParam;
  Desc* graph = config->one<Desc*>(201);
  if (!usable(graph, 15)) return kBadParam;
  Desc* operation = graph->one<Desc*>(801);
  if (!live.count(operation) || !operation->final) return kBadParam;
  if (failing.count(p->engine)) {
    fault = "engine " + std::to_string(p->engine) + " gave up";
    return kNotSupported;
  }
  fault.clear();
  last_engine = p->engine;
  std::memset(v->one<void*>(1003), 0xff, workspace_bytes);
  const auto ids = v->all<int64_t>(1000);
  const auto pointers = v->all<void*>(1001);
  std::map<int64_t, float*> tensors;
  for (size_t i = 0; i < ids.size(); ++i) tensors[ids[i]] = static_cast<float*>(pointers[i]);
  const bool to_input = operation->type == 12;
  const auto pick = [&](int attribute) { return tensors.at(operation->one<Desc*>(attribute)->one<int64_t>(906)); };
  return convolve(operation, pick(to_input ? 710 : 716), pick(to_input ? 709 : 715), pick(to_input ? 711 : 717));
}

// Functions by which the tests look at the library and set it.
int fake_live_descriptors() { return int(live.size()); }
int fake_handles() { return int(handles.size()); }
int fake_last_engine() { return last_engine; }
int fake_plans_made() { return plans_made; }
int fake_alignment_of_x() { return alignment_of_x; }
void* fake_last_stream() { return last_stream; }
void fake_set_workspace(int bytes) { workspace_bytes = bytes; }
void fake_fail(int engine, int when_prepared) { (when_prepared ? unprepared : failing).insert(engine); }
void fake_recover() {
  unprepared.clear();
  failing.clear();
}

}  // extern "C"
