// scaled_dot_product_attention beyond the op table: its kernels against the composed attention in f64 (that
// of attention_with_weights) for sizes around those of tiles and vectors, masks, layouts, dropout, higher
// derivatives; bits on several threads; memory.
#include <limits>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Tensors = std::vector<Tensor>;

Tensor f64(const Tensor& x) { return x.defined() && x.dtype() != DType::kBool ? raw::to(x, DType::kF64) : x; }
Tensors f64(const Tensors& xs) {
  Tensors all;
  for (const Tensor& x : xs) all.push_back(f64(x));
  return all;
}

Tensor fused(const Tensors& qkv, const AttentionOptions& o) {
  return scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], o);
}
Tensor composed(const Tensors& qkv, const AttentionOptions& o) {
  return attention_with_weights(qkv[0], qkv[1], qkv[2], o).output;
}

Tensor dy_of(const Shape& shape, DType dtype = DType::kF32) { return random_tensor(shape, dtype, 9); }

// Returns y and the gradients of q, k and v.
Tensors results(Tensor (*attention)(const Tensors&, const AttentionOptions&), const Tensors& qkv,
                const AttentionOptions& o) {
  const Tensor y = attention(qkv, o);
  Tensors all =
      autograd::grad([&](const Tensors& t) { return attention(t, o); }, qkv, dy_of(y.shape(), y.dtype()));
  all.push_back(y);
  return all;
}

// Expects the results of the kernels to be those of the composed attention in f64.
void expect_as_composed(const Tensors& qkv, const AttentionOptions& o, double tolerance = 2e-5) {
  SCOPED_TRACE(concat(describe(qkv[0]), ' ', describe(qkv[1]), ' ', describe(qkv[2]), " causal ", o.causal));
  AttentionOptions wide = o;
  wide.mask = f64(o.mask);
  const Tensors got = results(&fused, qkv, o), want = results(&composed, f64(qkv), wide);
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(i == 0 ? "dq" : i == 1 ? "dk" : i == 2 ? "dv" : "y");
    expect_near(f64(got[i]), want[i], tolerance);
  }
}

Tensors random_qkv(const Shape& q, const Shape& k, const Shape& v, DType dtype = DType::kF32) {
  return {random_tensor(q, dtype, 1), random_tensor(k, dtype, 2), random_tensor(v, dtype, 3)};
}
Tensors random_heads(int64_t heads, int64_t queries, int64_t keys, int64_t size) {
  return random_qkv({heads, queries, size}, {heads, keys, size}, {heads, keys, size});
}

// A bool mask that is true for three elements of four and for the first key.
Tensor random_mask(const Shape& shape) {
  Tensor m = gt(random_tensor(shape, DType::kF32, 5), -0.5);
  if (shape.back() > 1) fill_(narrow(m, -1, 0, 1), 1);
  return m;
}

TEST(Attention, FitsSizesAroundThoseOfTiles) {
  for (const bool causal : {false, true}) {
    for (int64_t queries : {1, 7, 63, 64, 65, 129})
      for (int64_t keys : {1, 7, 63, 64, 65, 127, 128, 129, 257})
        expect_as_composed(random_heads(2, queries, keys, 5), {.causal = causal});
    for (int64_t size : {1, 7, 15, 16, 17, 31, 32, 33, 64, 65})
      expect_as_composed(random_qkv({1, 9, size}, {1, 10, size}, {1, 10, 66 - size}), {.causal = causal});
  }
}

TEST(Attention, AppliesMasksThatBroadcast) {
  for (const bool causal : {false, true}) {
    for (const Shape& shape : {Shape{65, 131}, Shape{131}, Shape{2, 1, 1, 131}, Shape{3, 1, 131},
                               Shape{2, 3, 65, 131}, Shape{2, 1, 65, 131}, Shape{1}, Shape{65, 1}}) {
      const Tensors qkv = random_qkv({2, 3, 65, 8}, {2, 3, 131, 8}, {2, 3, 131, 4});
      expect_as_composed(qkv, {.mask = random_tensor(shape, DType::kF32, 5), .causal = causal});
      if (shape.back() > 1) expect_as_composed(qkv, {.mask = random_mask(shape), .causal = causal});
    }
  }
  const Tensors qkv = random_heads(2, 20, 30, 8);
  expect_as_composed(qkv, {.mask = transpose(random_tensor({30, 20}), 0, 1)});
  expect_as_composed(qkv, {.mask = transpose(random_mask({30, 20}), 0, 1)});
}

