// hashes_of on cuda:0: the values are the CPU's, for all dtypes, layouts, sizes and addresses, and change with each bit.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus {
namespace {

using Tensors = std::vector<Tensor>;
const Device kCuda = Device::parse("cuda:0");

std::vector<int64_t> hashes(const Tensors& xs) { return raw::hashes_of(xs).to_vector<int64_t>(); }
// Bytes of all values.
Tensor bytes(int64_t n) {
  std::vector<uint8_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(uint8_t(i * i + i / 7));
  return tensor(values, {n});
}
std::vector<int64_t> hashes_on_cuda(const Tensors& xs) {
  Tensors on_cuda;
  for (const Tensor& x : xs) on_cuda.push_back(raw::to(x, kCuda));
  return hashes(on_cuda);
}

// The first outputs of SplitMix64 with seed 0.
TEST(Hash, OfZerosIsASumOfSplitMix64) {
  const uint64_t first = 0xe220a8397b1dcdaf, second = 0x6e789e6aa1b965f4;
  const Tensors xs = {zeros({1}, {.dtype = DType::kI64}), zeros({2}, {.dtype = DType::kI64})};
  const std::vector<int64_t> want = {int64_t(first), int64_t(first + second)};
  EXPECT_EQ(hashes(xs), want);
  EXPECT_EQ(hashes_on_cuda(xs), want);
}

// Around the bytes of a word, of a block's threads and of a chunk; each byte of a word may be the first of a tensor.
TEST(HashOnCuda, IsTheCpusForAllSizesAndAddresses) {
  Tensors xs, on_cuda;
  for (const int64_t n : {0, 1, 7, 8, 9, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 20'000})
    for (int64_t from = 0; from < 9; ++from) {
      xs.push_back(narrow(bytes(n + 9), 0, from, n));
      on_cuda.push_back(narrow(raw::to(bytes(n + 9), kCuda), 0, from, n));
    }
  EXPECT_EQ(hashes(on_cuda), hashes(xs));
}

TEST(HashOnCuda, IsTheCpusForAllDTypesAndLayouts) {
  Tensors xs, on_cuda;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32,
                            DType::kI16, DType::kI8, DType::kU8, DType::kBool})
    for (const auto& layout : std::vector<Tensor (*)(const Tensor&)>{
             [](const Tensor& x) { return x; }, [](const Tensor& x) { return transpose(x, 0, 3); },
             [](const Tensor& x) { return raw::channels_last(x); },
             [](const Tensor& x) { return slice(x, 3, 1, 5, 2); },
             [](const Tensor& x) { return narrow(x, 0, 1, 1); },
             [](const Tensor& x) {
               return expand(narrow(x, 1, 0, 1), {2, 3, 4, 5});
             }}) {
      const Tensor x = raw::to(randn({2, 3, 4, 5}) * 3, dtype);
      xs.push_back(layout(x));
      on_cuda.push_back(layout(raw::to(x, kCuda)));
      EXPECT_EQ(hashes({on_cuda.back()}), hashes({raw::contiguous(on_cuda.back())})) << dtype;
    }
  EXPECT_EQ(hashes(on_cuda), hashes(xs));
}

// More tensors than a table of one launch has, some empty: each has its hash.
TEST(HashOnCuda, OfManyTensorsIsOneWait) {
  Tensors xs, on_cuda;
  for (int64_t i = 0; i < 300; ++i) xs.push_back(bytes(i % 40)), on_cuda.push_back(raw::to(xs.back(), kCuda));
  const std::vector<int64_t> want = hashes(xs);
  EXPECT_EQ(hashes(on_cuda), want);
  cuda::HostCallScope calls;
  EXPECT_EQ(hashes(on_cuda), want);
  EXPECT_EQ(calls.total().waits, 1);
  EXPECT_EQ(calls.total().copies_to_host, 1);
  EXPECT_EQ(calls.total().bytes_to_host, 300 * 8);
  EXPECT_LE(calls.total().launches, 4);
}

// All hashes of tensors that differ in one bit, in the places of two elements, or in two signs, are different.
TEST(HashOnCuda, SeesEachBitAndPlace) {
  std::vector<double> values;
  for (int i = 0; i < 70; ++i) values.push_back(i % 3 ? 1.5 : 0);
  Tensors xs = {tensor(values)};
  const auto add = [&](auto&& change) {
    const Tensor x = tensor(values);
    change(static_cast<uint64_t*>(x.raw_ptr()));
    xs.push_back(raw::to(x, kCuda));
  };
  constexpr uint64_t kSign = uint64_t(1) << 63;
  for (int bit = 0; bit < 70 * 64; bit += bit < 128 ? 1 : 37)
    add([=](uint64_t* x) { x[bit / 64] ^= uint64_t(1) << bit % 64; });
  for (int i = 0; i < 70; ++i)
    for (int j = i + 1; j < 70; j += 5) {
      add([=](uint64_t* x) { x[i] ^= kSign, x[j] ^= kSign; });
      if (i % 3 == 0 && j % 3) add([=](uint64_t* x) { std::swap(x[i], x[j]); });
    }
  xs[0] = raw::to(xs[0], kCuda);
  const std::vector<int64_t> all = hashes(xs);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), xs.size());
}

TEST(Hash, RefusesTensorsOfTwoDevices) {
  EXPECT_THROW(raw::hashes_of({ones({1}), ones({1}, {.device = kCuda})}), DeviceError);
}

}  // namespace
}  // namespace gradus
