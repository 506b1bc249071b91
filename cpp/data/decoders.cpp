#include "bindings.h"
#include "event_files.h"

namespace snnlib {
namespace {

// A decoder of event files; NumPy arrays arrive as addresses.
void bind_decoder(pybind11::module_& module, const char* name, DecodeEvents decode) {
  module.def(
      name,
      [decode](Address input, int64_t bytes, Address places, int64_t capacity, Address decoder) {
        return decode(static_cast<const uint8_t*>(pointer(input)), bytes, static_cast<char*>(pointer(places)), capacity,
                      *static_cast<EventDecoder*>(pointer(decoder)));
      },
      pybind11::call_guard<pybind11::gil_scoped_release>());
}

const PartBindings decoders([](pybind11::module_& module) {
  bind_decoder(module, "decode_evt2", decode_evt2);
  bind_decoder(module, "decode_evt21", decode_evt21);
  bind_decoder(module, "decode_evt3", decode_evt3);
  module.attr("event_decoder_bytes") = sizeof(EventDecoder);
});

}  // namespace
}  // namespace snnlib
