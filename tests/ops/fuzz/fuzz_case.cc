// Runs a fuzz case: tolerances of values grow with the number of terms and with the result's sensitivity to
// the inputs' last bits; the gradient is compared along one random direction.
#include "gradus/tests/ops/fuzz/fuzz_case.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "gradus/autograd/functional.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::optest {
namespace {

using Values = std::vector<double>;

const OpCase* row_of(const FuzzCase& c) {
  int before = 0;
  for (const OpCase& r : all_rows())
    if (r.op == c.op && r.variant == c.variant && before++ == c.alike) return &r;
  return nullptr;
}
// The row's inputs with other sizes. Given values are repeated.
Sample resized(const OpCase& row, const FuzzCase& c) {
  Sample sample = row.samples[c.sample];
  for (size_t k = 0; k < sample.size(); ++k) {
    sample[k].shape = c.shapes[k];
    if (k < c.below.size() && sample[k].fill == Fill::kInteger) sample[k].hi = c.below[k];
    const Values given = sample[k].values;
    if (given.empty()) continue;
    sample[k].values.clear();
    for (int64_t i = 0; i < c.shapes[k].product(); ++i)
      sample[k].values.push_back(given[size_t(i) % given.size()]);
  }
  return sample;
}

// Copies x to memory with the given strides, `offset` elements from the beginning of a storage of `room`.
Tensor copied_to(const Tensor& x, const Strides& strides, int64_t room, int64_t offset) {
  const Tensor base = empty({room}, {.dtype = x.dtype()});
  raw::fill_(base, 77);
  const Tensor y = view_as_strided(base, x.shape(), strides, offset);
  raw::copy_(y, x);
  return y;
}

// c: row-major; s: gaps between all elements; r: dims in reversed order; n: channels innermost; o: a part of
// a larger tensor, not from its beginning on; b: repeated along a dim, which changes the values.
Tensor lay_out(const Tensor& x, char layout, uint64_t seed) {
  if (x.numel() == 0 || x.dim() == 0) return x;
  Strides strides = x.strides();
  switch (layout) {
    case 's':
      for (int64_t& s : strides) s *= 2;
      return copied_to(x, strides, 2 * x.numel(), 0);
    case 'r': {
      int64_t step = 1;
      for (int d = 0; d < x.dim(); ++d) strides[d] = step, step *= x.size(d);
      return copied_to(x, strides, x.numel(), 0);
    }
    case 'n': {
      if (x.dim() < 3) return x;
      int64_t step = x.size(1);
      strides[1] = 1;
      for (int d = x.dim() - 1; d >= 2; --d) strides[d] = step, step *= x.size(d);
      strides[0] = step;
      return copied_to(x, strides, x.numel(), 0);
    }
    case 'o': {
      int64_t step = 1, offset = 0;
      for (int d = x.dim() - 1; d >= 0; --d) {
        const int64_t before = int64_t((seed >> (2 * d)) % 3);
        strides[d] = step, offset += before * step, step *= x.size(d) + before + 1;
      }
      return copied_to(x, strides, step, offset);
    }
    case 'b': {
      const int d = int(seed % uint64_t(x.dim()));
      strides[d] = 0;
      return view_as_strided(x, x.shape(), strides, x.impl().offset);
    }
    default:
      return x;
  }
}

std::vector<Tensor> inputs_of(const OpCase& row, const FuzzCase& c) {
  const Sample sample = resized(row, c);
  std::vector<Tensor> x;
  for (size_t k = 0; k < sample.size(); ++k)
    x.push_back(lay_out(make_input(sample[k], c.seed, k, c.dtype), c.layouts[k], c.seed + k));
  return x;
}

double unit_of(DType t) {
  return t == DType::kF64    ? 0x1p-52
         : t == DType::kF32  ? 0x1p-23
         : t == DType::kF16  ? 0x1p-10
         : t == DType::kBF16 ? 0x1p-7
                             : 0;
}
double largest_of(DType t) {
  switch (t) {
    case DType::kF16:
      return 65504;
    case DType::kF64:
      return std::numeric_limits<double>::max();
    case DType::kI64:
      return 0x1p53;  // what a reference counts exactly
    case DType::kI32:
      return 0x1p31 - 1;
    case DType::kI16:
      return 0x1p15 - 1;
    case DType::kI8:
      return 0x1p7 - 1;
    case DType::kU8:
      return 255;
    case DType::kBool:
      return 1;
    default:
      return double(std::numeric_limits<float>::max());
  }
}

// The row's number of roundings behind an element, scaled to sums longer than the sample's.
double terms_of(const OpCase& row, const FuzzCase& c) {
  double growth = 1;
  for (size_t k = 0; k < c.shapes.size(); ++k) {
    const double before = double(std::max<int64_t>(1, row.samples[c.sample][k].shape.product()));
    growth = std::max(growth, double(c.shapes[k].product()) / before);
  }
  // Rounding errors cancel, except in sums of one repeated number.
  const bool repeats = c.layouts.find('b') != std::string::npos;
  return (4 + row.terms) * (repeats ? growth : std::sqrt(growth));
}

// In [-1, 1), a function of seed, stream and position.
double noise(uint64_t seed, uint64_t stream, uint64_t i) {
  const auto bits = philox(seed, stream, i);
  return 2 * uniform_f64(bits[0], bits[1]) - 1;
}

// The largest change of each of the reference's elements when the inputs change by about two units in the
// last place: it is large for ill-conditioned inputs and at jumps (a nearest cell). The first two of ten
// turns move all inputs up and down, to find a jump close by.
Values shake(const OpCase& row, const FuzzCase& c, const std::vector<Array>& at, const Array& expected) {
  Values most(expected.v.size());
  for (uint64_t turn = 0; turn < 10; ++turn) {
    std::vector<Array> moved = at;
    for (size_t k = 0; k < moved.size(); ++k) {
      if (row.samples[c.sample][k].fixed) continue;
      for (size_t i = 0; i < moved[k].v.size(); ++i)
        moved[k].v[i] += 2 * unit_of(c.dtype) * std::max(1.0, std::abs(moved[k].v[i])) *
                         (turn == 0   ? 1
                          : turn == 1 ? -1
                                      : noise(c.seed, 4000 + 100 * turn + k, i));
    }
    const Array other = row.reference(moved);
    if (other.v.size() != expected.v.size()) continue;
    for (size_t i = 0; i < other.v.size(); ++i)
      if (std::isfinite(other.v[i]) && std::isfinite(expected.v[i]))
        most[i] = std::max(most[i], std::abs(other.v[i] - expected.v[i]));
  }
  return most;
}

std::string compare(const OpCase& row, const FuzzCase& c, const std::vector<Tensor>& x, const Tensor& y) {
  const std::vector<Array> at = to_arrays(x);
  const Array expected = row.reference(at);
  if (y.numel() == 0 && expected.v.empty()) return "";  // references may give another empty shape
  if (y.shape() != expected.shape)
    return concat("the shape is ", y.shape(), ", the reference's ", expected.shape);
  const Values v = y.to_vector<double>();
  double scale = 1;
  for (double e : expected.v)
    if (std::isfinite(e)) scale = std::max(scale, std::abs(e));
  // The tolerance is that of the coarser dtype of inputs and result; integers are exact.
  const double unit = is_floating(y.dtype()) ? std::max(unit_of(y.dtype()), unit_of(c.dtype)) : 0;
  const bool narrow = unit > 0x1p-20;
  // 16-bit results are rounded once by each kernel of the op.
  double allowed = unit * scale * (narrow ? 1 + terms_of(row, c) / (4 + row.terms) : terms_of(row, c));
  const double top = largest_of(y.dtype());
  Values shaken;
  for (size_t i = 0; i < v.size(); ++i) {
    const double e = expected.v[i];
    const auto fits = [&](double more) {
      return std::isnan(e)   ? std::isnan(v[i])
             : std::isinf(e) ? v[i] == e
                             : std::abs(v[i] - e) <= allowed + more;
    };
    if (fits(0)) continue;
    // Expected values beyond the dtype's range may overflow.
    if (is_floating(y.dtype()) ? std::abs(e) >= top * (1 - unit) && std::isinf(v[i])
                               : e > top || e < (y.dtype() == DType::kU8 ? 0 : -top - 1))
      continue;
    if (is_floating(y.dtype())) {
      if (shaken.empty()) {
        shaken = shake(row, c, at, expected);
        const double most = *std::max_element(shaken.begin(), shaken.end());
        if (most < std::max(0.01, 4 * unit) * scale) allowed += 8 * most;
      }
      if (fits(8 * shaken[i])) continue;
    }
    return concat("element ", i, " of ", describe(y), " is ", v[i], ", expected ", e, " (off by ",
                  std::abs(v[i] - e), ", allowed ", allowed, ")");
  }
  return "";
}

// Whether elements of a kDistinct input are equal, after rounding or by repetition: such a tie is a kink.
bool has_ties(const OpCase& row, const FuzzCase& c, const std::vector<Tensor>& x) {
  for (size_t k = 0; k < x.size(); ++k) {
    if (row.samples[c.sample][k].fill != Fill::kDistinct) continue;
    Values v = x[k].to_vector<double>();
    std::sort(v.begin(), v.end());
    if (std::adjacent_find(v.begin(), v.end()) != v.end()) return true;
  }
  return false;
}

// The gradient along one random direction against differences of the reference.
std::string compare_gradient(const OpCase& row, const FuzzCase& c, const std::vector<Tensor>& x,
                             const Tensor& y) {
  std::vector<size_t> wanted;
  std::vector<Tensor> floating;
  for (size_t k = 0; k < x.size(); ++k)
    if (is_floating(x[k].dtype()) && x[k].numel() > 0) wanted.push_back(k), floating.push_back(x[k]);
  if (wanted.empty() || !is_floating(y.dtype()) || y.numel() == 0) return "";
  Values weights;
  // Some gradients are mostly zeros, as those that come through max pooling: kernels exist for them.
  const bool sparse = c.seed / 2 % 4 == 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double w = noise(c.seed, 1000, uint64_t(i));
    weights.push_back(sparse && philox(c.seed, 1001, uint64_t(i))[2] % 8 ? 0 : w);
  }
  const Tensor dy = lay_out(raw::to(tensor(weights, y.shape()), y.dtype()),
                            c.layouts[0] == 'b' ? 'c' : c.layouts[0], c.seed + 7);
  weights = dy.to_vector<double>();
  const auto f = [&](const std::vector<Tensor>& v) {
    std::vector<Tensor> all = x;
    for (size_t k = 0; k < wanted.size(); ++k) all[wanted[k]] = v[k];
    return row.run(all);
  };
  const std::vector<Tensor> g = autograd::grad(f, floating, dy);

