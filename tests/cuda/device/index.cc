// Kernels of indexing by index tensors against host loops, bit for bit. Indices repeat, are skipped or invalid; the
// report of the first invalid one is checked, and that nothing outside of the arrays is written.
#include "gradus/tensor/cuda/kernels/index.h"

#include <new>

#include "device_test.h"

namespace device_test {
namespace {

using cuda::IndexedShape;
using gradus::raw::WriteMode;

enum class Indices { kRandom, kOneRow, kSomeInvalid };

struct Case {
  IndexedShape s;
  size_t start;  // first element of the operands, for misalignment
  Indices kind;
};

// Sizes around a warp, a block and tile of the sort (256), 16 elements loaded at once, and words of 1 to 16 bytes.
std::vector<Case> cases() {
  std::vector<IndexedShape> shapes = {
      {1, 65, 1, 1},   {1, 4, 1, 15},  {1, 4, 1, 16},  {1, 9, 1, 17},   {1, 300, 1, 255}, {2, 20, 1, 256},
      {1, 40, 2, 257}, {1, 8, 1, 511}, {1, 3, 1, 513}, {1, 1, 3, 770},  {1, 7, 1, 1030},  {3, 5, 33, 31},
      {2, 9, 16, 40},  {1, 6, 48, 32}, {4, 3, 7, 16},  {1, 2, 130, 64}, {2, 0, 3, 4},     {1, 5, 8, 33}};
  if (!options().small)
    shapes.insert(shapes.end(),
                  {{1, 65, 384, 4096}, {1, 50257, 64, 8192}, {7, 1000, 1, 20000}, {1, 2, 1, 99999}});
  std::vector<Case> all;
  for (const IndexedShape& s : shapes)
    for (const Indices kind : {Indices::kRandom, Indices::kOneRow, Indices::kSomeInvalid})
      all.push_back({s, size_t(s.k % 4 == 1), kind});
  return all;
}

std::vector<int64_t> indices(int64_t count, int64_t n, Indices kind) {
  std::vector<int64_t> index(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto z = static_cast<int64_t>(mix(static_cast<uint64_t>(i + n)) >> 1);
    const int64_t invalid[] = {n, -1, INT64_MIN, INT64_MAX, n + 5};
    const bool is_invalid = n == 0 || (kind == Indices::kSomeInvalid && i % 7 == 5);
    index[size_t(i)] = is_invalid ? invalid[z % 5] : kind == Indices::kOneRow ? n / 2 : z % n;
  }
  return index;
}
bool is_valid(int64_t index, int64_t n) { return 0 <= index && index < n; }

// A record for reports in pinned memory. matches(): it has the first invalid index, or none.
struct Record {
  Record() {
    void* p;
    MUST(cudaMallocHost(&p, sizeof(cuda::ValueRecord)));
    record = new (p) cuda::ValueRecord;
  }
  ~Record() { cudaFreeHost(record); }
  cuda::ValueReports reports(int64_t n) const { return {record, 7, n}; }
  bool matches(const std::vector<int64_t>& index, int64_t low, int64_t n) const {
    MUST(cudaDeviceSynchronize());
    const auto bad = std::find_if(index.begin(), index.end(), [=](int64_t i) { return i < low || i >= n; });
    if (bad == index.end()) return record->launch == 0;
    uint64_t value = 0;
    for (int p = 0; p < cuda::ValueRecord::kParts; ++p) {
      if (record->words[p] >> 24 != static_cast<uint64_t>(bad - index.begin())) return false;
      value |= (record->words[p] & 0xffffff) << (24 * p);
    }
    return record->launch == 7 && static_cast<int64_t>(value) == *bad;
  }
  cuda::ValueRecord* record;
};

std::string name_of(const Case& c) {
  const auto text = [](int64_t n) { return std::to_string(n); };
  return "[" + text(c.s.outer) + ", " + text(c.s.n) + ", " + text(c.s.inner) + "] by " + text(c.s.k) +
         (c.kind == Indices::kOneRow   ? " equal indices"
          : c.kind == Indices::kRandom ? " indices"
                                       : " indices, some invalid");
}

template <class T> std::vector<T> samples(int64_t count, uint64_t salt) {
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = sample<T>(i, salt);
  return x;
}
template <class T> bool are_same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), &same<T>);
}

