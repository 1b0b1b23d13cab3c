// Serialization of values to bytes, between ranks of one program: numbers, enums, strings, Shapes, Tensors, and
// vectors, maps, pairs, tuples and optionals of these. Also aggregates that are trivially copyable, which must
// not contain pointers, and classes with the members
//
//   void put(dist::WireWriter& writer) const { writer.put(name, weights); }
//   void get(dist::WireReader& reader) { reader.get(name, weights); }  // the class has a default constructor
//
// Tensors of any device arrive in host memory. Numbers, enums and aggregates are copied as they are in memory,
// so all ranks need the same build and byte order. Strings, vectors and maps begin with their size as u64.
// Types are not stored: a reader gets the types that the writer put, in the same order.
#pragma once

#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/distributed/base/error.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist {

class WireWriter;
class WireReader;

// A class with the members put and get.
template <class T>
concept HasWireForm = requires(const T& from, T& to, WireWriter& writer, WireReader& reader) {
  from.put(writer);
  to.get(reader);
};
// A type whose bytes in memory are its wire form.
template <class T>
concept PlainBytes =
    std::is_arithmetic_v<T> || std::is_enum_v<T> ||
    (std::is_class_v<T> && std::is_aggregate_v<T> && std::is_trivially_copyable_v<T> && !HasWireForm<T>);

// Appends values to a buffer.
class WireWriter {
 public:
  template <PlainBytes T> void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <HasWireForm T> void put(const T& value) { value.put(*this); }
  void put(std::string_view value) {
    put(uint64_t(value.size()));
    bytes_.append(value);
  }
  void put(const std::string& value) { put(std::string_view(value)); }
  void put(const Dims& value);
  // Writes dtype, shape and elements in row-major order, without strides and gradients; may be undefined.
  // Blocks until the tensor's device has written it.
  // Errors: DeviceError for a meta tensor.
  void put(const Tensor& value);
  template <class T> void put(const std::vector<T>& values) {
    put(uint64_t(values.size()));
    for (const T& v : values) put(v);
  }
  template <class A, class B> void put(const std::pair<A, B>& value) { put(value.first, value.second); }
  template <class... T> void put(const std::tuple<T...>& values) {
    std::apply([this](const T&... v) { (put(v), ...); }, values);
  }
  template <class T> void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class K, class V> void put(const std::map<K, V>& values) {
    put(uint64_t(values.size()));
    for (const auto& [key, value] : values) put(key, value);
  }
  template <class A, class B, class... More> void put(const A& a, const B& b, const More&... more) {
    put(a);
    put(b);
    (put(more), ...);
  }
  // Returns the bytes. The writer must not be used afterward.
  std::string release() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads values from a buffer that the caller keeps alive.
// Errors: StoreError if bytes are missing, or for a size beyond the remaining bytes, before memory is
// allocated for it. Enumerators are not checked. Surplus bytes are no error here, only in from_wire.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : remaining_(bytes) {}
  template <PlainBytes T> void get(T& value) {
    std::memcpy(&value, read_bytes(sizeof value).data(), sizeof value);
  }
  template <HasWireForm T> void get(T& value) { value.get(*this); }
  void get(bool& value) {
    uint8_t byte;
    get(byte);
    if (byte > 1) throw_malformed();
    value = byte;
  }
  // `value` points into the buffer.
  void get(std::string_view& value) {
    uint64_t size;
    get(size);
    value = read_bytes(size);
  }
  void get(std::string& value) {
    std::string_view text;
    get(text);
    value = text;
  }
  void get(Dims& value);
  // Makes a new row-major tensor in host memory, or an undefined one.
  void get(Tensor& value);
  template <class T> void get(std::vector<T>& values) { get_at_most(~uint64_t(0), values); }
  // As get. Errors: StoreError for more than max_size elements.
  template <class T> void get_at_most(uint64_t max_size, std::vector<T>& values) {
    uint64_t size;
    get(size);
    if (size > max_size || size > remaining_.size()) throw_malformed();  // an element has at least one byte
    values.clear();
    for (uint64_t i = 0; i < size; ++i) {
      T value{};
      get(value);
      values.push_back(std::move(value));
    }
  }
  template <class A, class B> void get(std::pair<A, B>& value) { get(value.first, value.second); }
  template <class... T> void get(std::tuple<T...>& values) {
    std::apply([this](T&... v) { (get(v), ...); }, values);
  }
  template <class T> void get(std::optional<T>& value) {
    bool has_value;
    get(has_value);
    value.reset();
    if (has_value) get(value.emplace());
  }
  // Errors: StoreError also for a key that is not greater than the one before.
  template <class K, class V> void get(std::map<K, V>& values) {
    std::vector<std::pair<K, V>> all;
    get(all);
    values.clear();
    for (auto& [key, value] : all) {
      const size_t before = values.size();
      const auto at = values.emplace_hint(values.end(), std::move(key), std::move(value));
      if (values.size() == before || std::next(at) != values.end()) throw_malformed();
    }
  }
  template <class A, class B, class... More> void get(A& a, B& b, More&... more) {
    get(a);
    get(b);
    (get(more), ...);
  }
  // Returns the number of bytes that have not been read.
  size_t remaining() const { return remaining_.size(); }
  // Returns the next bytes, which point into the buffer.
  std::string_view read_bytes(uint64_t bytes) {
    if (bytes > remaining_.size()) throw_malformed();
    const std::string_view taken = remaining_.substr(0, bytes);
    remaining_.remove_prefix(bytes);
    return taken;
  }
  [[noreturn]] static void throw_malformed() {
    throw StoreError("from_wire", -1, "malformed bytes: truncated, too long, or of another type");
  }

 private:
  std::string_view remaining_;
};

// Returns the bytes of one value.
template <class T> std::string to_wire(const T& value) {
  WireWriter writer;
  writer.put(value);
  return writer.release();
}
// Returns the value of to_wire's bytes.
// Errors: StoreError, also for surplus bytes.
template <class T> T from_wire(std::string_view bytes) {
  WireReader reader(bytes);
  T value{};
  reader.get(value);
  if (reader.remaining()) WireReader::throw_malformed();
  return value;
}

}  // namespace gradus::dist
