// Copies, element-wise ops and sums of a tensor of more than 2^31 elements. On a device of less than 24 GB,
// such as the emulated one, the tensor is smaller.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};

Tensor at(const Tensor& x, int64_t position) { return view_as_strided(x, {1}, {1}, position); }
double value(const Tensor& x, int64_t position) { return at(x, position).to_vector<double>()[0]; }

TEST(LargeTensors, AreComputedToTheirEnds) {
  const bool is_large = internal::runtime_of(kCuda).properties(0).memory_bytes > int64_t{24} << 30;
  const int64_t step = is_large ? int64_t{1} << 30 : int64_t{1} << 12, count = 2 * step + 5003;
  if (!is_large) std::puts("memory is short: with fewer elements");
  // Zeros, but at the ends and around multiples of 2^30.
  std::vector<int64_t> places;
  for (int64_t i = 0; i <= 2; ++i)
    for (const int64_t near : {-1, 0, 1})
      if (i * step + near >= 0) places.push_back(i * step + near);
  places.push_back(count - 1);
  const Tensor x = zeros({count}, {DType::kF16, kCuda});
  double total = 0;
  for (size_t k = 0; k < places.size(); ++k)
    raw::fill_(at(x, places[k]), double(k + 1)), total += double(k + 1);
  EXPECT_EQ(sum(x).item<double>(), total) << "a sum";

  const Tensor copy = raw::clone(x);
  EXPECT_EQ(sum(copy).item<double>(), total) << "a copy";
  const Tensor y = copy * 3.0;
  EXPECT_EQ(sum(y).item<double>(), 3 * total) << "element by element";
  for (size_t k = 0; k < places.size(); ++k) {
    EXPECT_EQ(value(copy, places[k]), double(k + 1)) << places[k];
    EXPECT_EQ(value(y, places[k]), 3 * double(k + 1)) << places[k];
  }
  // Every second element: offsets go beyond 2^31, counts do not.
  raw::copy_(view_as_strided(y, {count / 2}, {2}, 0), view_as_strided(x, {count / 2}, {2}, 1));
  for (size_t k = 0; k < places.size(); ++k) {
    const int64_t place = places[k];
    if (place % 2 == 1) {
      EXPECT_EQ(value(y, place - 1), double(k + 1)) << place;
    }
  }
  // The sum over rows, then over its columns.
  const int64_t rows = 4, columns = count / rows;
  const Tensor sums = sum(view_as_strided(copy, {rows, columns}, {columns, 1}, 0), {0});
  double of_columns = 0;
  for (const int64_t place : places)
    if (place < rows * columns) of_columns += value(copy, place);
  EXPECT_EQ(sum(sums).item<double>(), of_columns);
}

}  // namespace
}  // namespace gradus