template <class T> T combined(WriteMode mode, T old, T written) {
  if (mode == WriteMode::kAssign) return written;
  if constexpr (std::is_arithmetic_v<T>) {
    if (mode == WriteMode::kMax) return written > old || is_nan(written) ? written : old;
    if (mode == WriteMode::kMin) return written < old || is_nan(written) ? written : old;
    if constexpr (std::is_integral_v<T>) {  // wraps
      const auto a = static_cast<uint64_t>(old), b = static_cast<uint64_t>(written);
      return static_cast<T>(mode == WriteMode::kAdd ? a + b : a * b);
    } else {
      return mode == WriteMode::kAdd ? old + written : old * written;
    }
  }
  return old;
}

// The position in [outer, k, inner] that gather and index_select read, and scatter and index_put write; and that of
// its index, in `index`.
struct Positions {
  const IndexedShape& s;
  bool per_element;
  size_t index_of(int64_t e) const { return size_t(per_element ? e : e / s.inner % s.k); }
  size_t indexed(int64_t e, int64_t selected) const {
    return size_t((e / s.inner / s.k * s.n + selected) * s.inner + e % s.inner);
  }
};

template <class T> void check_reads(Group& group, const Case& c, bool per_element) {
  const IndexedShape& s = c.s;
  const int64_t count = s.outer * s.k * s.inner;
  const Positions at{s, per_element};
  const std::vector<T> x = samples<T>(s.outer * s.n * s.inner, 1);
  const std::vector<int64_t> index = indices(per_element ? count : s.k, s.n, c.kind);
  std::vector<T> want(static_cast<size_t>(count));
  for (int64_t e = 0; e < count; ++e) {
    const int64_t selected = index[at.index_of(e)];
    want[size_t(e)] = is_valid(selected, s.n)           ? x[at.indexed(e, selected)]
                      : is_floating(gradus::dtype_v<T>) ? from_double<T>(NAN)
                                                        : T();
  }
  const Elements<T> from(x, c.start), to(size_t(count), c.start);
  const Elements<int64_t> by(index);
  const Record record;
  (per_element ? cuda::gather : cuda::index_select)("test", {to.data(), gradus::dtype_v<T>}, from.data(),
                                                    by.data(), s, record.reports(s.n), nullptr);
  group.check(are_same(to.take(), want), "%s %s: wrong", per_element ? "gather" : "index_select",
              name_of(c).c_str());
  group.check(record.matches(index, 0, s.n), "%s: another report", name_of(c).c_str());
  group.check(to.is_clean(), "%s: written outside", name_of(c).c_str());
}

template <class T> void check_writes(Group& group, const Case& c, bool per_element, WriteMode mode) {
  const IndexedShape& s = c.s;
  const int64_t count = s.outer * s.k * s.inner, skip = per_element || s.k % 3 == 0 ? -1 : 1;
  const Positions at{s, per_element};
  const std::vector<T> x = samples<T>(s.outer * s.n * s.inner, 1), src = samples<T>(count, 2);
  const std::vector<int64_t> index = indices(per_element ? count : s.k, s.n, c.kind);
  std::vector<T> want = x;
  for (int64_t e = 0; e < count; ++e) {  // in the order of the indices, for each element
    const int64_t selected = index[at.index_of(e)];
    if (!is_valid(selected, s.n) || selected == skip) continue;
    const size_t to = at.indexed(e, selected);
    want[to] = combined<T>(mode, want[to], src[size_t(e)]);
  }
  const Elements<T> to(x, c.start), from(src, c.start);
  const Elements<int64_t> by(index);
  const Buffer workspace(static_cast<size_t>(cuda::write_workspace(int64_t(index.size()))));
  const Record record;
  const cuda::View out{to.data(), gradus::dtype_v<T>};
  if (per_element)
    cuda::scatter("test", out, by.data(), from.data(), s, mode, workspace.data(), record.reports(s.n),
                  nullptr);
  else
    cuda::index_put("test", out, by.data(), from.data(), s, skip, mode, workspace.data(), record.reports(s.n),
                    nullptr);
  group.check(are_same(to.take(), want), "%s, mode %d, %s: wrong", per_element ? "scatter" : "index_put",
              int(mode), name_of(c).c_str());
  group.check(record.matches(index, 0, s.n), "%s: another report", name_of(c).c_str());
  group.check(to.is_clean(), "%s: written outside", name_of(c).c_str());
}

