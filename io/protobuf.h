// ProtoWriter: encodes the subset of the protocol buffers wire format that event files use.
//
//   ProtoWriter value;
//   value.bytes(1, "loss").f32(2, 0.25f);           // field numbers and values; any order
//   std::string record = ProtoWriter().message(5, value).take();
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace gradus::io::internal {

class ProtoWriter {
 public:
  ProtoWriter& varint(int field, uint64_t value) { return key(field, 0).number(value); }
  ProtoWriter& f64(int field, double value) {
    return key(field, 1).little_endian(std::bit_cast<uint64_t>(value), 8);
  }
  ProtoWriter& f32(int field, float value) {
    return key(field, 5).little_endian(std::bit_cast<uint32_t>(value), 4);
  }
  ProtoWriter& bytes(int field, std::string_view value) {
    key(field, 2).number(value.size());
    out_ += value;
    return *this;
  }
  ProtoWriter& message(int field, const ProtoWriter& m) { return bytes(field, m.out_); }
  // Writes a repeated field of doubles, packed.
  ProtoWriter& f64s(int field, std::span<const double> values) {
    key(field, 2).number(8 * values.size());
    for (const double v : values) little_endian(std::bit_cast<uint64_t>(v), 8);
    return *this;
  }

  std::string take() { return std::move(out_); }

 private:
  ProtoWriter& key(int field, int wire_type) { return number(static_cast<uint64_t>(field) << 3 | wire_type); }
  ProtoWriter& number(uint64_t v) {
    for (; v >= 0x80; v >>= 7) out_ += static_cast<char>(v | 0x80);
    out_ += static_cast<char>(v);
    return *this;
  }
  ProtoWriter& little_endian(uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(v >> 8 * i);
    return *this;
  }

  std::string out_;
};

}  // namespace gradus::io::internal
