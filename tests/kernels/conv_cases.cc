// Draws a random problem from a seed, computes the expected results by loops in f64, and compares them
// exactly: conv_cases.h tells why all sums are exact.
#include "gradus/tests/kernels/conv_cases.h"

#include <array>
#include <optional>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/kernels/random.h"

namespace gradus::kerneltest {
namespace {

using raw::ConvGeometry;

// Limit of the products of a case: sums stay exact in f32 (conv_cases.h), and cases short.
constexpr double kMaxProducts = 1.5e6;

DType random_dtype(Random& r) {
  if (r.one_in(10)) return r.of({DType::kF16, DType::kF64});
  return r.of({DType::kF32, DType::kBF16});
}

// Numbers around multiples of 8, 16 and 32, by which kernels block channels.
int64_t random_channels(Random& r) {
  switch (r.in(0, 5)) {
    case 0:
      return r.in(1, 4);
    case 1:
      return r.in(1, 9);
    case 2:
      return 8 * r.in(1, 5);
    case 3:
      return 16 * r.in(1, 4) + r.in(-1, 1);
    case 4:
      return 32 * r.in(1, 3);
    default:
      return r.in(1, 70);
  }
}

// Large extents, whose byte offsets exceed an instruction's immediate operand.
int64_t thousands(Random& r) { return r.one_in(2) ? 1024 * r.in(1, 12) + r.in(-1, 1) : r.in(100, 12000); }

struct Values {
  Tensor tensor;               // in the case's dtype and layout
  std::vector<double> values;  // row-major
};

// One case in eight has up to 32 threads, even on a smaller machine.
int random_threads(Random& r) { return int(r.one_in(8) ? r.in(5, 32) : r.in(1, 4)); }

// One tensor in four is a view at an offset into a larger one. About `zeros` of ten elements are 0.
Values random_values(Random& r, const Shape& shape, DType dtype, bool channels_last, int zeros = 0) {
  Values v;
  const Tensor wide = empty(shape, {DType::kF64});
  for (int64_t i = 0; i < wide.numel(); ++i)
    wide.ptr<double>()[i] = zeros > 0 && r.in(1, 10) <= zeros ? 0 : double(2 * r.in(0, 7) - 7) / 4;
  v.values = wide.to_vector<double>();
  v.tensor = raw::to(wide, dtype);
  if (channels_last) v.tensor = raw::channels_last(v.tensor);
  if (r.one_in(4)) {
    const int64_t before = r.in(1, 40);
    const Tensor larger = empty({before + v.tensor.numel()}, {dtype});
    raw::fill_(larger, 77);
    const Tensor part = view_as_strided(larger, shape, v.tensor.strides(), before);
    raw::copy_(part, v.tensor);
    v.tensor = part;
  }
  return v;
}

double rounded(double value, DType dtype) {
  if (dtype == DType::kBF16) return double(float(bf16(float(value))));
  if (dtype == DType::kF16) return double(float(f16(float(value))));
  return value;
}

// Describes elements that are not `want` rounded once; empty if none.
std::string difference(const char* what, const Tensor& got, const std::vector<double>& want) {
  const std::vector<double> values = raw::contiguous(got).to_vector<double>();
  size_t bad = 0, first = 0;
  for (size_t i = values.size(); i-- > 0;)
    if (!(values[i] == rounded(want[i], got.dtype()))) ++bad, first = i;
  if (bad == 0) return {};
  return concat("  ", what, ": ", bad, " of ", values.size(), " are wrong; element ", first, " is ",
                values[first], ", should be ", rounded(want[first], got.dtype()), '\n');
}

std::string text_of(const Dims& d) {
  std::string s;
  for (int64_t v : d) s += (s.empty() ? "" : ",") + std::to_string(v);
  return "{" + s + "}";
}

// ---- convolution ----

// wide_grad: the weight gradient is f32. zeros: as in random_values, for the output gradient.
struct Convolution {
  Shape x, w, y;
  ConvGeometry g;
  DType dtype = DType::kF32;
  bool bias = false, channels_last = false, recording = false, wide_grad = false;
  int zeros = 0, threads = 1;