template <class T> void test_type(const std::string& name) {
  Group group("indexing of " + name);
  if (!group) return;
  for (const Case& c : cases())
    for (const bool per_element : {false, true}) {
      check_reads<T>(group, c, per_element);
      for (const WriteMode mode :
           {WriteMode::kAssign, WriteMode::kAdd, WriteMode::kMultiply, WriteMode::kMax, WriteMode::kMin}) {
        if (mode > WriteMode::kAssign && !std::is_arithmetic_v<T>) break;
        if (mode > WriteMode::kAdd && c.kind != Indices::kRandom) break;
        check_writes<T>(group, c, per_element, mode);
      }
    }
}

void test_positions() {
  Group group("flat positions and one-hot rows");
  if (!group) return;
  for (const int64_t count : {1, 255, 256, 257, 1000})
    for (const Indices kind : {Indices::kRandom, Indices::kSomeInvalid}) {
      constexpr int64_t kSize = 9, kStride = 11;
      std::vector<int64_t> index = indices(count, kSize, kind), sums = samples<int64_t>(count, 3);
      const Elements<int64_t> by(index), one_hot(size_t(count * kSize));
      const Elements<float> one_hot_floats(size_t(count * kSize));
      const Record of_one_hot, of_floats, of_check;
      cuda::one_hot("test", {one_hot.data(), DType::kI64}, by.data(), count, kSize, of_one_hot.reports(kSize),
                    nullptr);
      cuda::one_hot("test", {one_hot_floats.data(), DType::kF32}, by.data(), count, kSize,
                    of_floats.reports(kSize), nullptr);
      cuda::check_indices("test", by.data(), count, kSize, of_check.reports(kSize), nullptr);
      const std::vector<int64_t> rows = one_hot.take();
      const std::vector<float> float_rows = one_hot_floats.take();
      for (int64_t e = 0; e < count * kSize; ++e) {
        const bool is_set = index[size_t(e / kSize)] == e % kSize;
        group.check(rows[size_t(e)] == is_set && float_rows[size_t(e)] == float(is_set), "one_hot %lld",
                    (long long)e);
      }
      group.check(of_one_hot.matches(index, 0, kSize) && of_floats.matches(index, 0, kSize) &&
                      of_check.matches(index, 0, kSize),
                  "%lld indices: another report", (long long)count);

      for (size_t i = 0; i < index.size(); i += 3)
        if (is_valid(index[i], kSize)) index[i] -= kSize;  // counts from the end
      const Elements<int64_t> from(index), to(sums);
      const Record of_flat;
      cuda::flat_index("test", to.data(), from.data(), count, kSize, kStride, of_flat.reports(kSize),
                       nullptr);
      for (size_t i = 0; i < index.size(); ++i)
        sums[i] = -kSize <= index[i] && index[i] < kSize ? sums[i] + (index[i] + kSize) % kSize * kStride
                                                         : INT64_MIN;
      group.check(to.take() == sums && of_flat.matches(index, -kSize, kSize), "flat_index of %lld",
                  (long long)count);
    }
}

}  // namespace

void test_index() {
  test_type<float>("f32");
  test_type<double>("f64");
  test_type<gradus::bf16>("bf16");
  test_type<gradus::f16>("f16");
  test_type<int64_t>("i64");
  test_type<int32_t>("i32");
  test_type<int16_t>("i16");
  test_type<int8_t>("i8");
  test_type<uint8_t>("u8");
  test_positions();
}

}  // namespace device_test
