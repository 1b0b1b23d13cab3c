// Matrix products on cuda:0 beyond the op table: strides, batches, rounding, streams, failing calls, and the
// gradients of linear. Values are small integers whose sums are exact in each dtype, so results must equal the
// CPU's.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/cublas/cublaslt.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0"), kSecond = Device::parse("cuda:1");
constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

// Integers from -4 to 4, in an order without a pattern.
Tensor numbers(const Shape& shape, DType dtype = DType::kF32, uint32_t seed = 1) {
  std::vector<float> v(static_cast<size_t>(shape.product()));
  for (float& x : v)
    x = static_cast<float>(static_cast<int>((seed = seed * 1664525u + 1013904223u) >> 24) % 9 - 4);
  const Tensor flat = tensor(v, {shape.product()});
  return raw::to(view_as_strided(flat, shape, row_major_strides(shape), 0), dtype);
}
Tensor permuted(const Tensor& x, const std::vector<int>& order) {
  Shape shape;
  Strides strides;
  for (const int d : order) shape.push_back(x.size(d)), strides.push_back(x.stride(d));
  return view_as_strided(x, shape, strides, x.impl().offset);
}
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

struct CudaProducts : testing::Test {
  CudaProducts() { internal::DeviceAllocator::of(kCuda).disable_caching(true); }
  ~CudaProducts() override {
    internal::DeviceAllocator::of(kCuda).disable_caching(false);
    Context::current().tf32 = false;
  }
};

// Multiplies lay_out(a, b), a pair of views, on both devices.
template <class F> void expect_same(const Tensor& a, const Tensor& b, F&& lay_out, const std::string& what) {
  const auto [a_here, b_here] = lay_out(a, b);
  const auto [a_there, b_there] = lay_out(raw::to(a, kCuda), raw::to(b, kCuda));
  const Tensor here = raw::matmul(a_here, b_here), there = raw::matmul(a_there, b_there);
  EXPECT_EQ(there.device(), kCuda);
  EXPECT_EQ(there.shape(), here.shape()) << what;
  EXPECT_EQ(there.dtype(), here.dtype()) << what;
  EXPECT_EQ(values(there), values(here)) << what << " " << name_of(a.dtype());
}
const auto as_they_are = [](const Tensor& a, const Tensor& b) { return std::pair(a, b); };

TEST_F(CudaProducts, OrdersOfBothOperands) {
  for (const DType t : kFloats) {
    for (const auto [m, k, n] :
         {std::array{5, 3, 4}, {1, 7, 4}, {5, 1, 4}, {5, 3, 1}, {1, 1, 1}, {33, 40, 17}}) {
      const Tensor a = numbers({m, k}, t), b = numbers({k, n}, t, 2);
      expect_same(a, b, as_they_are, "as they are");
      expect_same(
          raw::contiguous(permuted(a, {1, 0})), b,
          [](const Tensor& x, const Tensor& y) {
            return std::pair(permuted(x, {1, 0}), y);
          },
          "a by columns");
      expect_same(
          a, raw::contiguous(permuted(b, {1, 0})),
          [](const Tensor& x, const Tensor& y) {
            return std::pair(x, permuted(y, {1, 0}));
          },
          "b by columns");
    }
  }
}

// Strides of dims of size 1 are arbitrary.
TEST_F(CudaProducts, SizesOf1) {
  const auto seen_as = [](const Tensor& x, const Shape& shape, const Strides& strides) {
    return view_as_strided(x, shape, strides, 0);
  };
  const Tensor a = numbers({40}), b = numbers({40}, DType::kF32, 2);
  expect_same(
      a, b,
      [&](const Tensor& x, const Tensor& y) {
        return std::pair(seen_as(x, {1, 4}, {1, 1}), seen_as(y, {4, 3}, {3, 1}));
      },
      "a row");
  expect_same(
      a, b,
      [&](const Tensor& x, const Tensor& y) {
        return std::pair(seen_as(x, {1, 4}, {2, 3}), seen_as(y, {4, 1}, {9, 7}));
      },
      "a row with gaps, a column with gaps");
  expect_same(
      a, b,
      [&](const Tensor& x, const Tensor& y) {
        return std::pair(seen_as(x, {4, 1}, {9, 7}), seen_as(y, {1, 4}, {1, 1}));
      },
      "outer product");
  expect_same(
      a, b,
      [&](const Tensor& x, const Tensor& y) {
        return std::pair(seen_as(x, {2, 1, 2, 3}, {7, 35, 3, 1}), seen_as(y, {2, 1, 3, 2}, {11, 1, 2, 1}));
      },
      "a batch of 2 and 1");
}

