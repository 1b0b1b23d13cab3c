// Random number kernels against host formulas from the same Philox words: bit-equal, except normal f64
// numbers; also dropout, multinomial with and without replacement, and how invalid probabilities are
// reported.
#include "gradus/tensor/cuda/kernels/random.h"

#include "gradus/tensor/cuda/kernels/multinomial.h"

#include <functional>
#include <memory>

#include "device_test.h"
#include "gradus/tensor/ops/formulas/random.h"

namespace device_test {
namespace {

using gradus::PhiloxKey;
namespace draws = gradus::draws;

// kKey as such, and as the sum (modulo 2^64) of a host part and a part in device memory.
constexpr PhiloxKey kKey{0x123456789abcdef0, (uint64_t{3} << 40) + 17};
class Keys {
 public:
  std::array<cuda::DeviceKey, 2> all() const {
    return {{{kKey}, {{kKey.seed - kPart.seed, kKey.stream - kPart.stream}, on_device_.data()}}};
  }

 private:
  static constexpr PhiloxKey kPart{0xfedcba9876543210, ~uint64_t{0} - 2};
  Elements<uint64_t> on_device_{std::vector<uint64_t>{kPart.seed, kPart.stream}};
};

struct Layout {
  const char* name;
  Sizes sizes;
  cuda::Strides strides;
  int64_t start = 0;
};

// Sizes around the work of a thread and a block, for elements of 1 to 8 bytes.
std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int64_t n : {0,   1,   2,   3,    4,    5,    7,    8,    9,    15,   16,   17,   31,   33,
                          511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8193})
    all.push_back({"rows", {n}, {1}});
  for (const int64_t n : {1, 2, 16, 255, 256, 257, 600}) {
    all.push_back({"misaligned", {n}, {1}, 1});
    all.push_back({"every third", {n}, {3}, 2});
  }
  all.push_back({"rows of images", {2, 3, 5, 7}, row_major({2, 3, 5, 7})});
  all.push_back({"rows with gaps", {9, 33}, {40, 1}});
  all.push_back({"rows with gaps, from element 16 on", {8, 48}, {64, 1}, 16});
  all.push_back({"transposed", {37, 41}, {1, 37}});
  all.push_back({"channels last", {2, 5, 6, 7}, {210, 1, 35, 5}});
  all.push_back({"channels last, misaligned", {2, 16, 3, 3}, {144, 1, 48, 16}, 1});
  all.push_back({"a dim of one element", {1, 30}, {7, 1}});
  all.push_back({"eight dims", {2, 1, 3, 2, 2, 3, 1, 2}, {1, 5, 2, 6, 12, 24, 9, 72}});
  return all;
}

// Draws into every layout with both keys. `draw` starts the kernel; value(i) is the expected element i,
// allowed(i) its tolerance (default: equal bits).
template <class T>
void check(Group& group, const std::function<void(const cuda::DrawOutput&, const cuda::DeviceKey&)>& draw,
           const std::function<T(int64_t)>& value, const std::function<double(int64_t)>& allowed = {}) {
  const Keys keys;
  for (const Layout& l : layouts())
    for (const cuda::DeviceKey& key : keys.all()) {
      int64_t span = l.start + 1;
      for (size_t d = 0; d < l.sizes.size(); ++d) span += std::max<int64_t>(0, l.sizes[d] - 1) * l.strides[d];
      const Buffer out(static_cast<size_t>(span) * sizeof(T));
      draw({{out.data() + l.start * static_cast<int64_t>(sizeof(T)), gradus::dtype_v<T>}, l.sizes, l.strides},
           key);
      const std::vector<unsigned char> got = out.take();
      std::vector<unsigned char> want(got.size(), 0xA5);
      int64_t i = 0;
      for_each_position(l.sizes, {l.strides}, {l.start}, [&](const int64_t* at) {
        const size_t place = Buffer::kMargin + static_cast<size_t>(at[0]) * sizeof(T);
        const T w = value(i);
        T g;
        std::memcpy(&g, &got[place], sizeof g);
        group.check(allowed ? std::abs(as_double(g) - as_double(w)) <= allowed(i) : same(g, w),
                    "%s, element %lld: %.17g, not %.17g", l.name, (long long)i, as_double(g), as_double(w));
        std::memcpy(&want[place], &g, sizeof g);
        ++i;
      });
      group.check(got == want, "%s of %lld: something else was written", l.name, (long long)i);
    }
}

