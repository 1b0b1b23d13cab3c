// Kernels for copy (all layouts and dtype conversions), several copies in one launch, fill, arange and linspace:
// bit-equal to loops on the host, and no byte outside of the output is written.
#include <functional>
#include <memory>
#include <numeric>

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/copy.h"

namespace device_test {
namespace {

// Shape, strides and first element of both operands, in elements.
struct CopyLayout {
  const char* name;
  Sizes sizes;
  cuda::Strides to, from;
  int64_t to_start, from_start;
};

std::vector<CopyLayout> layouts() {
  std::vector<CopyLayout> all = {
      {"rows with gaps", {7, 33}, {33, 1}, {40, 1}, 0, 0},
      {"rows of words", {8, 32}, {32, 1}, {64, 1}, 0, 0},
      {"into rows with gaps", {8, 48}, {64, 1}, {48, 1}, 16, 0},
      {"odd rows, even gaps", {6, 33}, {34, 1}, {40, 1}, 0, 0},
      {"even rows, odd gaps", {8, 32}, {32, 1}, {33, 1}, 0, 0},
      {"misaligned words", {8, 32}, {32, 1}, {64, 1}, 0, 1},
      {"reversed", {77}, {1}, {-1}, 0, 76},
      {"broadcast row", {13, 65}, {65, 1}, {0, 1}, 0, 0},
      {"broadcast column", {65, 13}, {13, 1}, {1, 0}, 0, 0},
      {"one element", {1000}, {1}, {0}, 0, 0},
      {"every third", {500}, {1}, {3}, 0, 2},
      {"to every third", {500}, {3}, {1}, 1, 0},
      {"nothing", {0, 5}, {5, 1}, {5, 1}, 0, 0},
  };
  for (const int64_t n : {1, 2, 3, 15, 16, 17, 100, 4096, 5001}) {
    all.push_back({"flat", {n}, {1}, {1}, 0, 0});
    all.push_back({"flat, misaligned", {n}, {1}, {1}, 1, 3});
  }
  for (const int64_t r : {1, 2, 31, 32, 33, 64, 100})
    for (const int64_t c : {2, 31, 32, 33, 65}) {
      all.push_back({"transposed", {r, c}, {c, 1}, {1, r}, 0, 0});
      all.push_back({"images to channels last",
                     {2, r, 3, c},
                     {r * 3 * c, 1, c * r, r},
                     {r * 3 * c, 3 * c, c, 1},
                     0,
                     0});
      all.push_back({"images to channels first",
                     {2, r, 3, c},
                     {r * 3 * c, 3 * c, c, 1},
                     {r * 3 * c, 1, c * r, r},
                     1,
                     0});
    }
  return all;
}

// Elements from the buffer's begin to the last one that the layout reaches.
int64_t span(const Sizes& sizes, const cuda::Strides& strides, int64_t start) {
  for (size_t d = 0; d < sizes.size(); ++d) start += std::max<int64_t>(0, (sizes[d] - 1) * strides[d]);
  return start + 1;
}

template <class To, class From> To host_convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<To, bool>)
    return widened(x) != 0;
  else
    return stored<To>(widened(x));
}

template <class To, class From> void test_copy(Group& group, const CopyLayout& l) {
  const int64_t to_span = span(l.sizes, l.to, l.to_start), from_span = span(l.sizes, l.from, l.from_start);
  const auto count = static_cast<size_t>(from_span);
  const auto x = std::make_unique<From[]>(count);
  for (size_t i = 0; i < count; ++i) {
    // Within the range of every dtype.
    if constexpr (std::is_same_v<To, From>)
      x[i] = sample<From>(i, 9);
    else if constexpr (std::is_same_v<From, bool>)
      x[i] = sample<bool>(i, 9);
    else
      x[i] = host_convert<From>(sample<double>(i, 9, false) * 60 +
                                (std::is_integral_v<To> || std::is_integral_v<From> ? 60 : 0));
  }
  const Buffer in(count * sizeof(From)), out(static_cast<size_t>(to_span) * sizeof(To));
  in.put(x.get(), count * sizeof(From));
  const cuda::Strides strides[] = {l.to, l.from};
  const cuda::StridedIndex index = cuda::make_strided_index(l.sizes, strides);
  const cuda::View views[] = {
      {out.data() + l.to_start * static_cast<int64_t>(sizeof(To)), gradus::dtype_v<To>},
      {in.data() + l.from_start * static_cast<int64_t>(sizeof(From)), gradus::dtype_v<From>}};
  cuda::copy("test", index, views, nullptr);
  const std::vector<unsigned char> got = out.take();
  std::vector<unsigned char> want(got.size(), 0xA5);
  bool right = true;
  for_each_position(l.sizes, {l.to, l.from}, {l.to_start, l.from_start}, [&](const int64_t* at) {
    const To w = host_convert<To>(x[static_cast<size_t>(at[1])]);
    const size_t place = Buffer::kMargin + static_cast<size_t>(at[0]) * sizeof(To);
    To g;
    std::memcpy(&g, &got[place], sizeof g);
    right = right && same(g, w);
    std::memcpy(&want[place], &g, sizeof g);
  });
  group.check(right, "%s, %s from %s: wrong elements", l.name,
              std::string(gradus::name_of(gradus::dtype_v<To>)).c_str(),
              std::string(gradus::name_of(gradus::dtype_v<From>)).c_str());
  group.check(got == want, "%s: something else was written", l.name);
}

