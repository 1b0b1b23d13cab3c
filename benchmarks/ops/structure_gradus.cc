// Workloads: copies, concatenations, gathers and scatters of arrays larger than the cache, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (structure_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

constexpr int64_t k8M = 1L << 23, kRows = 4096, kColumns = 2048;  // kRows x kColumns = k8M

// `make` creates the inputs and returns the function to time.
template <class F> Entry entry(const char* name, F make) {
  return {name, [make] { return work(make()); }};
}
// A workload of an op that reads one [4096,2048] matrix and writes `results` matrices of this size.
template <class F> Entry of_matrix(const char* name, F f, int results = 1) {
  return {name, [f, results] {
            const Tensor x = randn({kRows, kColumns});
            return streaming([=] { f(x); }, double(x.nbytes()), double(x.nbytes()) * results);
          }};
}
Tensor half_mask(const Shape& s) { return lt(rand(s), 0.5); }

}  // namespace

static const AddWorkloads added(
    Side::kGradus, "structure",
    {
        of_matrix("clone, 8M", [](auto& x) { return clone(x); }),
        of_matrix("transpose + contiguous, 8M", [](auto& x) { return contiguous(t(x)); }),
        entry("permute NCHW to NHWC, 32x64x64x64",
              [] {
                const Tensor x = randn({32, 64, 64, 64});
                return [=] { contiguous(permute(x, {0, 2, 3, 1})); };
              }),
        entry("cat of 2 along the last dim, 8M",
              [] {
                const Tensor a = randn({kRows, kColumns / 2}), b = randn({kRows, kColumns / 2});
                return [=] { cat({a, b}, 1); };
              }),
        entry("stack of 4 along the last dim, 8M",
              [] {
                const Tensor a = randn({kRows, kColumns / 4});
                return [=] { stack({a, a, a, a}, -1); };
              }),
        of_matrix("flip of the last dim, 8M", [](auto& x) { return flip(x, {1}); }),
        of_matrix("flip of both dims, 8M",
                  [](auto& x) {
                    return flip(x, {0, 1});
                  }),
        of_matrix("roll along both dims, 8M",
                  [](auto& x) {
                    return roll(x, {7, 100}, {0, 1});
                  }),
        of_matrix("tril, 8M", [](auto& x) { return tril(x); }),
        of_matrix(
            "repeat 2x2, 8M to 32M",
            [](auto& x) {
              return repeat(x, {2, 2});
            },
            4),
        entry("index_select of rows, 64K of 128",
              [] {
                const Tensor x = randn({16384, 128}), i = randint(16384, {65536});
                return [=] { index_select(x, 0, i); };
              }),
        entry("index_select of columns, 8M",
              [] {
                const Tensor x = randn({kRows, kColumns}), i = randint(kColumns, {kColumns});
                return [=] { index_select(x, 1, i); };
              }),
        entry("gather along the last dim, 8M",
              [] {
                const Tensor x = randn({kRows, kColumns}), i = randint(kColumns, {kRows, kColumns});
                return [=] { gather(x, 1, i); };
              }),
        entry("gather along the first dim, 8M",
              [] {
                const Tensor x = randn({kRows, kColumns}), i = randint(kRows, {kRows, kColumns});
                return [=] { gather(x, 0, i); };
              }),
        entry("scatter_add along the last dim, 8M",
              [] {
                const Tensor x = randn({kRows, kColumns}), i = randint(kColumns, {kRows, kColumns});
                return [=] { scatter_add(x, 1, i, x); };
              }),
        entry("scatter_add along the first dim, 8M",
              [] {
                const Tensor x = randn({kRows, kColumns}), i = randint(kRows, {kRows, kColumns});
                return [=] { scatter_add(x, 0, i, x); };
              }),
        entry("index_add of rows, 64K into 16K of 128",
              [] {
                const Tensor x = randn({16384, 128}), i = randint(16384, {65536}), s = randn({65536, 128});
                return [=] { index_add(x, 0, i, s); };
              }),
        entry("embedding, 64K rows of 32K x 128",
              [] {
                const Tensor w = randn({32768, 128}), i = randint(32768, {64, 1024});
                return [=] { embedding(i, w); };
              }),
        entry("embedding forward + backward, 64K rows of 32K x 128",
              [] {
                const Tensor w = randn({32768, 128}), i = randint(32768, {64, 1024}),
                             dy = randn({64, 1024, 128});
                return [=] {
                  autograd::grad([&](const std::vector<Tensor>& v) { return embedding(i, v[0]); }, {w}, dy);
                };
              }),
        entry("masked_select of half, 8M",
              [] {
                const Tensor x = randn({kRows, kColumns}), m = half_mask({kRows, kColumns});
                return [=] { masked_select(x, m); };
              }),
        entry("masked_scatter of half, 8M",
              [] {
                const Tensor x = randn({kRows, kColumns}), m = half_mask({kRows, kColumns});
                return [=] { masked_scatter(x, m, x); };
              }),
        entry("nonzero of half, 8M",
              [] {
                const Tensor m = half_mask({kRows, kColumns});
                return [=] { nonzero(m); };
              }),
        entry("where, 8M",
              [] {
                const Tensor a = randn({k8M}), b = randn({k8M}), m = half_mask({k8M});
                return [=] { where(m, a, b); };
              }),
        entry("index by two index tensors, 1M of 8M",
              [] {
                const Tensor x = randn({kRows, kColumns}), i = randint(kRows, {1 << 20}),
                             j = randint(kColumns, {1 << 20});
                return [=] { index(x, {i, j}); };
              }),
        entry("one_hot, 64K x 128",
              [] {
                const Tensor i = randint(128, {65536});
                return [=] { one_hot(i, 128); };
              }),
        entry("multinomial with replacement, 1M of 10K",
              [] {
                const Tensor p = rand({10000});
                return [=] { multinomial(p, 1 << 20, {.replacement = true}); };
              }),
    });

}  // namespace gradus::bench