uint32_t word(int64_t i) {
  return gradus::philox(kKey.seed, kKey.stream, static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)];
}
uint64_t two_words(int64_t i) { return uint64_t(word(2 * i)) << 32 | word(2 * i + 1); }

// Element i of the uniform numbers in [0, 1) of a dtype.
template <class C> C unit(int64_t i) {
  if constexpr (std::is_same_v<C, double>)
    return std::ldexp(static_cast<double>(two_words(i) >> 11), -53);
  else
    return std::ldexp(static_cast<float>(word(i) >> 8), -24);
}

template <class T> void test_uniform(const char* name) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Group group(std::string("random uniform numbers of ") + name);
  if (!group) return;
  // In the second range rounding reaches the excluded upper end.
  for (const auto& [low, high] : {std::pair{-2., 3.}, {1., 1.0000002}, {5., 5.}})
    check<T>(
        group,
        [&, low = low, high = high](const cuda::DrawOutput& out, const cuda::DeviceKey& key) {
          cuda::uniform("test", out, low, high, key, nullptr);
        },
        [low = low, high = high](int64_t i) {
          const C v = std::fma(C(high - low), unit<C>(i), C(low));
          return stored<T>(low < high && v >= C(high) ? std::nextafter(C(high), C(low)) : v);
        });
}

// Box-Muller transform, in long double, of the pair of uniform numbers that gives element i.
template <class C> long double radius(int64_t i) {
  return std::sqrt(-2 * std::log(1 - static_cast<long double>(unit<C>(i & ~int64_t{1}))));
}
template <class C> double normal(int64_t i, double mean, double std) {
  const long double turn = 2 * 3.14159265358979323846264338327950288L * unit<C>(i | 1);
  return static_cast<double>(mean + std * radius<C>(i) * (i % 2 ? std::sin(turn) : std::cos(turn)));
}

template <class T> void test_normal(const char* name) {
  Group group(std::string("random normal numbers of ") + name);
  if (!group) return;
  constexpr double kMean = 0.5, kStd = 3;
  const auto draw = [&](const cuda::DrawOutput& out, const cuda::DeviceKey& key) {
    cuda::normal("test", out, kMean, kStd, key, nullptr);
  };
  if constexpr (!std::is_same_v<T, double>) {
    // f32 has the same formulas on both sides.
    const draws::Normal<float> formula(kMean, kStd);
    check<T>(group, draw, [&](int64_t i) {
      const uint32_t words[] = {word(i & ~int64_t{1}), word(i | 1)};
      float pair[2];
      formula(words, pair);
      return stored<T>(pair[i % 2]);
    });
  }
  if constexpr (sizeof(T) >= 4) {
    // Errors in f32: log 2 units in the last place, halved by the root; root and product 1 each; the angle,
    // of at most 1/8 turn, 2; sine and cosine 2 units in the last place. In f64 the angle is up to a whole
    // turn.
    constexpr double kUnit = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53,
                     kParts = 2 + 1 + 1 + (sizeof(T) == 4 ? 1.6 : 12.6) + 4;
    check<T>(
        group, draw, [&](int64_t i) { return static_cast<T>(normal<T>(i, kMean, kStd)); },
        [&](int64_t i) {
          return kUnit * (kParts * kStd * static_cast<double>(radius<T>(i)) +
                          2 * std::abs(normal<T>(i, kMean, kStd)));
        });
  }
}

void test_masks(double p) {
  char of[40];
  std::snprintf(of, sizeof of, "of p = %g", p);
  if (Group group(std::string("random bernoulli mask ") + of); group)
    check<bool>(
        group,
        [&](const cuda::DrawOutput& out, const cuda::DeviceKey& key) {
          cuda::bernoulli("test", out, p, key, nullptr);
        },
        [&](int64_t i) { return static_cast<double>(unit<float>(i)) < p; });
  if (Group group(std::string("random dropout mask ") + of); group)
    check<bool>(
        group,
        [&](const cuda::DrawOutput& out, const cuda::DeviceKey& key) {
          cuda::dropout_mask("test", out, p, key, nullptr);
        },
        [&](int64_t i) { return std::ldexp(word(i / 2) >> i % 2 * 16 & 0xffff, -16) < p; });
}

