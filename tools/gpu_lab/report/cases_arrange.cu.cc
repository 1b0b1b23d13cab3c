// Cases of indexing, masks, repetition, sorting and search. Positions are random where a kernel's traffic depends on them.
// Minimal bytes count a sector, 32 bytes, for an element at a random position of a long array.
#include <algorithm>

#include "case_operands.h"
#include "gradus/tensor/cuda/kernels/arrange.h"
#include "gradus/tensor/cuda/kernels/index.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/masks.h"
#include "gradus/tensor/cuda/kernels/sort/search.h"
#include "gradus/tensor/cuda/kernels/sort/sort.h"

namespace report {
namespace {

using gradus::raw::Selection;
using gradus::raw::WriteMode;

constexpr int64_t kWords = kBytes / 8;
constexpr double kSector = 32;

double size_of_all(const IndexedShape& s) { return static_cast<double>(s.selected()); }

// Bytes of the pairs (key, index) of a merge sort of [rows, n] that keeps `count` of each row (kernels/merge_sort.h): the
// sorted tiles are written, each merge reads and writes all pairs, and one more kernel reads the last ones. n is a power
// of two.
double bytes_of_pairs(int64_t rows, int64_t n, int64_t count) {
  constexpr int64_t kTile = 256;
  int64_t runs = blocks_for(n, kTile), width = std::min({kTile, n, count}), pairs = runs * width;
  while (runs > 1) {
    pairs += runs * width;
    runs /= 2, width = std::min(2 * width, count);
    pairs += runs * width;
  }
  return static_cast<double>((pairs + width) * rows) * 16;
}

// index_select of n rows, in random order, from n rows of `inner` f32.
Case selected(const char* what, int64_t n, int64_t inner, double most) {
  const IndexedShape s{1, n, inner, n};
  return {what, size_of_all(s) * (4 + 4) + static_cast<double>(n) * 8, most, [=] {
            const Zeros x(n * inner * 4), out(n * inner * 4);
            const Elements<int64_t> index(shuffled<int64_t>(n, n));
            index_select("report", view_of<float>(out), x.data(), as<int64_t>(index), s, {}, nullptr);
            synchronize();
          }};
}
// Elements of x [n, inner], 1 MiB of f32. An element of x moves `bytes` bytes.
Case gathered(const char* what, int64_t inner, double bytes) {
  const IndexedShape s{1, kFloats / inner, inner, kFloats / inner};
  return {what, size_of_all(s) * (4 + 8 + bytes), kDense, [=] {
            const Zeros x, out;
            std::vector<int64_t> all;
            for (const int64_t i : shuffled<int64_t>(s.k, s.n)) all.insert(all.end(), size_t(inner), i);
            const Elements<int64_t> index(all);
            gather("report", view_of<float>(out), x.data(), as<int64_t>(index), s, {}, nullptr);
            synchronize();
          }};
}
// 256 rows of 1024 f32 are written to `targets` rows: a sort of one tile.
Case put(const char* what, WriteMode mode, int64_t targets) {
  const IndexedShape s{1, 256, kFloats / 256, 256};
  const double written = static_cast<double>(targets * s.inner) * (mode == WriteMode::kAssign ? 4 : 8);
  return {what, kAll + written + bytes_of_pairs(1, s.k, s.k), kDense, [=] {
            const Zeros out, src, workspace(write_workspace(s.k));
            const Elements<int64_t> index(shuffled<int64_t>(s.k, targets));
            index_put("report", view_of<float>(out), as<int64_t>(index), src.data(), s, -1, mode,
                      workspace.data(), {}, nullptr);
            synchronize();
          }};
}
// A row of f32 is permuted: 16384 pairs take 6 merges.
Case scattered(const char* what) {
  const IndexedShape s{1, 16384, 1, 16384};
  return {what, size_of_all(s) * (8 + kSector + 4) + bytes_of_pairs(1, s.k, s.k), kDense, [=] {
            const Zeros out, src, workspace(write_workspace(s.k));
            const Elements<int64_t> index(shuffled<int64_t>(s.k, s.n));
            scatter("report", view_of<float>(out), as<int64_t>(index), src.data(), s, WriteMode::kAssign,
                    workspace.data(), {}, nullptr);
            synchronize();
          }};
}

// A mask of kFloats elements, half of which are true, which both launches read. Operands have `bytes` bytes for each
// element of the mask. Calls f(mask, x, out, workspace).
template <class F> Case masked(const char* what, double bytes, F&& f) {
  return {what, static_cast<double>(kFloats) * (2 + bytes), kStrided, [=] {
            const Zeros x, out(kFloats / 2 * 16), workspace(mask_workspace(kFloats));
            const Elements<uint8_t> mask(shuffled<uint8_t>(kFloats, 2));
            f(as<bool>(mask), as<float>(x), as<float>(out), workspace.data());
            synchronize();
          }};
}

// The lower or upper triangle of a matrix of 512 x 512 f32, which begins at element `start`.
Case cut(const char* what, bool upper, int64_t start, double most) {
  return {what, 2 * kAll, most, [=] {
            const Zeros x(kBytes + 4 * start), out(kBytes + 4 * start);
            triangle("report", as<float>(out) + start, as<float>(x) + start, 4, kFloats, 512, 512, 0, upper,
                     nullptr);
            synchronize();
          }};
}

// The first k elements of sorted slices of [outer, n, inner] f32. Keys and values are read.
Case sorted(const char* what, const SortShape& s, bool descending) {
  const int64_t rows = s.outer * s.inner;
  const double bytes = static_cast<double>(rows * s.n) * 4 + bytes_of_pairs(rows, s.n, s.k) +
                       static_cast<double>(rows * s.k) * (4 + 4 + 8);
  return {what, bytes, kDense, [=] {
            const Elements<float> x(shuffled<float>(rows * s.n, rows * s.n));
            const Zeros values, indices(2 * kBytes), workspace(sort_workspace(s));
            sort("report", view_of<float>(values), as<int64_t>(indices), view_of<float>(x), s, descending,
                 workspace.data(), nullptr);
            synchronize();
          }};
}
// One element of each row of n f32. Values repeat 16 times in the array.
Case chosen(const char* what, int64_t rows, int64_t n, Selection choice) {
  const SelectShape s{rows, n, 1, choice, 7};
  const double bytes =
      static_cast<double>(rows * n) * 4 + bytes_of_pairs(rows, n, choice == Selection::kKth ? s.k + 1 : n);
  return {what, bytes, kDense, [=] {
            const Elements<float> x(shuffled<float>(rows * n, rows * n / 16));
            const Zeros values(rows * 4), indices(rows * 8), workspace(select_workspace(s));
            select("report", view_of<float>(values), as<int64_t>(indices), view_of<float>(x), s,
                   workspace.data(), nullptr);
            synchronize();
          }};
}
// The order of n rows of m f32: a sort for each column, the last one first. All but the first sort read the order before
// them, a column in this order, and the order at random again.
Case ordered(const char* what, int64_t n, int64_t m) {
  const auto rows = static_cast<double>(n), later = static_cast<double>(m - 1);
  const double bytes = (later + 1) * (bytes_of_pairs(1, n, n) + rows * 8) + rows * 4 * (later + 1) +
                       later * rows * (8 + 2 * kSector);
  return {what, bytes, kDense, [=] {
            const Elements<float> x(shuffled<float>(n * m, n));
            const Zeros order(n * 8), workspace(sort_rows_workspace(n));
            sort_rows("report", as<int64_t>(order), view_of<float>(x), n, m, workspace.data(), nullptr);
            synchronize();
          }};
}

// A histogram of 1 MiB of f32. `bytes`: what adding one to a count in global memory moves; 0 in shared memory.
Case counted(const char* what, int64_t bins, double bytes) {
  return {what, static_cast<double>(kFloats) * (4 + bytes) + static_cast<double>(bins) * (8 + 4), kDense,
          [=] {
            const Elements<float> x(shuffled<float>(kFloats, kFloats, 1. / kFloats));
            const Zeros out(bins * 4), counts(bins * 8);
            histc("report", view_of<float>(out), as<int64_t>(counts), view_of<float>(x), kFloats, bins,
                  {0, 1}, {}, nullptr);
            synchronize();
          }};
}

}  // namespace

std::vector<Case> arrange_cases() {
  return {
      selected("index_select f32, rows of 64", 4096, 64, kDense),
      selected("index_select f32, rows of 129", 1024, 129, kStrided),
      gathered("gather f32, at random", 1, kSector),
      gathered("gather f32, rows of 64", 64, 4),
      put("index_put f32", WriteMode::kAssign, 256),
      put("index_add f32", WriteMode::kAdd, 256),
      put("index_add f32, to one row", WriteMode::kAdd, 1),
      put("index_put f32, products", WriteMode::kMultiply, 256),
      scattered("scatter f32"),
      {"flat indices", 3 * kAll, kDense,
       [] {
         const Zeros out, index;
         flat_index("report", as<int64_t>(out), as<int64_t>(index), kWords, 4, 4, {}, nullptr);
         synchronize();
       }},
      {"check of indices", kAll, kDense,
       [] {
         const Zeros index;
         check_indices("report", as<int64_t>(index), kWords, 4, {}, nullptr);
         synchronize();
       }},
      {"one_hot i64, 10 classes", kWords / 10 * (10 * 8. + 8), kDense,
       [] {
         const Zeros out, index;
         one_hot("report", view_of<int64_t>(out), as<int64_t>(index), kWords / 10, 10, {}, nullptr);
         synchronize();
       }},
      masked("nonzero, one dim", 8. / 2,
             [](const bool* mask, float*, float* out, void* workspace) {
               nonzero("report", reinterpret_cast<int64_t*>(out), mask, kFloats, {1, {kFloats}}, workspace,
                       nullptr);
             }),
      masked("nonzero, two dims", 16. / 2,
             [](const bool* mask, float*, float* out, void* workspace) {
               nonzero("report", reinterpret_cast<int64_t*>(out), mask, kFloats, {2, {512, 512}}, workspace,
                       nullptr);
             }),
      masked("masked_select f32", 4 + 4. / 2,
             [](const bool* mask, float* x, float* out, void* workspace) {
               masked_select("report", out, kFloats / 2, x, 4, mask, kFloats, workspace, {}, nullptr);
             }),
      masked("masked_scatter f32", 4 + 4 + 4. / 2,
             [](const bool* mask, float* x, float* out, void* workspace) {
               const float* const src = x;
               masked_scatter("report", out, x, 4, mask, kFloats, src, kFloats / 2, workspace, {}, nullptr);
             }),
      // The scan reads the counts twice and writes their sums; the search reads both once more, to check them.
      {"repeat_interleave", 6 * kAll, kDense,
       [] {
         const Elements<int64_t> counts(std::vector<int64_t>(kWords, 1));
         const Zeros out, workspace(repeat_workspace(kWords));
         repeat("report", as<int64_t>(out), kWords, as<int64_t>(counts), kWords, workspace.data(), {},
                nullptr);
         synchronize();
       }},
      cut("tril f32", false, 0, kDense),
      cut("triu f32, misaligned", true, 1, kStrided),
      sorted("sort f32, rows of 256", {1024, 256, 1, 256}, false),
      sorted("sort f32, one row", {1, 65536, 1, 65536}, false),
      sorted("sort f32, 64 columns", {16, 256, 64, 256}, true),
      sorted("topk f32, 8 of rows of 4096", {64, 4096, 1, 8}, true),
      chosen("kthvalue f32, rows of 4096", 64, 4096, Selection::kKth),
      chosen("median f32, rows of 1024", 64, 1024, Selection::kMedian),
      chosen("mode f32, rows of 256", 256, 256, Selection::kMode),
      chosen("mode f32, rows of 2048", 64, 2048, Selection::kMode),
      ordered("order of rows f32, two columns", 16384, 2),
      {"searchsorted f32", kAll * (1 + 2) + 4096, kDense,
       [] {
         const Elements<float> values(shuffled<float>(kFloats, 1024));
         std::vector<float> numbers(1024);
         std::iota(numbers.begin(), numbers.end(), 0.f);
         const Elements<float> row(numbers);
         const Zeros out(2 * kBytes);
         searchsorted("report", as<int64_t>(out), view_of<float>(row), view_of<float>(values), 1, 1024,
                      kFloats, false, nullptr);
         synchronize();
       }},
      counted("histc f32, 64 bins", 64, 0),
      counted("histc f32, 8192 bins", 8192, kSector),
  };
}

}  // namespace report