// Parts of larger tensors: leading dimensions larger than the rows, and addresses that are multiples of an
// element's size alone.
TEST_F(CudaProducts, PartsOfTensors) {
  for (const DType t : kFloats) {
    const Tensor a = numbers({7, 9}, t), b = numbers({9, 8}, t, 2);
    for (const int64_t skip : {1, 2, 3}) {
      expect_same(
          a, b,
          [=](const Tensor& x, const Tensor& y) {
            return std::pair(raw::narrow(raw::narrow(x, 1, skip, 5), 0, 1, 4),
                             raw::narrow(raw::narrow(y, 0, 2, 5), 1, skip, 4));
          },
          "parts");
      expect_same(
          a, b,
          [=](const Tensor& x, const Tensor& y) {
            return std::pair(permuted(raw::narrow(x, 1, skip, 5), {1, 0}), raw::narrow(y, 0, 1, 7));
          },
          "columns of a part");
    }
  }
}

TEST_F(CudaProducts, Batches) {
  using Pair = std::pair<Tensor, Tensor>;
  for (const DType t : {DType::kF32, DType::kBF16}) {
    const auto check = [&](const Shape& a, const Shape& b, auto lay_out, const char* what) {
      expect_same(numbers(a, t), numbers(b, t, 2), lay_out, what);
    };
    check({4, 3, 5}, {4, 5, 2}, as_they_are, "one batch dim");
    check({2, 4, 3, 5}, {2, 4, 5, 2}, as_they_are, "two that merge");
    check({3, 5}, {4, 5, 2}, as_they_are, "a for all");
    check({4, 3, 5}, {5, 2}, as_they_are, "b for all");
    check({2, 1, 3, 5}, {1, 4, 5, 2}, as_they_are, "each for all of the other's");
    check({2, 1, 3, 3, 5}, {4, 1, 5, 2}, as_they_are, "three");
    check({1, 1, 3, 5}, {1, 1, 5, 2}, as_they_are, "of one");
    check(
        {2, 3, 4, 5}, {2, 5, 4, 2},  // the layout of attention heads
        [](const Tensor& x, const Tensor& y) {
          return Pair(permuted(x, {0, 2, 1, 3}), permuted(y, {0, 2, 1, 3}));
        },
        "heads behind rows");
    check(
        {2, 3, 4, 5}, {4, 5, 6},
        [](const Tensor& x, const Tensor& y) {
          return Pair(permuted(x, {0, 2, 1, 3}), y);
        },
        "heads for all");
    check(
        {4, 3, 5}, {4, 5, 2},
        [](const Tensor& x, const Tensor& y) {
          return Pair(raw::narrow(x, 0, 1, 2), raw::narrow(y, 0, 2, 2));
        },
        "a part of the batch");
    check(
        {1, 3, 5}, {1, 5, 2},
        [](const Tensor& x, const Tensor& y) {
          const auto repeated = [](const Tensor& m) {
            return view_as_strided(m, {6, m.size(1), m.size(2)}, {0, m.stride(1), 1}, 0);
          };
          return Pair(repeated(x), repeated(y));
        },
        "the same six times");
  }
}

// Calls of the copy kernel, and the kernel that is replaced to count them.
int copies = 0;
decltype(raw::copy_kernel)::Function copy_before;