// The upper 64 bits of a * b, by digits of 32 bits.
uint64_t upper_half(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
  const uint64_t middle = (a0 * b0 >> 32) + (a1 * b0 & 0xffffffff) + (a0 * b1 & 0xffffffff);
  return a1 * b1 + (a1 * b0 >> 32) + (a0 * b1 >> 32) + (middle >> 32);
}

void test_integers() {
  Group group("random integers");
  if (!group) return;
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const auto& [low, range] :
       {std::pair<int64_t, uint64_t>{-5, 100}, {kLeast, ~uint64_t{0}}, {1, uint64_t{3} << 40}, {7, 1}})
    check<int64_t>(
        group,
        [&, low = low, range = range](const cuda::DrawOutput& out, const cuda::DeviceKey& key) {
          cuda::randint("test", out, low, range, key, nullptr);
        },
        [low = low, range = range](int64_t i) {
          return static_cast<int64_t>(static_cast<uint64_t>(low) + upper_half(two_words(i), range));
        });
}

void test_orders() {
  Group group("random orders");
  if (!group) return;
  const Keys keys;
  for (const int64_t n : {1, 2, 3, 31, 32, 33, 34, 64, 65, 66, 98, 1000, 4097})
    for (const cuda::DeviceKey& key : keys.all()) {
      const Elements<int64_t> order(static_cast<size_t>(n));
      cuda::randperm("test", order.data(), n, key, nullptr);
      std::vector<int64_t> want(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) want[size_t(i)] = i;
      for (int64_t i = 0; i < n; ++i)
        std::swap(want[size_t(i)], want[size_t(i) + upper_half(two_words(i), static_cast<uint64_t>(n - i))]);
      group.check(order.take() == want, "of %lld", (long long)n);
      group.check(order.is_clean(), "of %lld: written outside", (long long)n);
    }
}

struct Masked {
  const char* name;
  Sizes sizes;
  cuda::Strides y, x, mask;
  size_t start = 0;
};

template <class T> void test_masked_scale(const char* name) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Group group(std::string("random masked scale of ") + name);
  if (!group) return;
  std::vector<Masked> all = {{"channels are dropped", {2, 5, 21}, {105, 21, 1}, {105, 21, 1}, {5, 1, 0}},
                             {"channels last", {2, 5, 3, 4}, {60, 1, 20, 5}, {60, 12, 4, 1}, {60, 1, 20, 5}},
                             {"rows with gaps", {9, 33}, {33, 1}, {40, 1}, {33, 1}}};
  for (const int64_t n : {1, 2, 7, 8, 9, 512, 1025, 2048, 4100}) {
    all.push_back({"rows", {n}, {1}, {1}, {1}});
    all.push_back({"misaligned", {n}, {1}, {1}, {1}, 1});
  }
  for (const Masked& l : all) {
    const cuda::Strides strides[] = {l.y, l.x, l.mask};
    const cuda::StridedIndex index = cuda::make_strided_index(l.sizes, strides);
    std::array<size_t, 3> count{1, 1, 1};
    for (size_t k = 0; k < 3; ++k)
      for (size_t d = 0; d < l.sizes.size(); ++d)
        count[k] += static_cast<size_t>((l.sizes[d] - 1) * strides[k][d]);
    std::vector<T> x(count[1]);
    for (size_t i = 0; i < x.size(); ++i) x[i] = sample<T>(i, 1);
    std::vector<unsigned char> mask(count[2]);
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = sample<bool>(i, 2);
    const Elements<T> from(x, l.start), to(count[0], l.start);
    const Elements<unsigned char> keep(mask, l.start);
    const cuda::View views[] = {
        {to.data(), gradus::dtype_v<T>}, {from.data(), gradus::dtype_v<T>}, {keep.data(), DType::kBool}};
    cuda::masked_scale("test", index, views, 1.25, nullptr);
    const std::vector<T> y = to.take();
    for_each_position(l.sizes, {l.y, l.x, l.mask}, {0, 0, 0}, [&](const int64_t* at) {
      const T want = mask[size_t(at[2])] ? stored<T>(static_cast<C>(widened(x[size_t(at[1])]) * C(1.25)))
                                         : stored<T>(C(0));
      group.check(same(y[size_t(at[0])], want), "%s: %.9g, not %.9g", l.name, as_double(y[size_t(at[0])]),
                  as_double(want));
    });
    group.check(to.is_clean(), "%s: written outside", l.name);
  }
}

