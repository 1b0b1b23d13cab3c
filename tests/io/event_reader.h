// An independent reader of TensorBoard event files for the writer's tests: checks both checksums of each
// TFRecord by a bitwise CRC-32C and parses the protocol buffers. Malformed input throws std::runtime_error.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradus::io {

inline uint32_t slow_crc32c(std::string_view data) {
  uint32_t c = ~0u;
  for (const char byte : data) {
    c ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
  }
  return ~c;
}

// A field of a message; ProtoMessage has them by field number, repeated ones in order.
struct ProtoField {
  uint64_t number = 0;  // varint, or the bits of a fixed number
  std::string bytes;    // of a length-delimited field
  double f64() const { return std::bit_cast<double>(number); }
  float f32() const { return std::bit_cast<float>(static_cast<uint32_t>(number)); }
  std::vector<double> f64s() const {
    std::vector<double> values(bytes.size() / 8);
    std::memcpy(values.data(), bytes.data(), 8 * values.size());
    return values;
  }
};
using ProtoMessage = std::multimap<int, ProtoField>;

inline ProtoMessage parse_proto(std::string_view data) {
  size_t at = 0;
  const auto byte = [&] {
    if (at >= data.size()) throw std::runtime_error("message ends within a field");
    return static_cast<unsigned char>(data[at++]);
  };
  const auto varint = [&] {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t b = byte();
      v |= (b & 0x7f) << shift;
      if (b < 0x80) return v;
    }
    throw std::runtime_error("varint without end");
  };
  const auto fixed = [&](int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i) v |= uint64_t{byte()} << 8 * i;
    return v;
  };
  ProtoMessage message;
  while (at < data.size()) {
    const uint64_t key = varint();
    ProtoField field;
    switch (key & 7) {
      case 0:
        field.number = varint();
        break;
      case 1:
        field.number = fixed(8);
        break;
      case 5:
        field.number = fixed(4);
        break;
      case 2: {
        const uint64_t length = varint();
        if (length > data.size() - at) throw std::runtime_error("field beyond the message");
        field.bytes = data.substr(at, length);
        at += length;
        break;
      }
      default:
        throw std::runtime_error("unknown wire type");
    }
    message.emplace(static_cast<int>(key >> 3), std::move(field));
  }
  return message;
}

// Returns the field of that number; throws unless there is exactly one.
inline const ProtoField& only(const ProtoMessage& m, int field) {
  if (m.count(field) != 1)
    throw std::runtime_error("field " + std::to_string(field) + " is there " +
                             std::to_string(m.count(field)) + " times");
  return m.find(field)->second;
}

struct EventRecords {
  std::vector<std::string> records;
  size_t torn_bytes = 0;  // after the last whole record
};

// A record: length (8 bytes), its masked CRC, data, the data's masked CRC; little-endian.
inline EventRecords read_records(std::string_view file) {
  EventRecords result;
  const auto number = [&](size_t at, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i) v |= uint64_t{static_cast<unsigned char>(file[at + i])} << 8 * i;
    return v;
  };
  const auto check = [&](size_t at, size_t bytes) {
    const uint32_t c = slow_crc32c(file.substr(at, bytes));
    if (number(at + bytes, 4) != static_cast<uint32_t>((c >> 15 | c << 17) + 0xa282ead8u))
      throw std::runtime_error("wrong checksum at byte " + std::to_string(at));
  };
  size_t at = 0;
  while (file.size() - at >= 12) {
    check(at, 8);
    const uint64_t length = number(at, 8);
    if (file.size() - at - 12 < length + 4) break;
    check(at + 12, length);
    result.records.emplace_back(file.substr(at + 12, length));
    at += 12 + length + 4;
  }
  result.torn_bytes = file.size() - at;
  return result;
}

struct Event {
  double wall_time;
  int64_t step;
  ProtoMessage fields;

  // The value of the event's summary.
  ProtoMessage value() const { return parse_proto(only(parse_proto(only(fields, 5).bytes), 1).bytes); }
  std::string tag() const { return only(value(), 1).bytes; }
};

// Fields of Event in event.proto: 1 wall_time, 2 step, 5 summary.
inline std::vector<Event> read_events(std::string_view file) {
  std::vector<Event> events;
  for (const std::string& r : read_records(file).records) {
    ProtoMessage fields = parse_proto(r);
    const int64_t step = fields.count(2) ? static_cast<int64_t>(only(fields, 2).number) : 0;
    events.push_back({only(fields, 1).f64(), step, std::move(fields)});
  }
  return events;
}

}  // namespace gradus::io