// A mask of large numbers instead of -infinity: its query attends to all keys alike.
TEST(Attention, KeepsItsBitsBesideLargeMasks) {
  for (const double masked : {-1e9, double(-std::numeric_limits<float>::max())}) {
    Tensor mask = zeros({20, 70});
    fill_(narrow(mask, 0, 3, 1), masked), fill_(narrow(mask, 1, 50, 20), masked);
    const Tensors qkv = random_heads(2, 20, 70, 8), got = results(&fused, qkv, {.mask = mask}),
                  want = results(&composed, qkv, {.mask = mask});
    for (size_t i = 0; i < want.size(); ++i) expect_near(f64(got[i]), f64(want[i]), 2e-5);
  }
}

TEST(Attention, TakesQueriesAndKeysWithoutElements) {
  expect_as_composed(random_qkv({2, 5, 0}, {2, 7, 0}, {2, 7, 3}), {.scale = 1});
}

TEST(Attention, ComputesOnOtherCpuDevices) {
  const Tensors qkv = random_heads(2, 9, 70, 8);
  Tensors there;
  for (const Tensor& x : qkv) there.push_back(to(x, Device{DeviceType::kCPU, 1}));
  const Tensors got = results(&fused, there, {.causal = true}), want = results(&fused, qkv, {.causal = true});
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>());
}

TEST(Attention, BroadcastsBatchDims) {
  expect_as_composed(random_qkv({2, 3, 9, 8}, {3, 10, 8}, {2, 1, 10, 4}), {});
  expect_as_composed(random_qkv({9, 8}, {3, 10, 8}, {2, 1, 10, 4}), {.causal = true});
  expect_as_composed(random_qkv({9, 8}, {10, 8}, {10, 4}), {});
}

TEST(Attention, ReadsAnyLayout) {
  // Heads as GPT splits them, transposed features, and every second row.
  const auto split = [](int64_t n, int64_t rows, int64_t heads, int64_t size) {
    Tensors qkv;
    for (const Tensor& x : chunk(random_tensor({n, rows, 3 * heads * size}), 3, -1))
      qkv.push_back(transpose(reshape(x, {n, rows, heads, size}), 1, 2));
    return qkv;
  };
  expect_as_composed(split(2, 70, 4, 8), {.causal = true});
  // Sizes of no vector, with keys in several groups and in one.
  expect_as_composed(split(1, 130, 2, 5), {});
  expect_as_composed(split(4, 130, 5, 7), {.causal = true});
  const auto by_columns = [](const Tensor& x) {
    return transpose(raw::contiguous(transpose(x, 1, 2)), 1, 2);
  };
  const Tensors rows = random_heads(2, 66, 66, 8);
  expect_as_composed({by_columns(rows[0]), by_columns(rows[1]), by_columns(rows[2])}, {});
  expect_as_composed({slice(rows[0], 1, 0, 66, 2), slice(rows[1], 1, 0, 66, 2), slice(rows[2], 1, 0, 66, 2)},
                     {});
}

// So that heads are joined by a view. q has a batch dim that broadcasts in the second case.
TEST(Attention, TheResultLiesAsTheQueriesDo) {
  const auto split = [](const Shape& shape) { return transpose(random_tensor(shape), 1, 2); };
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t n : {2, 1}) {
      Tensors qkv{split({n, 70, 4, 8}), split({2, 66, 4, 8}), split({2, 66, 4, 6})};
      for (Tensor& x : qkv) x = raw::to(x, dtype);
      const Tensor y = fused(qkv, {.causal = true});
      EXPECT_EQ(y.shape(), (Shape{2, 4, 70, 6}));
      EXPECT_TRUE(transpose(y, 1, 2).is_row_major()) << y.strides();
    }
  // Transposed matrices and row-major ones give row-major results.
  for (const Tensor& q : {transpose(random_tensor({2, 8, 70}), 1, 2), random_tensor({2, 70, 8})})
    EXPECT_TRUE(fused({q, random_tensor({2, 66, 8}), random_tensor({2, 66, 6})}, {}).is_row_major());
}

TEST(Attention, TakesAnyScale) {
  for (double scale : {-0.7, 0.0, 3.0}) expect_as_composed(random_heads(2, 20, 30, 8), {.scale = scale});
  // Scores up to 2,000: exponentials of differences to the maximum do not overflow.
  expect_as_composed(random_heads(1, 20, 30, 8), {.scale = 500}, 1e-2);
}

