// Matrix products and convolutions by oneDNN alone: channels-last images, weights in the layout that it prefers, nothing
// reordered within the measurement.
#include <oneapi/dnnl/dnnl.hpp>

#include "benchmarks/contest.h"
#include "benchmarks/ops/shapes.h"

namespace gradus::bench {
namespace {

using dnnl::memory;
using tag = memory::format_tag;
using Desc = memory::desc;

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

memory filled(const Desc& d) {
  memory m(d, engine());
  auto* p = static_cast<float*>(m.get_data_handle());
  for (size_t i = 0; i < d.get_size() / sizeof(float); ++i) p[i] = float(i % 17) / 8 - 1;
  return m;
}

Workload run(const dnnl::primitive& p, std::unordered_map<int, memory> args, double flops) {
  return work(
      [p, args, stream = dnnl::stream(engine())]() mutable {
        p.execute(stream, args);
        stream.wait();
      },
      flops);
}

const auto kF32 = memory::data_type::f32;

Workload gemm(const GemmShape& s) {
  const bool batched = s.batch > 1;
  const auto desc = [&](long rows, long columns) {
    return batched ? Desc({s.batch, rows, columns}, kF32, tag::abc) : Desc({rows, columns}, kF32, tag::ab);
  };
  const Desc a = desc(s.m, s.k), b = desc(s.k, s.n), c = desc(s.m, s.n);
  const dnnl::matmul::primitive_desc pd({a, b, c}, engine());
  return run(dnnl::matmul(pd), {{DNNL_ARG_SRC, filled(a)}, {DNNL_ARG_WEIGHTS, filled(b)}, {DNNL_ARG_DST, filled(c)}},
             s.flops());
}

enum class Pass { kForward, kInputGrad, kWeightGrad };

Workload conv(const ConvShape& s, Pass pass) {
  const memory::dims strides{s.stride, s.stride}, padding{s.padding, s.padding},
      gaps{s.dilation - 1, s.dilation - 1};
  const Desc src({s.N, s.C, s.HW, s.HW}, kF32, tag::nhwc), dst({s.N, s.O, s.out(), s.out()}, kF32, tag::nhwc);
  memory::dims shape{s.O, s.C, s.kernel, s.kernel};
  if (s.groups > 1) shape = {s.groups, s.O / s.groups, s.C / s.groups, s.kernel, s.kernel};
  const Desc weights(shape, kF32, tag::any);
  const auto direct = dnnl::algorithm::convolution_direct;
  using Forward = dnnl::convolution_forward;
  const Forward::primitive_desc forward(
      Forward::desc(dnnl::prop_kind::forward_training, direct, src, weights, dst, strides, gaps, padding, padding), engine());
  if (pass == Pass::kForward)
    return run(Forward(forward),
               {{DNNL_ARG_SRC, filled(src)}, {DNNL_ARG_WEIGHTS, filled(forward.weights_desc())}, {DNNL_ARG_DST, filled(dst)}},
               s.flops());
  if (pass == Pass::kInputGrad) {
    using Backward = dnnl::convolution_backward_data;
    const Backward::primitive_desc pd(Backward::desc(direct, src, weights, dst, strides, gaps, padding, padding), engine(), forward);
    return run(Backward(pd),
               {{DNNL_ARG_DIFF_DST, filled(dst)}, {DNNL_ARG_WEIGHTS, filled(pd.weights_desc())}, {DNNL_ARG_DIFF_SRC, filled(src)}},
               s.flops());
  }
  using Backward = dnnl::convolution_backward_weights;
  const Backward::primitive_desc pd(Backward::desc(direct, src, weights, dst, strides, gaps, padding, padding), engine(), forward);
  return run(Backward(pd),
             {{DNNL_ARG_SRC, filled(src)}, {DNNL_ARG_DIFF_DST, filled(dst)}, {DNNL_ARG_DIFF_WEIGHTS, filled(pd.diff_weights_desc())}},
             s.flops());
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (const GemmShape& s : kGemmShapes) all.push_back({std::string("matmul ") + s.name, [s] { return gemm(s); }});
  for (const ConvShape& s : kConvShapes) {
    const std::string name = std::string("conv ") + s.name;
    all.push_back({name, [s] { return conv(s, Pass::kForward); }});
    all.push_back({name + ", input gradient", [s] { return conv(s, Pass::kInputGrad); }});
    all.push_back({name + ", weight gradient", [s] { return conv(s, Pass::kWeightGrad); }});
  }
  return all;
}

}  // namespace

static const AddWorkloads added(Side::kOneDNN, "dense", entries());

}  // namespace gradus::bench
