// Random ops on cuda:0 give the bits of the CPU for the same seed, in every dtype and layout; invalid weights
// and probabilities are reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus {
namespace {

constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

Device cuda() { return Device::parse("cuda:0"); }

std::string bits(const Tensor& x) {
  const Tensor here = raw::contiguous(raw::to(x, kCPU));
  return {static_cast<const char*>(here.raw_ptr()), static_cast<size_t>(here.nbytes())};
}

// Calls draw(device) with the same seed for both devices.
template <class F> void expect_same(const std::string& what, F draw) {
  manual_seed(0x123456789abcdef0);
  const Tensor want = draw(kCPU);
  manual_seed(0x123456789abcdef0);
  const Tensor got = draw(cuda());
  EXPECT_EQ(to_string(got.device()), "cuda:0") << what;
  EXPECT_EQ(to_string(got.strides()), to_string(want.strides())) << what;
  EXPECT_TRUE(bits(got) == bits(want)) << what;
}

TEST(RandomOnCuda, NumbersAreTheCpus) {
  for (const int64_t n : {0, 1, 7, 1000, 20001}) {
    const std::string of = " of " + std::to_string(n);
    for (const DType t : kFloats) {
      const std::string name = std::string(name_of(t)) + of;
      expect_same("rand, " + name, [&](Device d) { return rand({n}, {t, d}); });
      expect_same("randn, " + name, [&](Device d) { return randn({n}, {t, d}); });
      expect_same("normal, " + name, [&](Device d) { return normal(3, 0.1, {n}, {t, d}); });
      expect_same("uniform_, " + name, [&](Device d) {
        const Tensor x = empty({n}, {t, d});
        raw::uniform_(x, -2, 3);
        return x;
      });
      expect_same("bernoulli, " + name, [&](Device d) { return bernoulli(raw::to(rand({n}, {t}), d)); });
    }
    for (const DType t : {DType::kI64, DType::kI32, DType::kU8, DType::kF32})
      expect_same("randint, " + std::string(name_of(t)) + of, [&](Device d) {
        return randint(3, 100, {n}, {t, d});
      });
    expect_same("randperm" + of, [&](Device d) { return randperm(n, {DType::kI64, d}); });
    for (const double p : {0., 0.3, 1.}) {
      expect_same("bernoulli_mask" + of,
                  [&](Device d) { return raw::bernoulli_mask(empty({n}, {.device = d}), p); });
      expect_same("dropout_mask" + of,
                  [&](Device d) { return raw::dropout_mask(empty({n}, {.device = d}), p); });
      expect_same("masked_scale" + of, [&](Device d) {
        const Tensor x = randn({n}, {.device = d});
        return raw::masked_scale(x, raw::dropout_mask(x, p), 1.5);
      });
      for (const DType t : kFloats) {
        const auto dropped = [&](Device d) {
          return raw::dropout(raw::to(randn({n}, {.device = d}), t), p, 1.5);
        };
        expect_same("dropout" + of, [&](Device d) { return dropped(d).y; });
        expect_same("mask of dropout" + of, [&](Device d) { return dropped(d).mask; });
      }
    }
  }
}

TEST(RandomOnCuda, LayoutsAreTheCpus) {
  for (const DType t : kFloats) {
    const auto layouts = {+[](const TensorOptions& o) {
                            return empty_channels_last({2, 5, 6, 7}, o);
                          },
                          +[](const TensorOptions& o) {
                            return empty_strided({5, 9}, {1, 5}, o);
                          },
                          +[](const TensorOptions& o) {
                            return view_as_strided(empty({7, 16}, o), {7, 9}, {16, 1}, 3);
                          }};
    for (const auto layout : layouts) {
      const std::string name(name_of(t));
      expect_same("uniform_, " + name, [&](Device d) {
        const Tensor x = layout({t, d});
        raw::uniform_(x, -2, 3);
        return x;
      });
      expect_same("normal_, " + name, [&](Device d) {
        const Tensor x = layout({t, d});
        raw::normal_(x, 0.5, 2);
        return x;
      });
      expect_same("dropout_mask, " + name, [&](Device d) { return raw::dropout_mask(layout({t, d}), 0.4); });
      expect_same("bernoulli_mask, " + name, [&](Device d) {
        return raw::bernoulli_mask(layout({t, d}), 0.4);
      });
      const auto dropped = [&](Device d) {
        const Tensor x = layout({t, d});
        raw::normal_(x);
        return raw::dropout(x, 0.4, 1.25);
      };
      expect_same("dropout, " + name, [&](Device d) { return dropped(d).y; });
      expect_same("mask of dropout, " + name, [&](Device d) { return dropped(d).mask; });
    }
  }
}

// Weights of which some are 0, but not all of a row, also when transposed.
Tensor weights(const Shape& shape, DType dtype) {
  std::vector<float> v = rand(shape).to_vector<float>();
  for (size_t i = 0; i < v.size(); ++i) v[i] = shape.back() > 3 && i % 11 == 3 ? 0 : v[i] + 0x1p-6F;
  return raw::to(tensor(v, shape), dtype);
}

// multinomial with row lengths around the kernels' groups, warps, tiles, chunks and 32 chunks.
TEST(RandomOnCuda, IndicesByWeightsAreTheCpus) {
  int which = 0;
  for (const int64_t n : {1, 2, 15, 16, 17, 31, 33, 65, 255, 256, 257, 511, 512, 513, 1025, 16900})
    for (const int64_t rows : {1, 3, 9}) {
      if (rows > 1 && n * rows > 5000) continue;
      const DType t = kFloats[which++ % 4];
      const std::string name = std::string(name_of(t)) + " of " + std::to_string(n);
      manual_seed(static_cast<uint64_t>(which));
      const Tensor w = weights({rows, n}, t);
      for (const int64_t count : {int64_t{1}, int64_t{37}, 2 * n})
        expect_same("with replacement, " + name,
                    [&](Device d) { return multinomial(raw::to(w, d), count, {.replacement = true}); });
      // The most that every row can give.
      int64_t most = n;
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<double> v =
            raw::to(view_as_strided(w, {n}, {1}, r * n), DType::kF64).to_vector<double>();
        most = std::min<int64_t>(most, std::count_if(v.begin(), v.end(), [](double x) { return x > 0; }));
      }
      for (const int64_t count : {int64_t{1}, most / 3, most - 1, most}) {
        if (count < 1) continue;
        expect_same("without replacement, " + name,
                    [&](Device d) { return multinomial(raw::to(w, d), count); });
      }
    }
}