// Batches without one batch stride are copied once, rather than multiplied one by one.
TEST_F(CudaProducts, UnevenBatchesAreCopied) {
  const Tensor x = raw::to(numbers({2, 3, 4, 5}), kCuda), y = raw::to(numbers({2, 5, 4, 2}), kCuda);
  const Tensor one = raw::to(numbers({2, 1, 5, 2}), kCuda);
  const Tensor heads = permuted(x, {0, 2, 1, 3}), others = permuted(y, {0, 2, 1, 3});
  copy_before = raw::copy_kernel.cuda;
  raw::copy_kernel.cuda = [](const Tensor& dst, const Tensor& src) { ++copies, copy_before(dst, src); };
  const auto copies_of = [](const Tensor& a, const Tensor& b) {
    copies = 0;
    raw::matmul(a, b);
    return copies;
  };
  EXPECT_EQ(copies_of(x, permuted(x, {0, 1, 3, 2})), 0);
  EXPECT_EQ(copies_of(heads, others), 2);
  EXPECT_EQ(copies_of(heads, one), 1);  // broadcast matrices are not copied
  raw::copy_kernel.cuda = copy_before;
}

TEST_F(CudaProducts, BiasAndEmptySums) {
  for (const DType t : kFloats) {
    for (const int64_t in : {6, 0}) {
      const Tensor x = numbers({2, 3, in}, t), w = numbers({4, in}, t, 2), bias = numbers({4}, t, 3);
      const auto there = [](const Tensor& v) { return raw::to(v, kCuda); };
      EXPECT_EQ(values(raw::linear(there(x), there(w), there(bias))), values(raw::linear(x, w, bias)));
      EXPECT_EQ(values(raw::linear(there(x), there(w))), values(raw::linear(x, w)));
      EXPECT_EQ(values(raw::matmul_in_f32(there(x), there(raw::contiguous(permuted(w, {1, 0}))))),
                values(raw::matmul_in_f32(x, permuted(w, {1, 0}))));
    }
    EXPECT_EQ(raw::matmul(raw::to(numbers({0, 3}, t), kCuda), raw::to(numbers({3, 2}, t), kCuda)).numel(), 0);
    EXPECT_EQ(raw::matmul(raw::to(numbers({2, 3}, t), kCuda), raw::to(numbers({3, 0}, t), kCuda)).numel(), 0);
    EXPECT_EQ(raw::matmul(raw::to(numbers({0, 2, 3}, t), kCuda), raw::to(numbers({3, 2}, t), kCuda)).numel(),
              0);
  }
}

// 16-bit sums are rounded once: an algorithm that adds rounded parts would lose the 1.
TEST_F(CudaProducts, RoundOnce) {
  for (const auto& [t, large] : {std::pair(DType::kF16, 2048.f), {DType::kBF16, 256.f}}) {
    const auto row = [t = t](const std::vector<float>& v) {
      return raw::to(raw::to(tensor(v, {1, static_cast<int64_t>(v.size())}), t), kCuda);
    };
    const auto ones = [&](int64_t n) { return full({n, 1}, 1, {.dtype = t, .device = kCuda}); };
    EXPECT_EQ(values(raw::matmul(row({large, 1, -large, 0}), ones(4))), std::vector<double>{1}) << name_of(t);
    EXPECT_EQ(values(raw::matmul_in_f32(row({large, 1}), ones(2))), std::vector<double>{large + 1});
  }
}

TEST_F(CudaProducts, Tf32IsOffAtFirst) {
  const Tensor x = full({8, 8}, 1 + 0x1p-11f, {.device = kCuda}), one = full({8, 8}, 1, {.device = kCuda});
  const Tensor wide = raw::to(x, DType::kF64), wide_one = raw::to(one, DType::kF64);
  EXPECT_FALSE(Context::current().tf32);
  EXPECT_EQ(values(raw::matmul(x, one))[0], 8 + 0x1p-8);
  Context::current().tf32 = true;
  EXPECT_EQ(values(raw::matmul(x, one))[0], 8);
  EXPECT_EQ(values(raw::matmul(wide, wide_one))[0], 8 + 0x1p-8);
  const Tensor half = raw::to(one, DType::kBF16);
  EXPECT_EQ(values(raw::matmul(half, half))[0], 8);
  Context::current().tf32 = false;
  EXPECT_EQ(values(raw::matmul(x, one))[0], 8 + 0x1p-8);
}

