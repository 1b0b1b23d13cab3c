// Parsing and printing of devices. An omitted index is 0.
#include "gradus/tensor/base/device.h"

#include <charconv>
#include <ostream>

#include "gradus/tensor/base/error.h"

namespace gradus {

Device Device::parse(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  Device d;
  if (kind == "cpu")
    d.type = DeviceType::kCPU;
  else if (kind == "cuda")
    d.type = DeviceType::kCUDA;
  else if (kind == "meta")
    d.type = DeviceType::kMeta;
  else
    throw ValueError("Device", "expected cpu, cpu:N, cuda:N or meta, got '", text, "'");
  if (colon != std::string_view::npos) {
    const char *first = text.data() + colon + 1, *last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, d.index);
    if (error != std::errc() || end != last || d.index < 0 || d.index > 63 || d.type == DeviceType::kMeta)
      throw ValueError("Device", "expected an index from 0 to 63 after ':', got '", text, "'");
  }
  return d;
}

std::string to_string(Device d) {
  if (d.type == DeviceType::kMeta) return "meta";
  if (d.type == DeviceType::kCPU) return d.index == 0 ? "cpu" : "cpu:" + std::to_string(d.index);
  return "cuda:" + std::to_string(d.index);
}

std::ostream& operator<<(std::ostream& out, Device d) { return out << to_string(d); }

}  // namespace gradus
