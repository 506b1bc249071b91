#include "cudnn_api.h"

#include <dlfcn.h>

#include <stdexcept>

namespace snnlib::cudnn {
namespace {

Api loaded = {};
bool is_loaded = false, is_leaving = false;

template <class Function>
void look_up(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function == nullptr) throw std::runtime_error(std::string("libcudnn has no function ") + name);
}

}  // namespace

void load(const std::string& path) {
  constexpr const char* kName = "libcudnn.so.9";
  // Never closed: plans hold code of the library until the process ends.
  void* library = path.empty() ? dlopen(kName, RTLD_NOW | RTLD_NOLOAD) : dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw std::runtime_error(path.empty() ? std::string(kName) + " is not loaded" : std::string(dlerror()));
  }
  Api found;
  look_up(library, "cudnnGetVersion", &found.version);
  look_up(library, "cudnnGetErrorString", &found.error_string);
  look_up(library, "cudnnGetLastErrorString", &found.last_error);
  look_up(library, "cudnnCreate", &found.create_handle);
  look_up(library, "cudnnSetStream", &found.set_stream);
  look_up(library, "cudnnBackendCreateDescriptor", &found.create);
  look_up(library, "cudnnBackendDestroyDescriptor", &found.destroy);
  look_up(library, "cudnnBackendSetAttribute", &found.set);
  look_up(library, "cudnnBackendFinalize", &found.finalize);
  look_up(library, "cudnnBackendGetAttribute", &found.get);
  look_up(library, "cudnnBackendExecute", &found.execute);
  loaded = found;
  is_loaded = true;
}

const Api& api() {
  if (!is_loaded) throw std::runtime_error("cuDNN is not loaded");
  return loaded;
}

void leave() { is_leaving = true; }

void destroy(Descriptor descriptor) {
  if (!is_leaving) loaded.destroy(descriptor);
}

void check(int status, const char* doing) {
  if (status == 0) return;
  char detail[512] = "";
  loaded.last_error(detail, sizeof detail);
  std::string message = std::string("cuDNN could not ") + doing + ": " + loaded.error_string(status);
  if (detail[0] != '\0') message += std::string(" (") + detail + ")";
  throw std::runtime_error(message);
}

}  // namespace snnlib::cudnn