  std::string text() const {
    return concat("conv ", dtype, " x", text_of(x), " w", text_of(w), " stride", text_of(g.stride),
                  " padding", text_of(g.padding), " dilation", text_of(g.dilation), " groups ", g.groups,
                  bias ? " bias" : "", channels_last ? " channels-last" : "", recording ? " recorded" : "",
                  wide_grad ? " gradient in f32" : "", zeros > 0 ? " sparse gradient" : "", ", ", threads,
                  " threads");
  }
};

// Which extents are unusual: kNarrow few columns, kOurs shapes of the library's own kernels (not oneDNN's),
// kTall dilated rows, kDeep many channels, kLong one extent in the thousands, kVolume three dims.
enum class Kind { kAny, kNarrow, kPointwise, kOurs, kTall, kWide, kDeep, kLong, kVolume, kCount };

bool choose(Random& r, Convolution& c) {
  const Kind kind = Kind(r.in(0, int(Kind::kCount) - 1));
  const bool volume = kind == Kind::kVolume;
  const int rank = volume ? 3 : 2;
  c.dtype = random_dtype(r);
  int64_t N = r.in(1, 4), C = random_channels(r), O = random_channels(r), groups = 1;
  if (kind == Kind::kOurs) {
    C = r.of<int64_t>({16, 32, 48, 64, 31, 33}), O = r.of<int64_t>({16, 24, 32, 64, 128, 33});
  } else if (r.one_in(6)) {
    groups = random_channels(r), C = groups, O = groups * r.in(1, 2);
  } else if (r.one_in(6)) {
    groups = r.in(2, 5), C = groups * r.in(1, 20), O = groups * r.in(1, 20);
  }
  if (kind == Kind::kWide)
    N = r.in(1, 2), C = r.in(1, r.of({20, 70})), O = r.in(1, r.of({20, 70})), groups = 1;
  if (kind == Kind::kDeep) {
    N = r.in(1, 2), C = r.in(64, 1100), O = r.in(1, 20), groups = 1;
    if (r.one_in(2)) std::swap(C, O);
  }
  int64_t columns = kind == Kind::kWide ? r.in(100, 700) : 0;
  if (kind == Kind::kLong) {
    N = r.in(1, 8), C = r.in(1, 9), O = r.in(1, 9), groups = 1;
    int64_t* extents[] = {&N, &C, &O, &columns};
    *extents[r.in(0, 3)] = thousands(r);
    if (r.one_in(6) && C != O) groups = C = O = std::max(C, O);
  }
  c.x = {N, C}, c.w = {O, C / groups}, c.y = {N, O}, c.g.groups = groups;
  const bool is_signal =
      !volume && kind != Kind::kOurs && kind != Kind::kWide && r.one_in(kind == Kind::kPointwise ? 2 : 4);
  const bool far = volume && r.one_in(2);  // several positions of the filter begin before the image
  const bool pointwise = kind == Kind::kPointwise || r.one_in(8);
  const int64_t filter = r.of<int64_t>({1, 3, 3, 5});
  const bool halving = kind == Kind::kOurs && r.one_in(3);  // as GANs do
  for (int d = 0; d < rank; ++d) {
    int64_t I = 1, K = 1, S = 1, P = 0, D = 1;
    if (!(is_signal && d == 0)) {
      I = r.one_in(8) ? r.in(1, volume ? 20 : 40) : r.in(1, volume ? 8 : 14);
      K = pointwise ? 1 : r.in(1, r.one_in(4) ? 7 : 4);
      if (!volume && !pointwise && r.one_in(10)) K = r.in(8, 20), I = K + r.in(0, 13);
      S = r.one_in(2) ? 1 : r.in(1, 5);
      P = pointwise || r.one_in(2) ? 0 : r.in(0, r.one_in(3) ? 5 : K);
      D = r.one_in(3) ? r.in(1, 4) : 1;
      if (kind == Kind::kNarrow && d == rank - 1) I = r.in(1, 4), S = r.in(1, 6), P = r.in(0, 4);
      if (kind == Kind::kDeep)
        K = r.in(1, r.one_in(2) ? 7 : 4), I = K + r.in(0, 8), S = r.in(1, 7), P = r.in(0, K - 1), D = 1;
      if (kind == Kind::kLong) I = r.in(1, 5), K = r.in(1, 3), D = 1;
      if (kind == Kind::kWide) {
        I = r.in(3, 24), K = filter, P = r.one_in(4) ? r.in(0, filter) : filter / 2, S = r.one_in(4) ? 2 : 1;
        D = r.one_in(6) ? 2 : 1;
      }
      if (columns > 0 && d == rank - 1) I = columns;
      if (far) K = r.in(1, 7), S = r.in(1, 5), P = r.in(0, 6);
      if (kind == Kind::kTall && d == 0) K = r.in(2, 4), D = r.in(2, 4), P = r.in(0, 4);
      if (kind == Kind::kTall && d == 1) I = r.in(20, 40);
      if (kind == Kind::kOurs)
        I = r.in(3, 24), K = filter, P = r.in(0, filter - 1), S = r.one_in(3) ? 2 : 1,
        D = r.one_in(6) ? 2 : 1;
      if (halving) I = r.one_in(4) ? r.in(2, 30) : 2 * r.in(1, 15), K = 4, S = 2, P = 1, D = 1;
    }
    const int64_t padded = I + 2 * P, extent = D * (K - 1) + 1;
    if (extent > padded) return false;
    c.x.push_back(I), c.w.push_back(K), c.y.push_back((padded - extent) / S + 1);
    c.g.stride.push_back(S), c.g.padding.push_back(P), c.g.dilation.push_back(D);
  }
  const double products = double(c.y.product()) * double(c.w.product() / O);
  if (products > (kind == Kind::kOurs || kind == Kind::kWide ? 8 : 1) * kMaxProducts) return false;
  c.bias = r.one_in(2), c.channels_last = r.one_in(2), c.recording = r.one_in(2);
  c.wide_grad = c.dtype != DType::kF64 && r.one_in(2), c.zeros = r.one_in(4) ? 9 : 0,
  c.threads = random_threads(r);
  return true;
}

// f(x's element, w's element, y's element) for each product of the convolution.
template <class F> void for_each_product(const Convolution& c, F f) {
  const int rank = c.g.rank();
  const auto three = [&](const Dims& d, int skip, int64_t none) {
    std::array<int64_t, 3> t{none, none, none};
    for (int i = 0; i < rank; ++i) t[size_t(3 - rank + i)] = d[skip + i];
    return t;
  };
  const auto I = three(c.x, 2, 1), K = three(c.w, 2, 1), O = three(c.y, 2, 1), S = three(c.g.stride, 0, 1),
             P = three(c.g.padding, 0, 0), D = three(c.g.dilation, 0, 1);
  const int64_t filters = c.w[0] / c.g.groups, C = c.w[1];
  for (int64_t n = 0; n < c.x[0]; ++n)
    for (int64_t o = 0; o < c.w[0]; ++o)
      for (int64_t i = 0; i < C; ++i) {
        const int64_t x_plane = n * c.x[1] + o / filters * C + i, w_plane = o * C + i,
                      y_plane = n * c.w[0] + o;
        for (int64_t kd = 0; kd < K[0]; ++kd)
          for (int64_t kh = 0; kh < K[1]; ++kh)
            for (int64_t kw = 0; kw < K[2]; ++kw)
              for (int64_t od = 0; od < O[0]; ++od)
                for (int64_t oh = 0; oh < O[1]; ++oh) {
                  const int64_t d = od * S[0] - P[0] + kd * D[0], h = oh * S[1] - P[1] + kh * D[1];
                  if (d < 0 || d >= I[0] || h < 0 || h >= I[1]) continue;
                  for (int64_t ow = 0; ow < O[2]; ++ow) {
                    const int64_t w = ow * S[2] - P[2] + kw * D[2];
                    if (w < 0 || w >= I[2]) continue;
                    f(size_t(((x_plane * I[0] + d) * I[1] + h) * I[2] + w),
                      size_t(((w_plane * K[0] + kd) * K[1] + kh) * K[2] + kw),
                      size_t(((y_plane * O[0] + od) * O[1] + oh) * O[2] + ow));
                  }
                }
      }
}

std::string run(const Convolution& c, Random& r) {
  const Values x = random_values(r, c.x, c.dtype, c.channels_last), w = random_values(r, c.w, c.dtype, false),
               dy = random_values(r, c.y, c.dtype, c.channels_last, c.zeros);
  const Values b = random_values(r, {c.w[0]}, c.dtype, false),
               bx = random_values(r, {c.x[1]}, c.dtype, false);
  std::vector<double> y64(dy.values.size()), dx64(x.values.size()), dw64(w.values.size()),
      db64(size_t(c.w[0]));
  for_each_product(c, [&](size_t i, size_t k, size_t o) {
    y64[o] += x.values[i] * w.values[k];
    dx64[i] += dy.values[o] * w.values[k];
    dw64[k] += dy.values[o] * x.values[i];
  });
  const auto channel_of = [](size_t i, const Shape& s) {
    return i / size_t(s.product() / (s[0] * s[1])) % size_t(s[1]);
  };
  for (size_t o = 0; o < y64.size(); ++o) db64[channel_of(o, c.y)] += dy.values[o];
  for (size_t o = 0; c.bias && o < y64.size(); ++o) y64[o] += b.values[channel_of(o, c.y)];
  for (size_t i = 0; c.bias && i < dx64.size(); ++i) dx64[i] += bx.values[channel_of(i, c.x)];

  // Under a recording reordered weights are not cached, which changes the choice of kernels.
  GradManager gm;
  std::optional<Recording> recording;
  if (c.recording) recording.emplace(gm.record());
  std::string wrong =
      difference("forward", raw::conv("conv", x.tensor, w.tensor, c.bias ? b.tensor : Tensor(), c.g), y64);
  wrong += difference(
      "input gradient",
      raw::conv_input_grad("conv_input_grad", dy.tensor, w.tensor, c.bias ? bx.tensor : Tensor(), c.x, c.g),
      dx64);
  const auto [dw, db] = raw::conv_weight_grad("conv_weight_grad", dy.tensor, x.tensor, c.w, c.bias, c.g,
                                              c.wide_grad ? DType::kF32 : c.dtype);
  wrong += difference("weight gradient", dw, dw64);
  if (c.bias) wrong += difference("bias gradient", db, db64);
  return wrong;
}

// ---- matrix product ----

// batch x [m, k] by [k, n]. turn: the operand is a transposed view; repeat: it is expanded over the batch;
// gap: its rows are that many elements apart; as_linear: b is a weight [n, k]; wide: the result is f32.
struct Product {
  Shape batch;
  int64_t m = 1, k = 1, n = 1, gap_a = 0, gap_b = 0;
  bool turn_a = false, turn_b = false, repeat_a = false, repeat_b = false, as_linear = false, bias = false,
       wide = false;
  DType dtype = DType::kF32;
  int threads = 1;