  const std::vector<Array> at = to_arrays(x);
  // Half of the cases move few elements: an error in one of many is lost in the roundings of 16 bits.
  const bool few = c.seed % 2 == 0;
  std::vector<Values> direction(x.size());
  double along = 0, room = 0;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const Values slope = g[k].to_vector<double>();
    Values& v = direction[wanted[k]];
    double largest = 0x1p-4, squares = 0;  // a smaller slope may be what is left of larger terms
    for (size_t i = 0; i < slope.size(); ++i) {
      const bool moved = !few || slope.size() < 64 || slope.size() - i <= 8 ||
                         philox(c.seed, 3000 + k, i)[2] % (slope.size() / 32) == 0;
      v.push_back(moved ? noise(c.seed, 2000 + k, i) : 0);
      along += slope[i] * v[i];
      squares += v[i] * v[i];
      largest = std::max(largest, std::abs(slope[i]));
    }
    const double unit = unit_of(floating[k].dtype());
    room += 4 * std::sqrt(squares) * largest *
            (unit > 0x1p-20 ? 2 * unit : unit * (8 + 2 * std::sqrt(double(y.numel())) + terms_of(row, c)));
  }
  if (!std::isfinite(along)) return "";  // where values overflow, or a slope is infinite
  // The reference's derivative along the direction, by central differences; nothing at a kink. The difference
  // of its two sides is added to the tolerance.
  constexpr double kStep = 1e-6;
  double sides = 0;
  const auto slope_at = [&](const std::vector<Array>& from) -> std::optional<double> {
    double size = 0;
    const auto loss = [&](double step) {
      std::vector<Array> moved = from;
      for (size_t k : wanted)
        for (size_t i = 0; i < moved[k].v.size(); ++i) moved[k].v[i] += step * direction[k][i];
      const Array r = row.reference(moved);
      double sum = 0;
      size = 0;
      for (size_t i = 0; i < r.v.size(); ++i) {
        sum += weights[i] * r.v[i];
        size += std::abs(weights[i] * r.v[i]);
      }
      return sum;
    };
    const double middle = loss(0), after = (loss(kStep) - middle) / kStep,
                 before = (middle - loss(-kStep)) / kStep, slope = (after + before) / 2;
    room = std::max(room, 64 * 0x1p-52 * size / kStep + 1e-5 * std::abs(slope));
    if (!std::isfinite(slope) || std::abs(after - before) > room / 2 + 1e-4 * std::abs(slope)) return {};
    sides = std::max(sides, std::abs(after - before) / 2);
    return slope;
  };
  const auto slope = slope_at(at);
  if (!slope || std::abs(along - *slope) <= room + sides) return "";
  // As in shake, to find a jump close to the inputs.
  for (uint64_t turn = 0; turn < 10; ++turn) {
    std::vector<Array> moved = at;
    for (size_t k : wanted)
      for (size_t i = 0; i < moved[k].v.size(); ++i)
        moved[k].v[i] += std::max(kStep, 4 * unit_of(x[k].dtype())) * std::max(1.0, std::abs(moved[k].v[i])) *
                         noise(c.seed, 5000 + 100 * turn + k, i);
    if (const auto other = slope_at(moved);
        !other || std::abs(along - *slope) <= room + sides + 8 * std::abs(*other - *slope))
      return "";
  }
  return concat("the gradient along a direction is ", along, ", that of the reference ", *slope, " (off by ",
                std::abs(along - *slope), ", allowed ", room + sides, ")");
}