TEST(Attention, DropsTheWeightsThatDropoutDrops) {
  // In the last case two values share the weights.
  for (const Shape& shape : {Shape{2, 3, 70, 8}, Shape{1, 1, 3, 8}, Shape{2, 2, 131, 8}, Shape{70, 8}}) {
    for (double p : {0.1, 0.5, 1.0}) {
      const Shape values = shape.size() > 2 ? shape : Shape{2, 70, 8};
      const Tensors qkv = random_qkv(shape, shape, values);
      const AttentionOptions o{.causal = p == 0.1, .dropout = p};
      const auto seeded = [&](auto attention, const Tensors& xs) {
        const auto f = [&](const Tensors& t) {
          manual_seed(3);
          return attention(t, o);
        };
        Tensors all = autograd::grad(f, xs, dy_of(values, xs[0].dtype()));
        all.push_back(f(xs));
        return all;
      };
      const Tensors got = seeded(&fused, qkv), want = seeded(&composed, f64(qkv));
      for (size_t i = 0; i < want.size(); ++i) expect_near(f64(got[i]), want[i], 3e-5);
    }
  }
}

TEST(Attention, HasDerivativesOfItsDerivatives) {
  const auto second = [](auto attention, const Tensors& qkv, const AttentionOptions& o) {
    return autograd::grad(
        [&](const Tensors& t) {
          manual_seed(3);
          const Tensors g =
              autograd::grad([&](const Tensors& u) { return attention(u, o); }, {t[0], t[1], t[2]}, t[3]);
          return sum(square(g[0])) + sum(g[1] * t[1]) + sum(sin(g[2]));
        },
        qkv);
  };
  Tensors at = random_heads(2, 9, 70, 8);
  at.push_back(dy_of({2, 9, 8}));
  const Tensor mask = random_mask({9, 70});
  for (const AttentionOptions& o : {AttentionOptions{}, {.causal = true}, {.mask = mask}, {.dropout = 0.3}}) {
    const Tensors got = second(&fused, at, o), want = second(&composed, f64(at), o);
    for (size_t i = 0; i < at.size(); ++i) expect_near(f64(got[i]), want[i], 1e-4);
  }
}

TEST(Attention, AMaskMayHaveAGradient) {
  const Tensors qkv = random_heads(2, 9, 10, 8);
  const auto grad_of = [&](auto attention, const Tensors& xs, const Tensor& mask) {
    return autograd::grad([&](const Tensor& m) { return attention(xs, {.mask = m}); }, mask,
                          dy_of({2, 9, 8}, mask.dtype()));
  };
  const Tensor mask = random_tensor({9, 10}, DType::kF32, 5);
  expect_near(f64(grad_of(&fused, qkv, mask)), grad_of(&composed, f64(qkv), f64(mask)), 1e-5);
}

TEST(Attention, AQueryWithAllKeysMaskedGivesNaN) {
  Tensor mask = full({3, 70}, true, {.dtype = DType::kBool});
  fill_(narrow(mask, 0, 1, 1), 0);
  const auto y = fused(random_heads(1, 3, 70, 4), {.mask = mask}).to_vector<float>();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 4 == 1) << i;
}

TEST(Attention, NaNStaysInItsQuery) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tensors qkv = random_heads(1, 3, 70, 4);
  qkv[0].mutable_data<float>()[4] = nan;
  const auto y = fused(qkv, {}).to_vector<float>();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 4 == 1) << i;
}

TEST(Attention, RoundsSixteenBitFloatsOnce) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensors qkv = random_qkv({2, 66, 8}, {2, 70, 8}, {2, 70, 8}, dtype);
    const double tolerance = dtype == DType::kBF16 ? 0x1p-7 : 0x1p-10;
    for (const bool causal : {false, true})
      expect_as_composed(qkv, {.mask = random_tensor({66, 70}, dtype, 5), .causal = causal}, tolerance);
  }
}

TEST(Attention, GivesTheSameBitsForAnyNumberOfThreads) {
  const AttentionOptions options[] = {
      {}, {.causal = true}, {.mask = random_mask({300, 300}), .dropout = 0.2}};
  for (const AttentionOptions& o : options) {
    for (int64_t heads : {1, 3, 20}) {
      const Tensors qkv = random_heads(heads, 300, 300, 12);
      const auto bits = [&](int threads) {
        set_num_threads(threads);
        manual_seed(3);
        std::vector<std::vector<float>> all;
        for (const Tensor& x : results(&fused, qkv, o)) all.push_back(x.to_vector<float>());
        set_num_threads(1);
        return all;
      };
      const auto want = bits(1);
      for (int threads : {1, 2, 5}) EXPECT_EQ(bits(threads), want) << heads << " heads, " << threads;
    }
  }
}

TEST(Attention, StoresNoMatrixOfWeights) {
  const Tensors qkv = random_heads(8, 1024, 1024, 8);
  const PeakMemory peak;
  results(&fused, qkv, {.causal = true});
  EXPECT_LT(peak.added_bytes(), 8 * 1024 * 1024 * 4 / 4);
}

}  // namespace
}  // namespace gradus
