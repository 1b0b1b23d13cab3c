// Device: the memory and processor of a tensor. cpu:0 computes in the calling thread; cpu:1 and up are logical CPU
// devices with a worker thread each; cuda:0 and up are GPUs; meta has shapes without data.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace gradus {

enum class DeviceType : uint8_t { kCPU, kCUDA, kMeta };

struct Device {
  DeviceType type = DeviceType::kCPU;
  int16_t index = 0;

  constexpr Device() = default;
  constexpr Device(DeviceType type_, int16_t index_ = 0) : type(type_), index(index_) {}
  // Parses text: Device("cpu:1"), to(x, "cpu:1"), {.device = "cpu:1"}.
  template <class Text>
    requires std::convertible_to<const Text&, std::string_view>
  Device(const Text& text) : Device(parse(text)) {}

  bool operator==(const Device&) const = default;

  // Parses "cpu", "cpu:N", "cuda", "cuda:N" and "meta", with N from 0 to 63, or 0 if omitted. Neither parse()
  // nor a constructor checks that the device exists. Errors: ValueError for any other text.
  static Device parse(std::string_view text);
};

inline constexpr Device kCPU{};
std::string to_string(Device d);  // "cpu", "cpu:1", "cuda:0", "meta"
std::ostream& operator<<(std::ostream& out, Device d);

}  // namespace gradus