template <class T> void test_one_dtype(const char* name) {
  Group group(std::string("copy ") + name);
  if (!group) return;
  for (const CopyLayout& l : layouts()) test_copy<T, T>(group, l);
}

// Copies x_i [rows, columns[i]] side by side to out [rows, sum of columns], from rows with gaps. `mixed`: also x_i that
// are transposed, a broadcast row, and of another dtype.
template <class T>
void check_copy_all(Group& group, int64_t rows, const Sizes& columns, int64_t gap, size_t start, bool mixed) {
  const int64_t width = std::accumulate(columns.begin(), columns.end(), int64_t{0});
  std::vector<T> want(static_cast<size_t>(rows * width));
  const Elements<T> out(want.size(), start);
  std::vector<std::unique_ptr<Elements<T>>> xs;
  std::vector<std::unique_ptr<Elements<int8_t>>> others;
  std::vector<cuda::StridedCopy> copies;
  int64_t at = 0;  // of x_i in a row of out
  for (size_t i = 0; i < columns.size(); at += columns[i++]) {
    const int64_t kind = mixed ? int64_t(i % 4) : 0;
    const cuda::Strides from = kind == 1   ? cuda::Strides{1, rows}
                               : kind == 2 ? cuda::Strides{0, 1}
                                           : cuda::Strides{columns[i] + gap, 1};
    const cuda::Strides strides[] = {{width, 1}, from};
    const Sizes sizes = {rows, columns[i]};
    const auto n = static_cast<size_t>(rows * (columns[i] + gap));
    std::vector<T> x(n);
    std::vector<int8_t> other(n);
    for (size_t k = 0; k < n; ++k) {
      other[k] = sample<int8_t>(k, i, false);
      x[k] = kind == 3 ? from_double<T>(other[k]) : sample<T>(k, i);
    }
    xs.push_back(std::make_unique<Elements<T>>(x, start));
    others.push_back(std::make_unique<Elements<int8_t>>(other));
    copies.push_back({cuda::make_strided_index(sizes, strides),
                      {cuda::View{out.data() + at, gradus::dtype_v<T>},
                       kind == 3 ? cuda::View{others.back()->data(), DType::kI8}
                                 : cuda::View{xs.back()->data(), gradus::dtype_v<T>}}});
    for_each_position(sizes, {strides[0], from}, {at, 0},
                      [&](const int64_t* p) { want[size_t(p[0])] = x[size_t(p[1])]; });
  }
  cuda::copy_all("test", copies, nullptr);
  group.check(same_bits(out.take(), want) && out.is_clean(),
              "%zu of %lld rows, the first of %lld columns, gap %lld, start %zu, mixed %d", columns.size(),
              (long long)rows, (long long)columns[0], (long long)gap, start, mixed);
}
// Copies of 1, 2, 4, 8 and 16 bytes in a word, around the 1024 words of a block and the 15 copies of a launch.
template <class T> void test_copy_all(const char* name) {
  Group group(std::string("copy several ") + name);
  if (!group) return;
  for (const size_t start : {0, 1})
    for (const bool mixed : {false, true})
      for (const int64_t gap : {0, 1, 16}) {
        for (const Sizes& columns :
             std::vector<Sizes>{{1}, {1, 1}, {64, 64, 64}, {16, 48, 32, 16}, {33, 64, 1}, {4, 2, 8, 6}})
          for (const int64_t rows : {1, 7, 33}) check_copy_all<T>(group, rows, columns, gap, start, mixed);
        for (const size_t count : {14, 15, 16, 31})
          check_copy_all<T>(group, 3, Sizes(count, 16), gap, start, mixed);
      }
  for (const int64_t words : {1023, 1024, 1025, 2049})
    for (const int64_t n : {words, words * 16 / int64_t(sizeof(T))})
      for (const size_t start : {0, 1}) {
        check_copy_all<T>(group, 1, {n, n, 1}, 0, start, false);
        check_copy_all<T>(group, 1, {n, n, n}, 0, start, false);
      }
  if (!options().small) check_copy_all<T>(group, 4099, {1024, 2048, 1008}, 16, 0, false);
}

