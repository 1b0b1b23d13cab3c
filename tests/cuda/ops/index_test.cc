// Indexing on cuda:0 has the CPU's bits, also where one row is written many times, in two runs and in sizes around
// the kernels' constants. An index out of range is the CPU's IndexError where the host next waits; it reads NaN and
// writes nothing. No op waits for the device.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0");

std::string bits(const Tensor& x) {
  const Tensor here = raw::contiguous(raw::to(x, kCPU));
  return {static_cast<const char*>(here.raw_ptr()), static_cast<size_t>(here.nbytes())};
}

// Values whose sums round differently in another order.
Tensor values(const Shape& shape, DType dtype, Device device, int64_t seed) {
  std::vector<double> v(static_cast<size_t>(shape.product()));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = std::ldexp(double((i * 7919 + size_t(seed) * 104729) % 2003) - 1001, int(i % 11) - 12);
  return raw::to(raw::to(tensor(v, shape), dtype), device);
}
Tensor indices(int64_t count, int64_t n, Device device) {
  std::vector<int64_t> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = int64_t(i * i * 31 + i) % n;
  return raw::to(tensor(v, {count}), device);
}

// f(device) twice on cuda:0 and once on the CPU.
void expect_same(const std::string& what, const std::function<Tensor(Device)>& f) {
  const std::string want = bits(f(kCPU));
  EXPECT_TRUE(bits(f(kCuda)) == want) << what;
  EXPECT_TRUE(bits(f(kCuda)) == want) << what << ", again";
}

// k indices around the elements loaded at once (16), tiles of the sort (256) and its merges. Few rows have long runs.
TEST(IndexOnCuda, SumsAreTheCpus) {
  for (const int64_t k : {1, 16, 17, 33, 256, 257, 600})
    for (const int64_t rows : {3, 150})
      for (const int64_t width : {1, k < 20 ? 64 : 5}) {
        const std::string shape =
            std::to_string(k) + " into " + std::to_string(rows) + " rows of " + std::to_string(width);
        for (const DType t : {DType::kF32, DType::kBF16})
          expect_same("embedding_backward of " + shape, [&](Device d) {
            return embedding_backward(values({k, width}, t, d, 1), indices(k, rows, d), rows, 2);
          });
        if (k > 300) continue;
        for (const DType t : {DType::kF64, DType::kF16, DType::kI8, DType::kI64, DType::kBool}) {
          expect_same("index_add of " + shape, [&](Device d) {
            return index_add(values({rows, width}, t, d, 1), 0, indices(k, rows, d),
                             values({k, width}, t, d, 2));
          });
          expect_same("index_copy of " + shape, [&](Device d) {
            return index_copy(values({rows, width}, t, d, 1), 0, indices(k, rows, d),
                              values({k, width}, t, d, 2));
          });
        }
        const auto at = [&](Device d) { return reshape(indices(k * width, rows, d), {k, width}); };
        expect_same("scatter of " + shape, [&](Device d) {
          return scatter(values({rows, width}, DType::kF32, d, 1), 0, at(d),
                         values({k, width}, DType::kF32, d, 2));
        });
        expect_same("gather_backward of " + shape, [&](Device d) {
          return gather_backward(values({k, width}, DType::kF32, d, 1), {rows, width}, 0, at(d));
        });
      }
}

TEST(IndexOnCuda, ManySourcesOfOneRowAreAddedInOrder) {
  constexpr int64_t kCount = 5000;
  const auto zeros = [&](Device d) { return raw::to(tensor(std::vector<int64_t>(kCount, 0), {kCount}), d); };
  expect_same("f32", [&](Device d) {
    return raw::index_select_backward(values({kCount, 2}, DType::kF32, d, 1), {2, 2}, 0, zeros(d));
  });
  expect_same("in the middle dim", [&](Device d) {
    return raw::index_select_backward(values({2, kCount, 1}, DType::kF32, d, 1), {2, 3, 1}, 1, zeros(d));
  });
}

TEST(IndexOnCuda, SkippedRowsStayZero) {
  expect_same("padding", [](Device d) {
    return embedding_backward(values({40, 3}, DType::kF32, d, 1), indices(40, 4, d), 4, 1);
  });
}

// "[op] text" of the IndexError of f, "" for none.
std::string thrown(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const IndexError& e) {
    return e.what();
  }
}

