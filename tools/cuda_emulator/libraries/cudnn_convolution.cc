// Computes a convolution of the emulated cuDNN by direct sums, with the rounding that the engine's notes
// announce. A tap is one spatial position of the filter.
#include <cmath>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/libraries/cudnn.h"

namespace gradus::cuda::emulated {

DType dtype_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE  ? DType::kF64
         : type == CUDNN_DATA_FLOAT ? DType::kF32
         : type == CUDNN_DATA_HALF  ? DType::kF16
                                    : DType::kBF16;
}

namespace {

// Returns the tensor with permuted dims: dim order[i] becomes dim i.
Operand operand(const char* name, const GraphTensor& t, const void* p, const std::vector<size_t>& order) {
  Operand x{name, p, dtype_of(t.type), {}, {}};
  for (const size_t d : order) x.sizes.push_back(t.sizes[d]), x.strides.push_back(t.strides[d]);
  return x;
}
// [N,C,...] as [N,...,C].
std::vector<size_t> channels_last(size_t dims) {
  std::vector<size_t> order{0};
  for (size_t d = 2; d < dims; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}
// [O,C,...] as [...,C,O] or [...,O,C].
std::vector<size_t> taps_first(size_t dims, bool outputs_last) {
  std::vector<size_t> order;
  for (size_t d = 2; d < dims; ++d) order.push_back(d);
  order.push_back(outputs_last ? 1 : 0);
  order.push_back(outputs_last ? 0 : 1);
  return order;
}

// Returns the number of spatial positions.
int64_t volume(const GraphTensor& t) {
  int64_t n = 1;
  for (size_t d = 2; d < t.sizes.size(); ++d) n *= t.sizes[d];
  return n;
}
// Returns the spatial coordinates of a flat index.
std::vector<int64_t> position(const GraphTensor& t, int64_t index) {
  std::vector<int64_t> at(t.sizes.size() - 2);
  for (size_t d = at.size(); d-- > 0; index /= t.sizes[d + 2]) at[d] = index % t.sizes[d + 2];
  return at;
}
// Returns the flat index of the pixel of x that a tap multiplies for a position of y, or -1 in the padding.
int64_t seen_pixel(const ConvGraph& g, const std::vector<int64_t>& output, const std::vector<int64_t>& tap) {
  int64_t pixel = 0;
  for (size_t d = 0; d < tap.size(); ++d) {
    const int64_t at = output[d] * g.strides[d] - g.before[d] + tap[d] * g.dilations[d];
    if (at < 0 || at >= g.x.sizes[d + 2]) return -1;
    pixel = pixel * g.x.sizes[d + 2] + at;
  }
  return pixel;
}

// Adds the products of one pixel and one tap: x[C], y[O] and w[C/groups,O], which is [O,C/groups] for the
// gradient of the input.
template <class T> void add_products(const ConvGraph& g, T* x, T* w, T* y) {
  const int64_t c_all = g.x.sizes[1], o_all = g.y.sizes[1], c_group = g.w.sizes[1];
  const int64_t o_group = o_all / (c_all / c_group);
  for (int64_t first = 0, group = 0; first < c_all; first += c_group, ++group) {
    T* const outputs = y + group * o_group;
    for (int64_t c = 0; c < c_group; ++c) {
      T* const in = x + first + c;
      if (g.pass == GraphPass::kInputGrad) break;
      T* const row = w + c * o_all + group * o_group;
      if (g.pass == GraphPass::kForward)
        for (int64_t o = 0; o < o_group; ++o) outputs[o] += *in * row[o];
      else
        for (int64_t o = 0; o < o_group; ++o) row[o] += *in * outputs[o];
    }
    for (int64_t o = 0; o < o_group && g.pass == GraphPass::kInputGrad; ++o) {
      const T* const row = w + (group * o_group + o) * c_group;
      for (int64_t c = 0; c < c_group; ++c) x[first + c] += outputs[o] * row[c];
    }
  }
}

template <class T> void compute(const QueuedExecution& q) {
  const ConvGraph& g = *q.convolution;
  const size_t dims = g.x.sizes.size();
  const bool forward = g.pass == GraphPass::kForward;
  const GraphTensor& out = forward ? g.result() : g.y;
  const Operand x = operand("x", g.x, q.pointers[0], channels_last(dims));
  const Operand w = operand("w", g.w, q.pointers[1], taps_first(dims, g.pass != GraphPass::kInputGrad));
  const Operand y = operand("y", out, q.pointers.back(), channels_last(dims));
  std::vector<const Operand*> sources;
  for (const Operand* o : {&x, &w, &y}) {
    check_place(q.call, *o);
    if (o != (forward ? &y : g.pass == GraphPass::kInputGrad ? &x : &w)) sources.push_back(o);
  }
  Operand bias;
  if (g.addition) {
    bias = operand("bias", g.addition->bias, q.pointers[2], {1});
    check_place(q.call, bias);
    sources.push_back(&bias);
  }
  const Operand& result = forward ? y : g.pass == GraphPass::kInputGrad ? x : w;
  check_apart(q.call, result, sources);

  const bool tf32 = (q.engine->has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) && x.type == DType::kF32) ||
                    q.engine->has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  const auto elements = [&](const Operand& o) {
    return &o == &result ? std::vector<T>(static_cast<size_t>(o.count())) : read<T>(q.call, o, tf32);
  };
  std::vector<T> xs = elements(x), ws = elements(w), ys = elements(y);
  std::vector<T>& sums = forward ? ys : g.pass == GraphPass::kInputGrad ? xs : ws;
  const bool rounds = q.engine->has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  const int64_t pixels = volume(g.x), outputs = volume(g.y), taps = volume(g.w);
  const int64_t c = g.x.sizes[1], o = g.y.sizes[1], tap_size = w.count() / taps;
  const auto in_order = [&](int64_t i, int64_t count) { return q.backwards ? count - 1 - i : i; };
  for (int64_t i = 0; i < g.x.sizes[0] * outputs; ++i) {
    const int64_t at = in_order(i, g.x.sizes[0] * outputs), n = at / outputs;
    const std::vector<int64_t> output = position(g.y, at % outputs);
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t tap = in_order(k, taps), pixel = seen_pixel(g, output, position(g.w, tap));
      if (pixel < 0) continue;
      add_products(g, xs.data() + (n * pixels + pixel) * c, ws.data() + tap * tap_size, ys.data() + at * o);
      if (rounds)
        for (T& v : sums) v = rounded(v, result.type);
    }
  }
  if (g.addition) {
    const std::vector<T> shift = read<T>(q.call, bias);
    for (size_t i = 0; i < ys.size(); ++i)
      ys[i] = rounded(ys[i], dtype_of(g.y.type)) + shift[i % shift.size()];
  }
  if (g.rectified) {
    for (T& v : ys) {
      v = rounded(v, dtype_of(g.addition->sum.type));
      v = v > T(0) || (g.keeps_nan && std::isnan(v)) ? v : T(0);
    }
  }
  write(result, sums);
}

}  // namespace

void compute_convolution(const QueuedExecution& q) {
  q.convolution->compute == CUDNN_DATA_DOUBLE ? compute<double>(q) : compute<float>(q);
}

}  // namespace gradus::cuda::emulated