template <class T> void test_dropout(const char* name) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Group group(std::string("random dropout of ") + name);
  if (!group) return;
  std::vector<Masked> all = {
      {"channels last", {2, 5, 3, 4}, {60, 1, 20, 5}, {60, 1, 20, 5}, {60, 1, 20, 5}},
      {"out of row-major order", {2, 5, 3, 4}, {60, 1, 20, 5}, {60, 12, 4, 1}, {60, 1, 20, 5}},
      {"rows with gaps", {9, 33}, {33, 1}, {40, 1}, {33, 1}}};
  for (const int64_t n : {1, 2, 3, 7, 8, 9, 512, 1025, 2048, 4100}) {
    all.push_back({"rows", {n}, {1}, {1}, {1}});
    all.push_back({"misaligned", {n}, {1}, {1}, {1}, 1});
  }
  const Keys keys;
  for (const Masked& l : all)
    for (const cuda::DeviceKey& key : keys.all()) {
      std::array<size_t, 3> count{1, 1, 1};
      const cuda::Strides* const strides[] = {&l.y, &l.mask, &l.x};
      for (size_t k = 0; k < 3; ++k)
        for (size_t d = 0; d < l.sizes.size(); ++d)
          count[k] += static_cast<size_t>((l.sizes[d] - 1) * (*strides[k])[d]);
      std::vector<T> x(count[2]);
      for (size_t i = 0; i < x.size(); ++i) x[i] = sample<T>(i, 1);
      const Elements<T> from(x, l.start), to(count[0], l.start);
      const Elements<unsigned char> kept(count[1], l.start);
      const cuda::Dropout d{l.sizes,
                            {cuda::View{to.data(), gradus::dtype_v<T>}, cuda::View{kept.data(), DType::kBool},
                             cuda::View{from.data(), gradus::dtype_v<T>}},
                            {l.y, l.mask, l.x}};
      cuda::dropout("test", d, 0.3, 1.25, key, nullptr);
      const std::vector<T> y = to.take();
      const std::vector<unsigned char> mask = kept.take();
      int64_t i = 0;
      for_each_position(l.sizes, {l.y, l.mask, l.x}, {0, 0, 0}, [&](const int64_t* at) {
        const bool keeps = std::ldexp(word(i / 2) >> i % 2 * 16 & 0xffff, -16) < 0.3;
        const T want =
            keeps ? stored<T>(static_cast<C>(widened(x[size_t(at[2])]) * C(1.25))) : stored<T>(C(0));
        group.check(mask[size_t(at[1])] == keeps, "%s: mask %lld", l.name, (long long)i);
        group.check(same(y[size_t(at[0])], want), "%s: %.9g, not %.9g", l.name, as_double(y[size_t(at[0])]),
                    as_double(want));
        ++i;
      });
      group.check(to.is_clean() && kept.is_clean(), "%s: written outside", l.name);
    }
}

