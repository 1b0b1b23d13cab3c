// to_wire and from_wire, the encoding of values and tensors in messages: round trips, and StoreError for
// truncated, oversized and malformed bytes before any large allocation.
#include "gradus/distributed/base/wire.h"

#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"

namespace gradus::dist {
namespace {

template <class T> void expect_round_trip(const T& value) { EXPECT_EQ(from_wire<T>(to_wire(value)), value); }

enum class Color : uint8_t { kRed, kBlue };

TEST(Wire, CarriesValues) {
  expect_round_trip(42);
  expect_round_trip(-1.5);
  expect_round_trip(true);
  expect_round_trip(Color::kBlue);
  expect_round_trip(std::string("a\0b", 3));
  expect_round_trip(std::vector<std::string>{"", "x"});
  expect_round_trip(Shape());
  expect_round_trip(Shape({2, 0, 3}));
  expect_round_trip(std::vector<std::pair<int64_t, std::vector<bool>>>{{1, {true, false}}, {2, {}}});
}

TEST(Wire, CarriesTensors) {
  const Tensor x = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  for (const Tensor& y :
       {x, transpose(x, 0, 1), empty({0, 4}), to(x, DType::kBF16), to(x, DType::kI64), scalar(7)}) {
    const Tensor back = from_wire<Tensor>(to_wire(y));
    EXPECT_EQ(describe(back), describe(contiguous(y)));
    EXPECT_EQ(back.to_vector<double>(), y.to_vector<double>());
  }
  EXPECT_FALSE(from_wire<Tensor>(to_wire(Tensor())).defined());
  EXPECT_EQ(from_wire<std::vector<Tensor>>(to_wire(std::vector<Tensor>{x, Tensor()})).size(), 2u);
}

// A class with a wire form of its own.
struct Named {
  std::string name;
  Tensor values;
  void put(WireWriter& writer) const { writer.put(name, values); }
  void get(WireReader& reader) { reader.get(name, values); }
};
struct Point {
  int x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
};

TEST(Wire, KeepsContainersAndClasses) {
  const std::map<std::string, std::vector<int>> map = {{"a", {1, 2}}, {"b", {}}};
  EXPECT_EQ((from_wire<std::map<std::string, std::vector<int>>>(to_wire(map))), map);
  const std::tuple tuple(7, std::string("text"), 2.5);
  EXPECT_EQ((from_wire<std::tuple<int, std::string, double>>(to_wire(tuple))), tuple);
  EXPECT_EQ(from_wire<std::optional<std::string>>(to_wire(std::optional<std::string>())), std::nullopt);
  EXPECT_EQ(from_wire<std::optional<std::string>>(to_wire(std::optional<std::string>("x"))), "x");
  const std::vector<Point> points = {{1, 2.5}, {-3, 0}};
  EXPECT_EQ(from_wire<std::vector<Point>>(to_wire(points)), points);
  const Named named = from_wire<Named>(to_wire(Named{"weights", tensor(std::vector<float>{1, 2}, {2})}));
  EXPECT_EQ(named.name, "weights");
  EXPECT_EQ(named.values.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(Wire, RefusesMapsOutOfOrder) {
  using Pairs = std::vector<std::pair<int, int>>;
  using Map = std::map<int, int>;
  EXPECT_EQ(from_wire<Map>(to_wire(Pairs{{1, 5}, {2, 6}})), (Map{{1, 5}, {2, 6}}));
  EXPECT_THROW(from_wire<Map>(to_wire(Pairs{{2, 6}, {1, 5}})), StoreError);
  EXPECT_THROW(from_wire<Map>(to_wire(Pairs{{1, 5}, {1, 6}})), StoreError);
}

TEST(Wire, RefusesTruncatedBytes) {
  const auto refuse = []<class T>(const T& value) {
    const std::string bytes = to_wire(value);
    for (size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(from_wire<T>(bytes.substr(0, n)), StoreError) << n;
    EXPECT_THROW(from_wire<T>(bytes + "x"), StoreError);
  };
  refuse(7);
  refuse(std::string("text"));
  refuse(Shape({2, 3}));
  refuse(std::vector<std::pair<int, std::string>>{{1, "a"}, {2, "b"}});
  refuse(tensor(std::vector<float>{1, 2, 3}, {3}));
  refuse(std::map<int, std::string>{{1, "a"}, {2, "b"}});
  refuse(std::optional<int>(1));
  refuse(Point{1, 2});
  refuse(Named{"n", tensor(std::vector<float>{1}, {1})});
}

TEST(Wire, RefusesAbsurdSizes) {
  WireWriter huge;
  huge.put(uint64_t(1) << 60);
  const std::string bytes = huge.release();
  EXPECT_THROW(from_wire<std::string>(bytes), StoreError);
  EXPECT_THROW(from_wire<std::vector<int>>(bytes), StoreError);
  EXPECT_THROW((from_wire<std::map<int, int>>(bytes)), StoreError);
  EXPECT_THROW(from_wire<Shape>(to_wire(uint8_t(kMaxDims + 1)) + std::string(8 * (kMaxDims + 1), 'x')),
               StoreError);
}

// An encoded tensor. `kind`: 0 undefined, 1 defined; `payload`: number of bytes of elements.
std::string tensor_bytes(uint8_t kind, uint8_t dtype, const std::vector<int64_t>& dims, size_t payload) {
  WireWriter writer;
  writer.put(kind);
  writer.put(dtype);
  writer.put(uint8_t(dims.size()));
  for (int64_t size : dims) writer.put(size);
  return writer.release() + std::string(payload, '\2');
}

TEST(Wire, RefusesMalformedTensors) {
  const auto f32 = uint8_t(DType::kF32);
  EXPECT_EQ(from_wire<Tensor>(tensor_bytes(1, f32, {2}, 8)).numel(), 2);
  const std::string malformed[] = {
      tensor_bytes(2, f32, {2}, 8),                                   // no such kind
      tensor_bytes(1, 10, {2}, 8),                                    // no such dtype
      tensor_bytes(1, f32, {-2}, 8),                                  // negative size
      tensor_bytes(1, f32, {3}, 8),                                   // too few bytes
      tensor_bytes(1, f32, {1}, 8),                                   // too many bytes
      tensor_bytes(1, f32, std::vector<int64_t>(9, 1), 4),            // too many dims
      tensor_bytes(1, f32, {int64_t(1) << 62, 4}, 8),                 // overflows
      tensor_bytes(1, f32, {int64_t(1) << 40, int64_t(1) << 40}, 8),  // overflows to 0
      tensor_bytes(1, f32, {0, int64_t(1) << 40, int64_t(1) << 40}, 0),
      tensor_bytes(1, uint8_t(DType::kBool), {2}, 2),  // neither true nor false
  };
  for (const std::string& bytes : malformed) EXPECT_THROW(from_wire<Tensor>(bytes), StoreError);
  EXPECT_THROW(from_wire<bool>("\2"), StoreError);
}

TEST(Wire, SaysWhereATensorMustBe) {
  EXPECT_THROW(to_wire(empty({1}, {.device = Device::parse("meta")})), DeviceError);
}

}  // namespace
}  // namespace gradus::dist