template <class T> void test_fill(const char* name, T value) {
  Group group(std::string("fill ") + name);
  if (!group) return;
  for (const int64_t start : {0, 1})
    for (const int64_t n : {1, 2, 3, 7, 8, 9, 15, 16, 17, 255, 256, 257, 4097}) {
      for (const int64_t stride : {1, 3}) {
        const Buffer out(static_cast<size_t>(start + n * stride) * sizeof(T));
        const cuda::Strides strides[] = {{stride}};
        const Sizes sizes = {n};
        cuda::fill("test", cuda::make_strided_index(sizes, strides),
                   {out.data() + start * static_cast<int64_t>(sizeof(T)), gradus::dtype_v<T>}, &value,
                   nullptr);
        const auto got = out.take();
        std::vector<unsigned char> want(got.size(), 0xA5);
        for (int64_t i = 0; i < n; ++i)
          std::memcpy(&want[Buffer::kMargin + static_cast<size_t>(start + i * stride) * sizeof(T)], &value,
                      sizeof value);
        group.check(got == want, "%lld elements, stride %lld, start %lld", static_cast<long long>(n),
                    static_cast<long long>(stride), static_cast<long long>(start));
      }
    }
}

// arange and linspace.
template <class T> void test_lines(Group& group) {
  for (const int64_t n : {0, 1, 2, 3, 255, 256, 257, 1000}) {
    const Buffer out(static_cast<size_t>(n) * sizeof(T));
    const cuda::View view{out.data(), gradus::dtype_v<T>};
    const auto check = [&](const char* what, const std::function<double(int64_t)>& value) {
      const auto got = out.take();
      std::vector<unsigned char> want(got.size(), 0xA5);
      for (int64_t i = 0; i < n; ++i) {
        const T x = stored<T>(value(i));
        std::memcpy(&want[Buffer::kMargin + static_cast<size_t>(i) * sizeof(T)], &x, sizeof x);
      }
      group.check(got == want, "%s, %lld elements of %s", what, static_cast<long long>(n),
                  std::string(gradus::name_of(view.dtype)).c_str());
    };
    cuda::arange("test", view, n, -3.3, 0.7, nullptr);
    check("arange", [](int64_t i) { return std::fma(double(i), 0.7, -3.3); });
    cuda::linspace("test", view, n, 0.1, 99.9, nullptr);
    const double step = n > 1 ? (99.9 - 0.1) / double(n - 1) : 0;
    check("linspace", [&](int64_t i) {
      return i < (n + 1) / 2 ? std::fma(double(i), step, 0.1) : std::fma(-double(n - 1 - i), step, 99.9);
    });
  }
}

}  // namespace

void test_copies() {
  test_one_dtype<float>("f32");
  test_one_dtype<bf16>("bf16");
  test_one_dtype<double>("f64");
  test_one_dtype<uint8_t>("u8");
  test_copy_all<float>("f32");
  test_copy_all<bf16>("bf16");
  test_copy_all<double>("f64");
  test_copy_all<uint8_t>("u8");
  {
    Group group("conversions");
    const CopyLayout some[] = {{"flat", {1031}, {1}, {1}, 0, 0},
                               {"flat, misaligned", {1031}, {1}, {1}, 1, 1},
                               {"transposed", {33, 65}, {65, 1}, {1, 33}, 0, 0}};
    if (group)
      for (const CopyLayout& l : some)
        for (int to = 0; to < 10; ++to)
          for (int from = 0; from < 10; ++from)
            gradus::dispatch_all(DType(to), [&]<class To>() {
              gradus::dispatch_all(DType(from), [&]<class From>() { test_copy<To, From>(group, l); });
            });
  }
  test_fill<float>("f32", 1.5f);
  test_fill<bf16>("bf16", bf16(3.f));
  test_fill<int64_t>("i64", -7);
  test_fill<uint8_t>("u8", 200);
  {
    Group group("arange and linspace");
    if (group) {
      test_lines<double>(group);
      test_lines<float>(group);
      test_lines<bf16>(group);
      test_lines<int64_t>(group);
      test_lines<int32_t>(group);
    }
  }
}

}  // namespace device_test