// bernoulli_from_uniform(): 1 where u < p; where p is no probability the result is NaN and the first such
// element is reported in a ValueRecord, in parts of 24 bits.
template <class T> void test_below(const char* name) {
  Group group(std::string("random below p of ") + name);
  if (!group) return;
  const T above = std::nextafter(T(1), T(2));
  const T p[] = {T(0), T(0.5), T(1), -T(0.25), above, T(1.5), T(INFINITY), T(NAN), T(0.25), T(-0.), -above};
  for (const int64_t n : {1, 10, 511, 1024, 2049}) {
    std::vector<T> u(size_t(n), T(0)), probability(size_t(n), T(0));
    for (size_t i = 0; i < u.size(); ++i)
      u[i] = std::ldexp(T(mix(i) % 16), -4), probability[i] = p[i % std::size(p)];
    const Elements<T> numbers(u), again(u), limits(probability);
    void* record;
    MUST(cudaMallocHost(&record, sizeof(cuda::ValueRecord)));
    auto* const found = static_cast<cuda::ValueRecord*>(record);
    *found = {};
    const cuda::View p_view{limits.data(), gradus::dtype_v<T>};
    cuda::bernoulli_from_uniform("test", {numbers.data(), gradus::dtype_v<T>}, p_view, n, {found, 7, 5},
                                 nullptr);
    // The record is taken: this launch must not overwrite it.
    cuda::bernoulli_from_uniform("test", {again.data(), gradus::dtype_v<T>}, p_view, n, {found, 8, 5},
                                 nullptr);
    const std::vector<T> y = numbers.take();
    const bool is_any = n > 3;  // the first of them is at 3
    const uint64_t value = __builtin_bit_cast(uint64_t, -0.25);
    group.check(found->launch == (is_any ? 7 : 0), "%lld elements: launch %llu reports", (long long)n,
                (unsigned long long)found->launch);
    group.check(found->limit == (is_any ? 5 : cuda::ValueRecord::kNone), "%lld elements: another limit",
                (long long)n);
    for (int i = 0; i < cuda::ValueRecord::kParts; ++i) {
      const uint64_t part = value >> (24 * i) & 0xffffff,
                     want = is_any ? uint64_t{3} << 24 | part : ~uint64_t{0};
      group.check(found->words[i] == want, "%lld elements: word %d is %llx, not %llx", (long long)n, i,
                  (unsigned long long)found->words[i], (unsigned long long)want);
    }
    MUST(cudaFreeHost(record));
    for (size_t i = 0; i < u.size(); ++i) {
      const bool is_probability = probability[i] >= 0 && probability[i] <= 1;
      const T want = is_probability ? T(u[i] < probability[i]) : T(NAN);
      group.check(same(y[i], want), "%.9g below %.9g: %.9g", double(u[i]), double(probability[i]),
                  double(y[i]));
    }
    group.check(numbers.is_clean(), "%lld elements: written outside", (long long)n);
  }
}

// A call of the multinomial kernel: rows of n weights, `count` draws each; `found` is what it reports.
struct Drawing {
  std::vector<double> weights, uniform;
  int64_t rows, n, count;
  bool replacement;
  std::vector<int64_t> drawn{};
  // On the heap: g++ 12's AddressSanitizer gives objects on the stack less than their alignment of 64 bytes.
  std::unique_ptr<cuda::ValueRecord> found{};
  bool is_clean = false;

  void run() {
    const Elements<int64_t> out(size_t(rows * count));
    const Elements<double> w(weights), u(uniform);
    const cuda::Multinomial m{out.data(), w.data(), u.data(), rows, n, count};
    const Buffer workspace(static_cast<size_t>(cuda::multinomial_workspace(m, replacement)));
    void* record;
    MUST(cudaMallocHost(&record, sizeof(cuda::ValueRecord)));
    auto* const reports = static_cast<cuda::ValueRecord*>(record);
    *reports = {};
    cuda::multinomial("test", m, replacement, workspace.data(),
                      {reports, 7, count, cuda::reported_per_row(n)}, nullptr);
    drawn = out.take();
    found = std::make_unique<cuda::ValueRecord>(*reports);
    is_clean = out.is_clean();
    MUST(cudaFreeHost(record));
  }
};

// Uniform numbers and weights (some are 0) whose exponential numbers are far apart or equal, so that their
// order does not depend on rounding.
double apart(int64_t i) { return static_cast<double>(mix(static_cast<uint64_t>(i)) % 1024) / 1024; }
double weight(int64_t i) { return i % 5 == 3 ? 0 : i % 7 == 2 ? 0x3p-42 : 0.75; }

// Running sums in the order that Note [Order of running sums] (multinomial kernels) prescribes.
std::vector<double> running_sums(const double* w, int64_t n) {
  std::vector<double> sums;
  double chunks = 0, groups = 0, group = 0;
  for (int64_t i = 0; i < n; ++i) {
    group += w[i];
    sums.push_back(chunks + (groups + group));
    if (i % 16 == 15) groups += group, group = 0;
    if (i % 512 == 511) chunks += groups, groups = 0;
  }
  return sums;
}