// Computes the gradients of linear's weight and bias for operands on cuda:0, and compares them with a product and a
// sum on the CPU. Returns the device's calls.
cuda::HostCalls expect_weight_grad(const Tensor& dy, const Tensor& x, DType result) {
  const cuda::HostCallScope scope;
  const auto [dw, dbias] = raw::linear_weight_grad(dy, x, result);
  const cuda::HostCalls calls = scope.total();
  const Tensor left = permuted(raw::to(dy, kCPU), {1, 0}), right = raw::to(x, kCPU);
  const Tensor product = raw::matmul_in_f32(left, right);
  const std::string what =
      to_string(dy.shape()) + " " + to_string(x.shape()) + " " + std::string(name_of(dy.dtype()));
  EXPECT_EQ(dw.dtype(), result);
  EXPECT_EQ(dbias.dtype(), result);
  EXPECT_EQ(values(dw), values(raw::to(product, result))) << what;
  EXPECT_EQ(values(dbias), values(raw::to(raw::sum(left, {1}), result))) << what;
  return calls;
}

// One call of cuBLASLt computes both, where it has an algorithm for that.
TEST_F(CudaProducts, GradientsOfWeightAndBias) {
  for (const DType t : kFloats) {
    const auto there = [&](const Shape& shape, uint32_t seed) {
      return raw::to(numbers(shape, t, seed), kCuda);
    };
    for (const DType result : {t, size_of(t) == 2 ? DType::kF32 : t}) {
      // Rows, features of y, features of x.
      for (const auto [k, n, m] :
           {std::array{5, 3, 4}, {1, 3, 4}, {5, 1, 4}, {5, 3, 1}, {1, 1, 1}, {40, 17, 33}}) {
        const cuda::HostCalls calls = expect_weight_grad(there({k, n}, 1), there({k, m}, 2), result);
        EXPECT_EQ(calls.library_calls, 1);
        EXPECT_EQ(calls.launches + calls.copies_on_device, 0);
      }
      expect_weight_grad(there({0, 3}, 1), there({0, 4}, 2), result);
      expect_weight_grad(there({5, 0}, 1), there({5, 4}, 2), result);
      expect_weight_grad(there({5, 3}, 1), there({5, 0}, 2), result);
      // Rows with gaps; operands by columns, for which cuBLASLt has no algorithm, take a sum.
      const Tensor dy = there({5, 3}, 1), x = there({5, 4}, 2), wide = there({5, 9}, 3);
      const Tensor by_columns = permuted(raw::contiguous(permuted(wide, {1, 0})), {1, 0});
      EXPECT_EQ(expect_weight_grad(raw::narrow(wide, 1, 2, 3), raw::narrow(wide, 1, 4, 4), result).launches,
                0);
      EXPECT_GT(expect_weight_grad(dy, by_columns, result).launches, 0);
      EXPECT_GT(expect_weight_grad(by_columns, x, result).launches, 0);
    }
  }
  // tf32 rounds the operands of the product, not those of the sum.
  Context::current().tf32 = true;
  const Tensor dy = full({8, 8}, 1 + 0x1p-11f, {.device = kCuda}), one = full({8, 8}, 1, {.device = kCuda});
  const auto [dw, dbias] = raw::linear_weight_grad(dy, one, DType::kF32);
  EXPECT_EQ(values(dw)[0], 8);
  EXPECT_EQ(values(dbias)[0], 8 + 0x1p-8);
}