TEST(IndexOnCuda, InvalidIndicesAreTheCpusErrors) {
  const auto at = [](std::vector<int64_t> v, Device d) {
    const auto count = static_cast<int64_t>(v.size());
    return raw::to(tensor(v, {count}), d);
  };
  const auto x = [](Device d) { return values({4, 3}, DType::kF32, d, 1); };
  const auto row = [](Device d) { return values({1, 3}, DType::kF32, d, 2); };
  const std::vector<std::function<Tensor(Device)>> programs = {
      [&](Device d) {
        return index_select(x(d), 0, at({1, 4, 7}, d));
      },
      [&](Device d) {
        return index_select(x(d), -1, at({2, -1}, d));
      },
      [&](Device d) {
        return index_select(empty({2, 0, 3}, {.device = d}), 1, at({0}, d));
      },
      [&](Device d) {
        return index_select(empty({2, 3, 0}, {.device = d}), 1, at({0, 3}, d));
      },
      [&](Device d) { return raw::index_select(x(d), 0, at({9}, d)); },
      [&](Device d) { return raw::index_select(x(d), 0, at({9}, d), "embedding"); },
      [&](Device d) {
        return embedding(at({0, int64_t{1} << 62}, d), x(d));
      },
      [&](Device d) { return embedding_backward(row(d), at({4}, d), 4); },
      [&](Device d) {
        return gather(x(d), 1, reshape(at({0, 1, 2, 3}, d), {4, 1}));
      },
      [&](Device d) {
        return scatter(x(d), 1, reshape(at({0, 1, -1, 2}, d), {4, 1}), x(d));
      },
      [&](Device d) {
        return scatter_add(x(d), 0, reshape(at({0, 5, -7}, d), {1, 3}), row(d));
      },
      [&](Device d) { return index_add(x(d), 0, at({-2}, d), row(d)); },
      [&](Device d) { return index_copy(x(d), 0, at({INT64_MIN}, d), row(d)); },
      [&](Device d) {
        return index_copy(empty({2, 0}, {.device = d}), 0, at({2}, d), empty({1, 0}, {.device = d}));
      },
      [&](Device d) {
        return index_fill(x(d), 0, at({3, -5}, d), 1.0);
      },
      [&](Device d) {
        return index(x(d), {{}, at({-3, -4}, d)});
      },
      [&](Device d) {
        return index(x(d), {at({0, 4}, d), at({0, 5}, d)});
      },
      [&](Device d) { return index_put(x(d), {at({4}, d)}, row(d)); },
      [&](Device d) { return take(x(d), at({12}, d)); },
      [&](Device d) { return put(x(d), at({-13}, d), values({1}, DType::kF32, d, 3)); },
      [&](Device d) {
        return one_hot(at({0, 3, 2, -1}, d), 3);
      },
  };
  for (size_t i = 0; i < programs.size(); ++i) {
    const std::string want = thrown([&] { programs[i](kCPU); });
    EXPECT_NE(want, "") << i;
    Tensor y;
    EXPECT_EQ(thrown([&] { y = programs[i](kCuda); }), "") << i;
    EXPECT_EQ(thrown([] { synchronize(kCuda); }), want) << i;
    EXPECT_EQ(thrown([] { synchronize(kCuda); }), "") << i;
  }
}

TEST(IndexOnCuda, InvalidIndicesReadNaNAndWriteNothing) {
  const Tensor index = tensor(std::vector<int64_t>{1, 1000000, 0, -1}, {4}, kCuda);
  const Tensor x = values({3, 2}, DType::kF32, kCuda, 1);
  const Tensor read = index_select(x, 0, index), integers = index_select(raw::to(x, DType::kI32), 0, index);
  const Tensor source = values({4, 2}, DType::kF32, kCuda, 2);
  const Tensor sums = index_add(x, 0, index, source), copies = index_copy(x, 0, index, source);
  EXPECT_THROW(synchronize(kCuda), IndexError);
  const std::vector<float> r = read.to_vector<float>(), v = x.to_vector<float>(),
                           s = source.to_vector<float>();
  const std::vector<int32_t> n = integers.to_vector<int32_t>();
  for (size_t j = 0; j < 2; ++j) {
    EXPECT_EQ(r[j], v[2 + j]);
    EXPECT_TRUE(std::isnan(r[2 + j]) && std::isnan(r[6 + j]));
    EXPECT_EQ(r[4 + j], v[j]);
    EXPECT_EQ(n[2 + j], 0);
  }
  const std::vector<float> want_sums = {v[0] + s[4], v[1] + s[5], v[2] + s[0], v[3] + s[1], v[4], v[5]};
  EXPECT_EQ(sums.to_vector<float>(), want_sums);
  EXPECT_EQ(copies.to_vector<float>(), (std::vector<float>{s[4], s[5], s[0], s[1], v[4], v[5]}));
}

TEST(IndexOnCuda, InvalidIndicesInBracketsReadNaNAndWriteNothing) {
  Tensor x = values({3, 2}, DType::kF32, kCuda, 1);
  const std::vector<float> before = x.to_vector<float>();
  x[{tensor(std::vector<int64_t>{3}, {1}, kCuda)}] = zeros({1, 2}, {DType::kF32, kCuda});
  EXPECT_THROW(synchronize(kCuda), IndexError);
  EXPECT_EQ(x.to_vector<float>(), before) << "no valid row is overwritten";
  const Tensor taken = take(x, tensor(std::vector<int64_t>{2, -7}, {2}, kCuda));
  EXPECT_THROW(synchronize(kCuda), IndexError);
  EXPECT_EQ(taken.to_vector<float>()[0], before[2]);
  EXPECT_TRUE(std::isnan(taken.to_vector<float>()[1]));
}

TEST(IndexOnCuda, NothingWaits) {
  const Tensor weight = values({50, 8}, DType::kF32, kCuda, 1), at = indices(600, 50, kCuda);
  const auto step = [&] {
    const Tensor y = embedding(at, weight);
    embedding_backward(y, at, 50);
    index_put(weight, {at}, y, true);
  };
  step();
  cuda::HostCallScope calls;
  step();
  EXPECT_EQ(calls.total().waits, 0);
  EXPECT_EQ(calls.total().allocations, 0);
}

}  // namespace
}  // namespace gradus