void test_draws_again() {
  Group group("multinomial with replacement");
  if (!group) return;
  for (const int64_t n : {1, 2, 15, 16, 17, 31, 33, 511, 512, 513, 1025, 16384, 16900})
    for (const int64_t rows : {1, 3, 9}) {
      if (n > 2000 && rows == 9) continue;
      Drawing d{{}, {}, rows, n, 70, true};
      for (int64_t i = 0; i < rows * n; ++i)
        d.weights.push_back(n > 1 && i % 5 == 3 ? 0 : std::ldexp(double(mix(uint64_t(i + 1)) >> 11), -60));
      for (int64_t i = 0; i < rows * d.count; ++i)
        d.uniform.push_back(i % d.count == 0   ? 0
                            : i % d.count == 1 ? 1 - 0x1p-53
                                               : std::ldexp(double(mix(uint64_t(i + 77)) >> 11), -53));
      d.run();
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<double> sums = running_sums(&d.weights[size_t(r * n)], n);
        for (int64_t i = r * d.count; i < (r + 1) * d.count; ++i) {
          const double v = d.uniform[size_t(i)] * sums.back();
          const int64_t want = std::upper_bound(sums.begin(), sums.end(), v) - sums.begin();
          group.check(d.drawn[size_t(i)] == want, "draw %lld of %lld: %lld, not %lld", (long long)i,
                      (long long)n, (long long)d.drawn[size_t(i)], (long long)want);
        }
      }
      group.check(d.found->launch == 0 && d.is_clean, "%lld rows of %lld: reported, or written outside",
                  (long long)rows, (long long)n);
    }
  // Below the smallest normal number, products are rounded up to the total.
  Drawing tiny{{0, 5e-324, 5e-324, 0}, {0.25, 0.5, 0.75, 1 - 0x1p-53}, 1, 4, 4, true};
  tiny.run();
  group.check(tiny.drawn == std::vector<int64_t>{1, 2, 2, 2}, "of tiny weights");
}

void test_draws_once() {
  Group group("multinomial without replacement");
  if (!group) return;
  for (const int64_t n : {1, 2, 15, 17, 31, 32, 33, 64, 65, 255, 256, 257, 511, 513, 769, 1025, 1300})
    for (const int64_t rows : {1, 3, 9}) {
      if (n > 300 && rows == 9) continue;
      Drawing d{{}, {}, rows, n, 0, false};
      for (int64_t i = 0; i < rows * n; ++i)
        d.weights.push_back(n == 1 ? 0.75 : weight(i)), d.uniform.push_back(apart(i));
      int64_t most = n;
      for (int64_t r = 0; r < rows; ++r)
        most = std::min<int64_t>(
            most, n - std::count(&d.weights[size_t(r * n)], &d.weights[size_t(r * n)] + n, 0.));
      for (const int64_t count : {int64_t{1}, most / 2, most, n}) {
        if (count < 1) continue;
        d.count = count;
        d.run();
        for (int64_t r = 0; r < rows; ++r) {
          std::vector<std::pair<double, int64_t>> order;
          for (int64_t i = 0; i < n; ++i) {
            const double w = d.weights[size_t(r * n + i)], u = d.uniform[size_t(r * n + i)];
            order.push_back({w > 0 ? -std::log1p(-u) / w : INFINITY, i});
          }
          std::sort(order.begin(), order.end());
          for (int64_t i = 0; i < count; ++i)
            group.check(d.drawn[size_t(r * count + i)] == order[size_t(i)].second,
                        "draw %lld of row %lld of %lld: %lld, not %lld", (long long)i, (long long)r,
                        (long long)n, (long long)d.drawn[size_t(r * count + i)],
                        (long long)order[size_t(i)].second);
        }
        group.check((d.found->launch == 0) == (count <= most) && d.is_clean,
                    "%lld of %lld, %lld rows: reported, or written outside", (long long)count, (long long)n,
                    (long long)rows);
      }
    }
}