  std::string text() const {
    return concat(as_linear ? "linear " : "matmul ", dtype, ' ', text_of(batch), " of [", m, ',', k, "] by [",
                  k, ',', n, ']', turn_a ? " a turned" : "", turn_b ? " b turned" : "",
                  repeat_a ? " a repeated" : "", repeat_b ? " b repeated" : "",
                  gap_a ? concat(" gaps in a ", gap_a) : "", gap_b ? concat(" gaps in b ", gap_b) : "",
                  bias ? " bias" : "", wide ? " in f32" : "", ", ", threads, " threads");
  }
};

int64_t random_extent(Random& r) {
  switch (r.in(0, 6)) {
    case 0:
      return 1;
    case 1:
      return r.in(1, 9);
    case 2:
      return 16 * r.in(1, 8) + r.in(-1, 1);
    case 3:
      return 32 * r.in(1, 5);
    case 4:
      return r.in(1, 200);
    case 5:  // the blocks of narrow_matmul: rows, columns and depth, with AVX2 and AVX-512
      return r.of<int64_t>({48, 96, 112, 224, 256, 384, 512}) + r.in(-1, 1);
    default:
      return r.in(1, 40);
  }
}

bool choose(Random& r, Product& p) {
  p.dtype = random_dtype(r);
  p.m = random_extent(r), p.k = random_extent(r), p.n = random_extent(r);
  p.as_linear = r.one_in(3);
  if (!p.as_linear)
    for (int64_t d = r.in(0, 2); d > 0; --d) p.batch.push_back(r.in(1, 5));
  if (r.one_in(8)) {
    int64_t* extents[] = {&p.m, &p.k, &p.n, p.batch.empty() ? &p.k : &p.batch[0]};
    *extents[r.in(0, 3)] = thousands(r);
  }
  if (r.one_in(8)) {  // few elements with long sums, which threads may split
    p.as_linear = false, p.batch = {r.in(1, 4)}, p.k = thousands(r), p.m = r.in(1, 24), p.n = r.in(1, 24);
  }
  if (double(p.batch.product()) * double(p.m) * double(p.k) * double(p.n) > kMaxProducts) return false;
  p.bias = p.as_linear && r.one_in(2), p.wide = !p.as_linear && p.dtype != DType::kF64 && r.one_in(3);
  p.turn_a = !p.as_linear && r.one_in(2), p.turn_b = r.one_in(2);
  p.repeat_a = !p.batch.empty() && r.one_in(4), p.repeat_b = !p.batch.empty() && r.one_in(4);
  p.gap_a = r.one_in(4) ? r.in(1, 9) : 0, p.gap_b = r.one_in(4) ? r.in(1, 9) : 0;
  p.threads = random_threads(r);
  return true;
}

// Matrices [batch..., rows, cols], as a view of rows that are `gap` longer, transposed if `turned`.
Values random_matrices(Random& r, Shape batch, int64_t rows, int64_t cols, bool turned, int64_t gap,
                       bool repeated, DType dtype) {
  const Shape wanted = batch;
  if (repeated) batch = Dims::filled(batch.size(), 1);
  Shape stored = batch;
  stored.push_back(turned ? cols : rows), stored.push_back((turned ? rows : cols) + gap);
  const Values all = random_values(r, stored, dtype, false);
  Strides strides = row_major_strides(stored);
  for (int d = 0; d < batch.size(); ++d)
    if (batch[d] != wanted[d] || repeated) strides[d] = 0;
  Shape shape = wanted;
  shape.push_back(rows), shape.push_back(cols);
  const int last = shape.size() - 1;
  if (turned) std::swap(strides[last], strides[last - 1]);
  Values v;
  v.tensor = view_as_strided(all.tensor, shape, strides, all.tensor.impl().offset);
  v.values = v.tensor.to_vector<double>();
  return v;
}

std::string run(const Product& p, Random& r) {
  const Values a = random_matrices(r, p.batch, p.m, p.k, p.turn_a, p.gap_a, p.repeat_a, p.dtype);
  const Values b = p.as_linear
                       ? random_matrices(r, {}, p.n, p.k, p.turn_b, p.gap_b, false, p.dtype)
                       : random_matrices(r, p.batch, p.k, p.n, p.turn_b, p.gap_b, p.repeat_b, p.dtype);
  const Values bias = random_values(r, {p.n}, p.dtype, false);
  const int64_t count = p.batch.product();
  std::vector<double> want(size_t(count * p.m * p.n));
  const int64_t row_step = p.as_linear ? 1 : p.n, column_step = p.as_linear ? p.k : 1;  // in b's values
  for (int64_t i = 0; i < count; ++i)
    for (int64_t m = 0; m < p.m; ++m)
      for (int64_t n = 0; n < p.n; ++n) {
        double sum = p.bias ? bias.values[size_t(n)] : 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += a.values[size_t((i * p.m + m) * p.k + k)] *
                 b.values[size_t(i * p.k * p.n + k * row_step + n * column_step)];
        want[size_t((i * p.m + m) * p.n + n)] = sum;
      }
  const Tensor got = p.as_linear ? raw::linear(a.tensor, b.tensor, p.bias ? bias.tensor : Tensor())
                     : p.wide ? raw::matmul_in_f32(a.tensor, b.tensor)
                                 : raw::matmul(a.tensor, b.tensor);
  return difference("product", got, want);
}

// Calls f(problem, r) with the seed's problem; r continues the seed's random numbers.
template <class F> auto with_problem(uint64_t seed, F f) {
  Random r(seed);
  for (;;) {
    if (r.one_in(5)) {
      if (Product p; choose(r, p)) return f(p, r);
    } else if (Convolution c; choose(r, c)) {
      return f(c, r);
    }
  }
}

}  // namespace

ConvCase::ConvCase(uint64_t seed)
    : seed_(seed), text_(with_problem(seed, [](const auto& problem, Random&) { return problem.text(); })) {}

std::string ConvCase::wrong() const {
  return with_problem(seed_, [](const auto& problem, Random& r) {
    set_num_threads(problem.threads);
    return run(problem, r);
  });
}

}  // namespace gradus::kerneltest
