// Workloads: copies, concatenations, gathers and scatters of arrays larger than the cache, in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// structure_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

constexpr int64_t k8M = 1L << 23, kRows = 4096, kColumns = 2048;

template <class F> Entry entry(const char* name, F make) {
  return {name, [make] {
            return work([f = make()] {
              torch::NoGradGuard off;
              f();
            });
          }};
}
template <class F> Entry of_matrix(const char* name, F f) {
  return entry(name, [f] {
    auto x = torch::randn({kRows, kColumns});
    return [=] { f(x); };
  });
}
torch::Tensor half_mask(at::IntArrayRef s) { return torch::rand(s).lt(0.5); }

}  // namespace

static const AddWorkloads added(
    Side::kLibTorch, "structure",
    {
        of_matrix("clone, 8M", [](auto& x) { return x.clone(); }),
        of_matrix("transpose + contiguous, 8M", [](auto& x) { return x.t().contiguous(); }),
        entry("permute NCHW to NHWC, 32x64x64x64",
              [] {
                auto x = torch::randn({32, 64, 64, 64});
                return [=] { x.permute({0, 2, 3, 1}).contiguous(); };
              }),
        entry("cat of 2 along the last dim, 8M",
              [] {
                auto a = torch::randn({kRows, kColumns / 2}), b = torch::randn({kRows, kColumns / 2});
                return [=] { torch::cat({a, b}, 1); };
              }),
        entry("stack of 4 along the last dim, 8M",
              [] {
                auto a = torch::randn({kRows, kColumns / 4});
                return [=] { torch::stack({a, a, a, a}, -1); };
              }),
        of_matrix("flip of the last dim, 8M", [](auto& x) { return x.flip(1); }),
        of_matrix("flip of both dims, 8M",
                  [](auto& x) {
                    return x.flip({0, 1});
                  }),
        of_matrix("roll along both dims, 8M",
                  [](auto& x) {
                    return x.roll({7, 100}, {0, 1});
                  }),
        of_matrix("tril, 8M", [](auto& x) { return x.tril(); }),
        of_matrix("repeat 2x2, 8M to 32M",
                  [](auto& x) {
                    return x.repeat({2, 2});
                  }),
        entry("index_select of rows, 64K of 128",
              [] {
                auto x = torch::randn({16384, 128}), i = torch::randint(16384, {65536}, torch::kLong);
                return [=] { x.index_select(0, i); };
              }),
        entry("index_select of columns, 8M",
              [] {
                auto x = torch::randn({kRows, kColumns}),
                     i = torch::randint(kColumns, {kColumns}, torch::kLong);
                return [=] { x.index_select(1, i); };
              }),
        entry("gather along the last dim, 8M",
              [] {
                auto x = torch::randn({kRows, kColumns}),
                     i = torch::randint(kColumns, {kRows, kColumns}, torch::kLong);
                return [=] { x.gather(1, i); };
              }),
        entry("gather along the first dim, 8M",
              [] {
                auto x = torch::randn({kRows, kColumns}),
                     i = torch::randint(kRows, {kRows, kColumns}, torch::kLong);
                return [=] { x.gather(0, i); };
              }),
        entry("scatter_add along the last dim, 8M",
              [] {
                auto x = torch::randn({kRows, kColumns}),
                     i = torch::randint(kColumns, {kRows, kColumns}, torch::kLong);
                return [=] { x.scatter_add(1, i, x); };
              }),
        entry("scatter_add along the first dim, 8M",
              [] {
                auto x = torch::randn({kRows, kColumns}),
                     i = torch::randint(kRows, {kRows, kColumns}, torch::kLong);
                return [=] { x.scatter_add(0, i, x); };
              }),
        entry("index_add of rows, 64K into 16K of 128",
              [] {
                auto x = torch::randn({16384, 128}), i = torch::randint(16384, {65536}, torch::kLong),
                     s = torch::randn({65536, 128});
                return [=] { x.index_add(0, i, s); };
              }),
        entry("embedding, 64K rows of 32K x 128",
              [] {
                auto w = torch::randn({32768, 128}), i = torch::randint(32768, {64, 1024}, torch::kLong);
                return [=] { torch::embedding(w, i); };
              }),
        {"embedding forward + backward, 64K rows of 32K x 128",
         [] {
           auto w = torch::randn({32768, 128}, torch::requires_grad()),
                i = torch::randint(32768, {64, 1024}, torch::kLong), dy = torch::randn({64, 1024, 128});
           return work([=] { torch::autograd::grad({torch::embedding(w, i)}, {w}, {dy}); });
         }},
        entry("masked_select of half, 8M",
              [] {
                auto x = torch::randn({kRows, kColumns}), m = half_mask({kRows, kColumns});
                return [=] { x.masked_select(m); };
              }),
        entry("masked_scatter of half, 8M",
              [] {
                auto x = torch::randn({kRows, kColumns}), m = half_mask({kRows, kColumns});
                return [=] { x.masked_scatter(m, x); };
              }),
        entry("nonzero of half, 8M",
              [] {
                auto m = half_mask({kRows, kColumns});
                return [=] { m.nonzero(); };
              }),
        entry("where, 8M",
              [] {
                auto a = torch::randn({k8M}), b = torch::randn({k8M}), m = half_mask({k8M});
                return [=] { torch::where(m, a, b); };
              }),
        entry("index by two index tensors, 1M of 8M",
              [] {
                auto x = torch::randn({kRows, kColumns}), i = torch::randint(kRows, {1 << 20}, torch::kLong),
                     j = torch::randint(kColumns, {1 << 20}, torch::kLong);
                return [=] { x.index({i, j}); };
              }),
        entry("one_hot, 64K x 128",
              [] {
                auto i = torch::randint(128, {65536}, torch::kLong);
                return [=] { torch::one_hot(i, 128); };
              }),
        entry("multinomial with replacement, 1M of 10K",
              [] {
                auto p = torch::rand({10000});
                return [=] { p.multinomial(1 << 20, true); };
              }),
    });

}  // namespace gradus::bench