void test_wrong_weights() {
  Group group("multinomial, what is no weight");
  if (!group) return;
  struct Wrong {
    // The reported position and value; row -1: none. place: index of an invalid weight, n: the sum overflows,
    // n + 1: fewer nonzero weights than draws.
    int64_t row, place;
    double value;
    std::vector<std::pair<int64_t, double>> weights;  // {index, weight}; all others are 2^-12
    bool replacement = true;
    int64_t count = 3;
  };
  constexpr int64_t kRows = 9, kLong = 1100;
  for (const Wrong& w :
       std::vector<Wrong>{{-1, 0, 0, {{4 * kLong + 3, 0.}}},
                          {4, 600, -1, {{4 * kLong + 600, -1.}, {4 * kLong + 601, NAN}}},
                          {4, 1099, INFINITY, {{4 * kLong + 1099, INFINITY}, {5 * kLong, -1.}}},
                          {8, 0, -0.5, {{8 * kLong, -0.5}}, false},
                          {2, kLong, INFINITY, {{2 * kLong + 1, 1.7e308}, {2 * kLong + 700, 1.7e308}}},
                          {-1, 0, 0, {{0, 0.}}, false, kLong - 1},
                          {0, kLong + 1, 0, {{7, 0.}, {9, 0.}}, false, kLong - 1}}) {
    Drawing d{std::vector<double>(size_t(kRows * kLong), 0x1p-12),
              std::vector<double>(size_t(kRows * (w.replacement ? w.count : kLong)), 0.5),
              kRows,
              kLong,
              w.count,
              w.replacement};
    for (const auto& [at, value] : w.weights) d.weights[size_t(at)] = value;
    d.run();
    const uint64_t value = w.place == kLong + 1 ? uint64_t(kLong - 2) : __builtin_bit_cast(uint64_t, w.value);
    group.check(d.found->launch == (w.row < 0 ? 0 : 7), "row %lld: launch %llu", (long long)w.row,
                (unsigned long long)d.found->launch);
    for (int i = 0; i < cuda::ValueRecord::kParts && w.row >= 0; ++i) {
      const uint64_t want = uint64_t(w.row * (kLong + 2) + w.place) << 24 | (value >> (24 * i) & 0xffffff);
      group.check(d.found->words[i] == want, "row %lld: word %d is %llx, not %llx", (long long)w.row, i,
                  (unsigned long long)d.found->words[i], (unsigned long long)want);
    }
    if (w.row >= 0)
      group.check(d.found->limit == uint64_t(w.count) && d.found->per_row == kLong + 2, "limits");
    for (const int64_t i : d.drawn) group.check(i >= 0 && i < kLong, "drawn %lld", (long long)i);
  }
  // More chunks than a warp sums at once: the NaN must reach later chunks.
  constexpr int64_t kMany = 40 * 512;
  Drawing many{std::vector<double>(size_t(kMany), 1), {0.5}, 1, kMany, 1, true};
  many.weights[5] = -1;
  many.run();
  group.check(many.found->launch == 7 && many.found->words[0] >> 24 == 5, "of many chunks");
  Drawing none{{0, 0, 0}, {0.5}, 1, 3, 1, true};
  none.run();
  group.check(none.found->launch == 7 && none.found->words[0] >> 24 == 3 && none.drawn[0] == 0, "all 0");
}

}  // namespace

void test_random() {
  test_uniform<float>("f32");
  test_uniform<f16>("f16");
  test_uniform<bf16>("bf16");
  test_uniform<double>("f64");
  test_normal<float>("f32");
  test_normal<f16>("f16");
  test_normal<bf16>("bf16");
  test_normal<double>("f64");
  for (const double p : {0., 0.3, 1.}) test_masks(p);
  test_integers();
  test_orders();
  test_masked_scale<float>("f32");
  test_masked_scale<f16>("f16");
  test_masked_scale<bf16>("bf16");
  test_masked_scale<double>("f64");
  test_dropout<float>("f32");
  test_dropout<f16>("f16");
  test_dropout<bf16>("bf16");
  test_dropout<double>("f64");
  test_below<float>("f32");
  test_below<double>("f64");
  test_draws_again();
  test_draws_once();
  test_wrong_weights();
}

}  // namespace device_test