// The gradients of x, weight and bias, with each set of them attached.
TEST_F(CudaProducts, GradientsOfLinear) {
  for (const DType t : kFloats) {
    for (const Shape& shape : {Shape{4, 6}, Shape{2, 3, 6}, Shape{1, 6}, Shape{6}}) {
      Shape result = shape;
      result[result.size() - 1] = 3;
      const Tensor host[] = {numbers(shape, t), numbers({3, 6}, t, 2), numbers({3}, t, 3)};
      const Tensor dy = numbers(result, t, 4);
      for (int attached = 1; attached < 8; ++attached) {
        const auto gradients = [&](Device device) {
          std::vector<Tensor> x, leaves;
          for (int i = 0; i < 3; ++i) {
            x.push_back(raw::clone(raw::to(host[i], device)));
            if (attached >> i & 1) leaves.push_back(x.back());
          }
          GradManager gm;
          gm.attach(leaves);
          auto recording = gm.record();
          gm.backward(linear(x[0], x[1], x[2]), raw::to(dy, device));
          std::vector<std::vector<double>> all;
          for (const Tensor& leaf : leaves) all.push_back(values(leaf.grad()));
          return all;
        };
        EXPECT_EQ(gradients(kCuda), gradients(kCPU))
            << to_string(shape) << " " << name_of(t) << ", attached " << attached;
      }
    }
  }
}

// Under autocast the gradient of a bias in f32 stays in f32: 16 bits would round it to an even number.
TEST_F(CudaProducts, BiasGradientUnderAutocast) {
  for (const auto& [t, rows] : {std::pair(DType::kBF16, 257), {DType::kF16, 2049}}) {
    const auto there = [](const Shape& shape) { return full(shape, 1, {.device = kCuda}); };
    const Tensor x = there({rows, 2}), w = there({3, 2}), bias = there({3});
    GradManager gm;
    gm.attach({w, bias});
    auto recording = gm.record();
    const auto amp = autocast(t);
    const Tensor y = linear(x, w, bias);
    gm.backward(y, full({rows, 3}, 1, {t, kCuda}));
    EXPECT_EQ(w.grad().dtype(), DType::kF32);
    EXPECT_EQ(values(w.grad()), std::vector<double>(6, rows));
    EXPECT_EQ(values(bias.grad()), std::vector<double>(3, rows));
  }
}

// Gradients of a function of the gradients of weight, of bias, and of both.
TEST_F(CudaProducts, GradientsOfGradientsOfLinear) {
  const auto gradients = [](Device device, int used) {
    const Tensor x = raw::to(numbers({4, 3}), device), w = raw::to(numbers({2, 3}, DType::kF32, 2), device),
                 bias = raw::to(numbers({2}, DType::kF32, 3), device);
    GradManager gm;
    gm.attach({x, w, bias});
    auto recording = gm.record();
    const Tensor y = linear(x, w, bias);
    const std::vector<Tensor> first = autograd::grad(sum(y * y), {w, bias});
    Tensor total;
    for (size_t i = 0; i < 2; ++i) {
      if (!(used >> i & 1)) continue;
      const Tensor term = sum(first[i] * first[i]);
      total = total.defined() ? total + term : term;
    }
    gm.backward(total);
    std::vector<std::vector<double>> all;
    for (const Tensor& leaf : {x, w, bias}) all.push_back(values(leaf.grad()));
    return all;
  };
  for (const int used : {1, 2, 3}) EXPECT_EQ(gradients(kCuda, used), gradients(kCPU, used)) << used;
}

TEST_F(CudaProducts, TooLargeIsAnError) {
  const int64_t n = int64_t(1) << 31;
  const Tensor x = empty({1}, {.device = kCuda});
  const auto seen_as = [&](const Shape& shape) {
    return view_as_strided(x, shape, row_major_strides(shape), 0);
  };
  for (const auto& [a, b, out] : {std::array<Shape, 3>{Shape{n, 1}, {1, 1}, {n, 1}},
                                  {Shape{1, 1}, {1, n}, {1, n}},
                                  {Shape{1, n}, {n, 1}, {1, 1}},
                                  {Shape{n, 1, 1}, {n, 1, 1}, {n, 1, 1}}}) {
    try {
      raw::matmul_kernel(seen_as(out), seen_as(a), seen_as(b), {});
      ADD_FAILURE() << "no error for " << to_string(a);
    } catch (const ShapeError& e) {
      EXPECT_NE(std::string(e.what()).find("2147483647"), std::string::npos) << e.what();
    }
  }
}