TEST(RandomOnCuda, IndicesByWeightsInOtherLayoutsAreTheCpus) {
  for (const DType t : kFloats)
    for (const bool replacement : {false, true}) {
      manual_seed(3);
      const Tensor w = weights({40, 70}, t);
      const auto draw = [&](const Tensor& x) { return multinomial(x, 9, {.replacement = replacement}); };
      const std::string name(name_of(t));
      expect_same("transposed, " + name, [&](Device d) {
        return draw(view_as_strided(raw::to(w, d), {70, 40}, {1, 70}, 0));
      });
      expect_same("every second, " + name, [&](Device d) {
        return draw(view_as_strided(raw::to(w, d), {19, 33}, {140, 2}, 71));
      });
      expect_same("one row for all, " + name, [&](Device d) {
        return draw(view_as_strided(raw::to(w, d), {11, 70}, {0, 1}, 350));
      });
      expect_same("a vector, " + name,
                  [&](Device d) { return draw(view_as_strided(raw::to(w, d), {500}, {1}, 3)); });
    }
}

TEST(RandomOnCuda, WhatIsNoWeightGivesIndicesAndAnError) {
  const std::vector<double> w = {1, 2, -1, 0, 0, 0, 1e308, 1e308, 1, 3, 0, INFINITY, 0, 0, 1};
  for (const bool replacement : {false, true}) {
    const Tensor there = multinomial(tensor(w, {5, 3}, cuda()), 2, {.replacement = replacement});
    EXPECT_THROW(there.to_vector<int64_t>(), ValueError);
    const std::vector<int64_t> drawn = there.to_vector<int64_t>();
    for (size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_TRUE(drawn[i] >= 0 && drawn[i] < 3) << drawn[i];
      if (replacement) {
        EXPECT_EQ(drawn[i], i < 8 ? 0 : 2) << i;
      }
    }
  }
}

TEST(RandomOnCuda, WhatIsNoProbabilityGivesNaNAndAnError) {
  const std::vector<float> p = {-0.1f, 0, 1, 1.1f, NAN};
  const Tensor there = bernoulli(tensor(p, {5}, cuda()));
  EXPECT_THROW(there.to_vector<float>(), ValueError);
  const std::vector<float> y = there.to_vector<float>();
  for (size_t i = 0; i < p.size(); ++i) EXPECT_EQ(std::isnan(y[i]), !(p[i] >= 0 && p[i] <= 1)) << p[i];
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 1);
}

}  // namespace
}  // namespace gradus