// Whether an input with given values is larger than the sample's: then some values occur twice.
bool repeats_given_values(const OpCase& row, const FuzzCase& c) {
  const Sample& sample = row.samples[c.sample];
  for (size_t k = 0; k < sample.size(); ++k)
    if (!sample[k].values.empty() && c.shapes[k].product() > sample[k].shape.product()) return true;
  return false;
}

std::string text_of(const Shape& s) {
  std::string t = "{";
  for (int64_t n : s) t += (t.size() > 1 ? ", " : "") + std::to_string(n);
  return t + "}";
}
std::string quoted(const std::string& s) {
  std::string t = "\"";
  for (char c : s) t += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return t + "\"";
}
// "kBF16" for bf16.
std::string constant_of(DType t) {
  if (t == DType::kBool) return "kBool";
  std::string name = "k";
  for (char c : name_of(t)) name += char(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

FuzzOutcome outcome_of(const OpCase& row, const FuzzCase& c) {
  const int before = num_threads();
  set_num_threads(c.threads);
  FuzzOutcome o;
  std::vector<Tensor> x;
  Tensor y;
  try {
    x = inputs_of(row, c);
    y = row.run(x);
  } catch (const Error&) {
    o.refused = true;
  } catch (const std::out_of_range&) {  // the row indexes beyond a list of results
    o.refused = true;
  } catch (const std::exception& e) {
    o.wrong = e.what();
  }
  if (y.defined() && y.numel() > kMaxElements) o.refused = true;
  if (o.refused || !o.wrong.empty()) {
    set_num_threads(before);
    return o;
  }
  try {
    o.wrong = compare(row, c, x, y);
  } catch (const std::exception&) {  // the reference takes other sizes only
    o.refused = true;
    set_num_threads(before);
    return o;
  }
  // If an element is written twice, the gradient of either write is right.
  if (o.wrong.empty() && row.differentiable && !repeats_given_values(row, c) && !has_ties(row, c, x) &&
      std::count(row.dtypes.begin(), row.dtypes.end(), c.dtype)) {
    try {
      o.wrong = compare_gradient(row, c, x, y);
    } catch (const std::exception& e) {
      o.wrong = concat("the gradient throws ", e.what());
    }
    o.gradient = true;
  }
  set_num_threads(before);
  return o;
}

std::string check(const FuzzCase& c) {
  const OpCase* row = row_of(c);
  if (!row) return concat("no row \"", c.op, "\", \"", c.variant, "\" is linked to this program");
  return outcome_of(*row, c).wrong;
}

std::string program_of(const FuzzCase& c) {
  std::ostringstream o;
  o << "#include \"gradus/tests/ops/fuzz/fuzz_case.h\"\nint main() {\n  return gradus::optest::replay({.op = "
    << quoted(c.op) << ", .variant = " << quoted(c.variant) << ", .alike = " << c.alike
    << ", .sample = " << c.sample << ", .shapes = {";
  for (size_t k = 0; k < c.shapes.size(); ++k)
    o << (k ? ", " : "") << "gradus::Shape" << text_of(c.shapes[k]);
  o << "}, .below = {";
  for (size_t k = 0; k < c.below.size(); ++k) o << (k ? ", " : "") << c.below[k];
  o << "},\n      .layouts = " << quoted(c.layouts) << ", .dtype = gradus::DType::" << constant_of(c.dtype)
    << ", .threads = " << c.threads << ", .seed = " << c.seed << "u});\n}\n";
  return o.str();
}

int replay(const FuzzCase& c) {
  const std::string wrong = check(c);
  std::printf("%s: %s\n", c.op.c_str(), wrong.empty() ? "as expected" : wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace gradus::optest