TEST_F(CudaProducts, DevicesHaveTheirOwnHandles) {
  const Tensor a = numbers({3, 4}), b = numbers({4, 2}, DType::kF32, 2);
  for (const Device d : {kSecond, kCuda, kSecond}) {
    const Tensor there = raw::matmul(raw::to(a, d), raw::to(b, d));
    EXPECT_EQ(there.device(), d);
    EXPECT_EQ(values(there), values(raw::matmul(a, b)));
  }
}

// Work of two streams, in many orders: workspaces are not shared, and freed operands stay valid until used.
TEST_F(CudaProducts, Streams) {
  internal::DeviceAllocator::of(kCuda).disable_caching(false);
  const Tensor a = numbers({6, 4}), b = numbers({4, 5}, DType::kF32, 2);
  const std::vector<double> want = values(raw::matmul(a, b));
  const Tensor a_there = raw::to(a, kCuda), b_there = raw::to(b, kCuda);
  const Stream side = Stream::create(kCuda);
  const uint64_t before = cuda::emulated::seed();
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    cuda::emulated::set_seed(seed);
    Tensor here[4], beside[4];
    for (int i = 0; i < 4; ++i) {
      here[i] = raw::matmul(a_there, b_there);
      Tensor freed_a = raw::clone(a_there), freed_b = raw::clone(b_there);
      side.wait(Event::record(current_stream(kCuda)));
      {
        const StreamScope scope(side);
        beside[i] = raw::matmul(freed_a, freed_b);
      }
      freed_a = full(a.shape(), 7, {.device = kCuda}), freed_b = full(b.shape(), 7, {.device = kCuda});
    }
    current_stream(kCuda).wait(Event::record(side));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(values(here[i]), want);
      EXPECT_EQ(values(beside[i]), want);
    }
  }
  cuda::emulated::set_seed(before);
}

TEST_F(CudaProducts, EachCallMayFail) {
  const Tensor a = raw::to(numbers({3, 4}), kSecond), b = raw::to(numbers({4, 2}), kSecond);
  const std::vector<double> want = values(raw::matmul(a, b));
  synchronize(kSecond);
  const auto held = [] { return memory_stats(kSecond).live_bytes; };
  const int64_t before = held();
  std::set<std::string> calls;
  bool passed = false;
  for (int64_t n = 0; !passed; ++n) {
    ASSERT_LT(n, 100);
    cuda::emulated::fail_call(n, cudaErrorInvalidValue);
    try {
      const Tensor y = raw::matmul(a, b);
      cuda::emulated::fail_call(-1, cudaSuccess);
      EXPECT_EQ(values(y), want);
      passed = calls.contains("cublasLtMatmul");
    } catch (const cuda::CublasError& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.op(), "matmul");
      EXPECT_NE(e.status, CUBLAS_STATUS_SUCCESS);
      EXPECT_NE(text.find("CUBLAS_STATUS_"), std::string::npos) << text;
      const size_t end = text.find(" failed"), begin = text.rfind(' ', end - 1) + 1;
      calls.insert(text.substr(begin, end - begin));
    } catch (const cuda::CudaError&) {
    }
    cuda::emulated::fail_call(-1, cudaSuccess);
    synchronize(kSecond);
    EXPECT_EQ(held(), before) << "after a failure of call " << n;
  }
  EXPECT_TRUE(calls.contains("cublasLtMatmulAlgoGetHeuristic"));
  EXPECT_EQ(values(raw::matmul(a, b)), want);
}

}  // namespace
}  // namespace gradus
