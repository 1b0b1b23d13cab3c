// Workloads: matrix products and convolutions, with oneDNN alone. Images are channels-last, weights are in
// oneDNN's preferred layout, so the measurement contains no reorders.
// `compare` (benchmarks/compare.cc) reports the speed of the workloads of the same names in
// dense_gradus.cc as a percentage of these.
#include <memory>

#include "benchmarks/ops/shapes.h"
#include "benchmarks/workloads.h"
#include "gradus/tensor/cpu/onednn/problems.h"

namespace gradus::bench {
namespace {

using onednn::Desc;
using onednn::Pass;
using onednn::Plan;

// Returns oneDNN memory of this layout with random contents. Appends the owner of its bytes to `held`.
dnnl::memory filled(const Desc& layout, std::vector<Tensor>& held) {
  held.push_back(onednn::scratch(layout));
  auto* p = static_cast<float*>(held.back().raw_ptr());
  for (size_t i = 0; i < layout.get_size() / sizeof(float); ++i) p[i] = float(i % 17) / 8 - 1;
  return onednn::memory(layout, held.back());
}

// Runs a plan on three tensors, given by oneDNN's argument indices and the plan's layouts.
Workload run(const Plan& plan, std::initializer_list<std::pair<int, Desc>> layouts, double flops) {
  std::vector<Tensor> held;
  std::vector<onednn::Arg> args;
  for (const auto& [index, layout] : layouts) args.push_back({index, filled(layout, held)});
  return work([plan, held, args] { onednn::run(plan, {args[0], args[1], args[2]}); }, flops);
}

Workload gemm(const GemmShape& s) {
  const auto matrices = [&](long rows, long columns) {
    return s.batch > 1 ? onednn::MatrixLayout{{s.batch, rows, columns}, {rows * columns, columns, 1}}
                       : onednn::MatrixLayout{{rows, columns}, {columns, 1}};
  };
  const Tensor out = s.batch > 1 ? empty({s.batch, s.m, s.n}) : empty({s.m, s.n});
  const Plan plan = onednn::matmul_plan(DType::kF32, matrices(s.m, s.k), matrices(s.k, s.n), out, false);
  return run(plan, {{DNNL_ARG_SRC, plan.src}, {DNNL_ARG_WEIGHTS, plan.weights}, {DNNL_ARG_DST, plan.dst}},
             s.flops());
}

Workload conv(const ConvShape& s, Pass pass) {
  const raw::ConvGeometry g(Conv2dFuncOptions{
      .stride = s.stride, .padding = s.padding, .dilation = s.dilation, .groups = s.groups});
  const Tensor x = empty({s.N, s.C, s.HW, s.HW}), w = empty({s.O, s.C / s.groups, s.kernel, s.kernel});
  const Plan plan = onednn::conv_plan(pass, x, w, empty({s.N, s.O, s.out(), s.out()}), g, false);
  constexpr int kArgs[][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                              {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                              {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  const auto& args = kArgs[int(pass)];
  return run(plan, {{args[0], plan.src}, {args[1], plan.weights}, {args[2], plan.dst}}, s.flops());
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (const GemmShape& s : kGemmShapes)
    all.push_back({std::string("matmul ") + s.name, [s] { return gemm(s); }});
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
