// Errors of masks and repetition on cuda:0 are the CPU's, thrown where the host next waits. Ops whose sizes are known
// wait for nothing; those whose sizes values decide wait once. Concatenations: elements, layouts, launches.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/arrange.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0");

Tensor integers(const std::vector<int64_t>& v, Device device) {
  return raw::to(tensor(v, {static_cast<int64_t>(v.size())}), device);
}
Tensor mask(const std::vector<int64_t>& v, Device device) {
  return raw::to(integers(v, device), DType::kBool);
}

// The text of the ValueError of f, "" for none.
std::string thrown(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const ValueError& e) {
    return e.what();
  }
}

TEST(ArrangeOnCuda, ErrorsAreTheCpus) {
  const std::vector<std::function<Tensor(Device)>> programs = {
      [](Device d) {
        return raw::repeat_index(integers({2, 1, -3, -4}, d), 3);
      },
      [](Device d) {
        return raw::repeat_index(integers({2, 1}, d), 4);
      },
      [](Device d) { return raw::repeat_index(integers({}, d), 4); },
      [](Device d) {
        return raw::repeat_index(integers({1, INT64_MAX, INT64_MAX, 2}, d), 3);
      },
      [](Device d) {
        return raw::masked_select_into(integers({1, 2, 3}, d), mask({1, 0, 1}, d), {1});
      },
      [](Device d) {
        return raw::masked_scatter(integers({1, 2, 3}, d), mask({1, 1, 1}, d), integers({4, 5}, d), {3});
      },
  };
  for (size_t i = 0; i < programs.size(); ++i) {
    const std::string want = thrown([&] { programs[i](kCPU); });
    EXPECT_NE(want, "") << i;
    EXPECT_EQ(thrown([&] { programs[i](kCuda); }), "") << i;
    EXPECT_EQ(thrown([] { synchronize(kCuda); }), want) << i;
  }
}

int64_t waits_of(const std::function<void()>& f) {
  f();  // fills the allocator's cache
  cuda::HostCallScope calls;
  f();
  return calls.total().waits;
}

TEST(ArrangeOnCuda, OnlyUnknownSizesWait) {
  const Tensor x = raw::to(integers(std::vector<int64_t>(600, 3), kCuda), DType::kF32);
  const Tensor image = reshape(x, {1, 6, 10, 10}), all = mask(std::vector<int64_t>(600, 1), kCuda);
  EXPECT_EQ(waits_of([&] { raw::masked_scatter(x, all, x, {600}); }), 0);
  EXPECT_EQ(waits_of([&] { raw::repeat_index(integers({2, 3}, kCuda), 5); }), 0);
  EXPECT_EQ(waits_of([&] { tril(reshape(x, {20, 30})), sort(x), cumsum(x, 0), group_norm(image, 2); }), 0);
  EXPECT_EQ(waits_of([&] { pad(image, {2, 3, 1, 4}, {.mode = PadMode::kReflect}); }), 0);
  EXPECT_EQ(waits_of([&] { raw::nonzero(all); }), 1);
  EXPECT_EQ(waits_of([&] { raw::masked_select(x, all); }), 1);
  EXPECT_EQ(waits_of([&] { unique(x); }), 1);
}

// Operands without elements take no launch, those of another dtype one each.
TEST(ArrangeOnCuda, ConcatenationTakesALaunchForEach15Operands) {
  for (const bool is_channels_last : {false, true})
    for (const int64_t dim : {0, 1, 3})
      for (const int64_t count : {2, 3, 15, 16, 31})
        for (const int64_t others : {0, 2}) {
          std::vector<Tensor> xs;
          for (int64_t i = 0; i < count + others; ++i) {
            Shape shape{2, 3, 2, 4};
            shape[int(dim)] = 2 + i % 3;
            const Tensor x = random_tensor(shape, i < count ? DType::kF32 : DType::kBF16, uint64_t(i));
            xs.push_back(is_channels_last ? raw::channels_last(x) : x);
          }
          if (!is_channels_last) xs.insert(xs.begin() + 1, raw::narrow(xs[0], dim, 0, 0));
          const Tensor want = cat(xs, dim);
          for (Tensor& x : xs) x = raw::to(x, kCuda);
          const cuda::HostCallScope calls;
          const Tensor got = cat(xs, dim);
          EXPECT_EQ(calls.total().launches, (count + 14) / 15 + others) << calls.table();
          EXPECT_EQ(calls.total().copies_on_device, 0);
          EXPECT_EQ(got.strides(), want.strides());
          EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>()) << count << " along " << dim;
        }
}

}  // namespace
}  // namespace gradus
