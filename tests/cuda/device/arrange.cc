// Kernels of tril and triu, repeat_interleave, nonzero, masked_select, masked_scatter and resampling against
// host loops, bit for bit, in sizes around a warp, a block, a chunk of a mask (1024) and the pieces of a scan
// (2048).
#include "gradus/tensor/cuda/kernels/arrange.h"

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/images/resample.h"
#include "gradus/tensor/cuda/kernels/masks.h"

namespace device_test {
namespace {

template <class T> std::vector<T> samples(int64_t count, uint64_t salt) {
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = sample<T>(i, salt);
  return x;
}

// A record for reports in pinned memory.
struct Record {
  Record() {
    void* p;
    MUST(cudaMallocHost(&p, sizeof(cuda::ValueRecord)));
    record = new (p) cuda::ValueRecord;
  }
  ~Record() { cudaFreeHost(record); }
  cuda::ValueReports reports() const { return {record, 7, 0}; }
  // Whether `value` was reported at `position`, and nothing at a smaller one; position -1: no report.
  bool has(int64_t position, int64_t value) const {
    MUST(cudaDeviceSynchronize());
    if (position < 0) return record->launch == 0;
    uint64_t bits = 0;
    for (int p = 0; p < cuda::ValueRecord::kParts; ++p) {
      if (record->words[p] >> 24 != static_cast<uint64_t>(position)) return false;
      bits |= (record->words[p] & 0xffffff) << (24 * p);
    }
    return record->launch == 7 && bits == static_cast<uint64_t>(value);
  }
  cuda::ValueRecord* record;
};

template <class T> void check_triangle(Group& group, const Sizes& s, int64_t diagonal, size_t start) {
  const int64_t count = s[0] * s[1] * s[2];
  const std::vector<T> x = samples<T>(count, 1);
  const Elements<T> from(x, start), to(static_cast<size_t>(count), start);
  for (const bool upper : {false, true}) {
    std::vector<T> want = x;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t number = i % s[2] - i / s[2] % s[1];  // of the diagonal
      if (upper ? number < diagonal : number > diagonal) want[size_t(i)] = T();
    }
    cuda::triangle("test", to.data(), from.data(), sizeof(T), count, s[1], s[2], diagonal, upper, nullptr);
    const std::vector<T> got = to.take();
    group.check(std::equal(got.begin(), got.end(), want.begin(), &same<T>) && to.is_clean(),
                "[%lld, %lld, %lld] diagonal %lld, upper %d", (long long)s[0], (long long)s[1],
                (long long)s[2], (long long)diagonal, upper);
  }
}
template <class T> void test_triangles(const char* name) {
  Group group(std::string("triangles of ") + name);
  if (!group) return;
  for (const Sizes& s : std::vector<Sizes>{{1, 1, 1},
                                           {1, 1, 300},
                                           {2, 300, 1},
                                           {3, 5, 7},
                                           {1, 16, 16},
                                           {2, 33, 64},
                                           {1, 257, 31},
                                           {4, 2, 512}})
    for (const int64_t diagonal : {-400, -3, -1, 0, 1, 5, 400})
      check_triangle<T>(group, s, diagonal, size_t(s[1] % 2 && diagonal % 2));
  if (!options().small) check_triangle<T>(group, {3, 2049, 4100}, 7, 0);
}

std::vector<int64_t> counts() {
  std::vector<int64_t> n = {0, 1, 31, 32, 33, 255, 256, 257, 2047, 2048, 2049, 4097};
  if (!options().small) n.insert(n.end(), {2048 * 2048 + 1, 9'000'001});
  return n;
}

// Each count of repeat_interleave is 0 to 3. `wrong`: 1 a negative one, 2 two that exceed 64 bits, 3 another size.
void check_repeat(Group& group, int64_t n, int wrong) {
  std::vector<int64_t> counts(static_cast<size_t>(n)), want;
  for (int64_t i = 0; i < n; ++i) {
    counts[size_t(i)] = static_cast<int64_t>(mix(uint64_t(i + n)) % 4);
    want.insert(want.end(), size_t(counts[size_t(i)]), i);
  }
  int64_t position = -1, value = 0;
  auto size = static_cast<int64_t>(want.size());
  if (wrong == 1) counts[size_t(n / 2)] = value = -5, position = n / 2 * 2;
  if (wrong == 2) {
    counts[size_t(n / 3)] = counts[size_t(n - 1)] = INT64_MAX;
    uint64_t sum = 0;
    for (int64_t i = 0; position < 0; ++i) {
      sum += static_cast<uint64_t>(counts[size_t(i)]);
      if (sum >> 63) position = 2 * i + 1, value = static_cast<int64_t>(sum);
    }
  }
  if (wrong == 3) position = 2 * n, value = size++;
  const Elements<int64_t> by(counts), to(static_cast<size_t>(size));
  const Buffer workspace(static_cast<size_t>(cuda::repeat_workspace(n)));
  const Record record;
  cuda::repeat("test", to.data(), size, by.data(), n, workspace.data(), record.reports(), nullptr);
  group.check(record.has(position, value), "%lld counts, wrong %d: another report", (long long)n, wrong);
  group.check(wrong || to.take() == want, "%lld counts", (long long)n);
  group.check(to.is_clean(), "%lld counts: written outside", (long long)n);
}

// One mask: its true elements are `share` of 8.
template <class T> void check_masks(Group& group, int64_t n, uint64_t share, size_t start) {
  std::vector<char> mask(static_cast<size_t>(n));
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += mask[size_t(i)] = mix(uint64_t(i) + share * 77) % 8 < share;
  const Elements<char> flags(mask, start);
  const bool* const m = reinterpret_cast<const bool*>(flags.data());
  const std::vector<T> x = samples<T>(n, 1);
  const Elements<T> from(x, start);
  const Buffer workspace(static_cast<size_t>(cuda::mask_workspace(n)));
  const auto is_same = [&](const Elements<T>& got, const std::vector<T>& want) {
    const std::vector<T> v = got.take();
    return std::equal(v.begin(), v.end(), want.begin(), want.end(), &same<T>) && got.is_clean();
  };
  for (const int64_t more : {-1, 0, 3000}) {  // elements of the result
    const int64_t size = std::max<int64_t>(count + more, 0);
    std::vector<T> selected, scattered = x;
    for (int64_t i = 0; i < n; ++i)
      if (mask[size_t(i)]) selected.push_back(x[size_t(i)]);
    selected.resize(size_t(size));
    const std::vector<T> source = samples<T>(size, 2);
    for (int64_t i = 0, at = 0; i < n; ++i)
      if (mask[size_t(i)]) scattered[size_t(i)] = size == 0 ? T() : source[size_t(std::min(at++, size - 1))];
    const Record of_select, of_scatter;
    const Elements<T> to(size_t(size), start), src(source, start), into(size_t(n), start);
    cuda::masked_select("test", to.data(), size, from.data(), sizeof(T), m, n, workspace.data(),
                        of_select.reports(), nullptr);
    group.check(is_same(to, selected), "%lld of %lld selected into %lld", (long long)count, (long long)n,
                (long long)size);
    cuda::masked_scatter("test", into.data(), from.data(), sizeof(T), m, n, src.data(), size,
                         workspace.data(), of_scatter.reports(), nullptr);
    group.check(is_same(into, scattered), "%lld of %lld scattered from %lld", (long long)count, (long long)n,
                (long long)size);
    const int64_t position = size < count && n > 0 ? 0 : -1;
    group.check(of_select.has(position, count) && of_scatter.has(position, count),
                "%lld of %lld: another report", (long long)count, (long long)n);
  }
  if (n % 6 != 0 || n == 0) return;  // of shape [n / 6, 2, 3]
  std::vector<int64_t> want;
  for (int64_t i = 0; i < n; ++i)
    if (mask[size_t(i)]) want.insert(want.end(), {i / 6, i / 3 % 2, i % 3});
  const Elements<int64_t> at(want.size());
  cuda::nonzero("test", at.data(), m, n, {3, {n / 6, 2, 3}}, workspace.data(), nullptr);
  group.check(at.take() == want && at.is_clean(), "nonzero of %lld", (long long)n);
}
template <class T> void test_masks(const char* name) {
  Group group(std::string("masks of ") + name);
  if (!group) return;
  for (const int64_t n : {0, 1, 6, 31, 32, 33, 1020, 1023, 1024, 1025, 1026, 8192, 8193})
    check_masks<T>(group, n, 3, size_t(n % 2));
  for (const uint64_t share : {0, 8}) check_masks<T>(group, 1025, share, 0);
  if (!options().small)
    for (const int64_t n : {2'097'152, 2'097'159, 9'000'006}) check_masks<T>(group, n, 3, 0);
}

// The matrix of an axis: output i has i % 4 entries (`identity`: one, of weight 1), in any positions.
struct Axis {
  int64_t in, out;
  std::vector<int64_t> start{0}, from;
  std::vector<double> weight;
  Axis(int64_t in, int64_t out, bool is_dense) : in(in), out(out) {
    for (int64_t i = 0; i < out; ++i) {
      for (int64_t k = 0; k < (is_dense ? 1 : i % 4); ++k) {
        from.push_back(is_dense ? i : static_cast<int64_t>(mix(uint64_t(i * 5 + k)) % uint64_t(in)));
        weight.push_back(is_dense ? 1 : 0.25 * double(k + 1));
      }
      start.push_back(static_cast<int64_t>(from.size()));
    }
  }
};
struct AxisOnDevice {
  Elements<int64_t> start, from;
  Elements<double> weight;
  explicit AxisOnDevice(const Axis& a) : start(a.start), from(a.from), weight(a.weight) {}
  cuda::ResampledAxis of(const Axis& a, bool identity) const {
    if (identity) return {a.in, a.out, nullptr, nullptr, nullptr};
    return {a.in, a.out, start.data(), from.data(), weight.data()};
  }
};

template <class T> void test_resampling(const char* name) {
  Group group(std::string("resampling of ") + name);
  if (!group) return;
  for (const int64_t channels : {1, 3, 4, 8, 20})
    for (const bool d_is_identity : {true, false})
      for (const size_t first : {0, 1}) {
        const int64_t images = 2;
        const Axis d(3, d_is_identity ? 3 : 2, d_is_identity), h(5, 7, false),
            w(6, channels > 4 ? 9 : 33, false);
        const std::vector<T> x = samples<T>(images * 3 * 5 * 6 * channels, 1);
        std::vector<T> want;
        for (int64_t r = 0; r < images * d.out * h.out * w.out; ++r)
          for (int64_t c = 0; c < channels; ++c) {
            const auto q = size_t(r % w.out), p = size_t(r / w.out % h.out),
                       o = size_t(r / w.out / h.out % d.out);
            const int64_t image = r / w.out / h.out / d.out;
            T sum = 0;
            for (auto k = size_t(w.start[q]); k < size_t(w.start[q + 1]); ++k) {
              T column = 0;
              for (auto i = size_t(d.start[o]); i < size_t(d.start[o + 1]); ++i)
                for (auto j = size_t(h.start[p]); j < size_t(h.start[p + 1]); ++j)
                  column +=
                      T(d.weight[i] * h.weight[j]) *
                      x[size_t((((image * 3 + d.from[i]) * 5 + h.from[j]) * 6 + w.from[k]) * channels + c)];
              sum += T(w.weight[k]) * column;
            }
            want.push_back(sum);
          }
        const AxisOnDevice on_d(d), on_h(h), on_w(w);
        const Elements<T> from(x, first), to(want.size(), first);
        cuda::resample("test", to.data(), from.data(),
                       {images, channels, on_d.of(d, d_is_identity), on_h.of(h, false), on_w.of(w, false)},
                       nullptr);
        const std::vector<T> got = to.take();
        group.check(std::equal(got.begin(), got.end(), want.begin(), &same<T>) && to.is_clean(),
                    "%lld channels, identity %d, start %zu", (long long)channels, d_is_identity, first);
      }
}

}  // namespace

void test_arrange() {
  test_triangles<double>("f64");
  test_triangles<float>("f32");
  test_triangles<bf16>("bf16");
  test_triangles<int8_t>("i8");
  {
    Group group("repeated indices");
    if (group)
      for (const int64_t n : counts())
        for (int wrong = 0; wrong <= 3; ++wrong)
          if (n > 2 || wrong == 0 || wrong == 3) check_repeat(group, n, wrong);
  }
  test_masks<double>("f64");
  test_masks<float>("f32");
  test_masks<bf16>("bf16");
  test_masks<int8_t>("i8");
  test_resampling<float>("f32");
  test_resampling<double>("f64");
}

}  // namespace device_test
