// Creation of oneDNN primitives for convolutions and matrix products, on oneDNN 2 and 3. oneDNN lists several
// implementations of a primitive; the first one that has no known bug for the given sizes is taken (has_defect).
// Weights get the layout that the implementation prefers; the caller reorders them.
#include "gradus/tensor/cpu/onednn/problems.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace gradus::onednn {
namespace {

using dnnl::memory;
using tag = memory::format_tag;
using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

// Returns the first implementation, in oneDNN's order, for whose name has_defect(name) is false. `problem` are
// the arguments of the primitive's descriptor. `hint` holds the descriptor of the forward primitive if the
// primitive is a gradient, and is empty otherwise. In oneDNN 2 an operation descriptor is created first, which
// must outlive the iteration.
// Errors: dnnl::error (unimplemented) if every implementation has a defect.
template <class Primitive, class HasDefect, class... Hint, class... Part>
typename Primitive::primitive_desc first_without_defect(const HasDefect& has_defect,
                                                        const std::tuple<Hint...>& hint,
                                                        const Part&... problem) {
  using Implementation = typename Primitive::primitive_desc;
  const dnnl::primitive_attr attr = user_scratchpad();
#if DNNL_VERSION_MAJOR < 3
  const typename Primitive::desc descriptor(problem...);
  const auto make = [&](const Hint&... h) { return Implementation(descriptor, attr, engine(), h...); };
#else
  const auto make = [&](const Hint&... h) { return Implementation(engine(), problem..., h..., attr); };
#endif
  Implementation pd = std::apply(make, hint);
  while (has_defect(pd.impl_info_str()))
    if (!pd.next_impl()) throw dnnl::error(dnnl_unimplemented, "every implementation is known to err");
  return pd;
}

memory::dims dims_of(const Shape& s) { return memory::dims(s.begin(), s.end()); }

// Returns the row-major layout of a tensor with 1 to 6 dims.
Desc row_major(const memory::dims& sizes, DType t) {
  constexpr tag kTags[] = {tag::a, tag::ab, tag::abc, tag::abcd, tag::abcde, tag::abcdef};
  return Desc(sizes, type_of(t), kTags[sizes.size() - 1]);
}

}  // namespace

Desc image_layout(const Tensor& x) {
  return Desc(dims_of(x.shape()), type_of(x.dtype()), x.dim() == 5 ? tag::ndhwc : tag::nhwc);
}

// `any_layout` (oneDNN chooses the layouts of x and y) is only for kWeightGrad: the other passes do not store the
// chosen layouts in the plan.
Plan conv_plan(Pass pass, const Tensor& x, const Tensor& w, const Tensor& y, const raw::ConvGeometry& g,
               bool with_bias, bool any_layout) {
  const auto layout = [&](const Tensor& image) {
    return any_layout ? Desc(dims_of(image.shape()), type_of(image.dtype()), tag::any) : image_layout(image);
  };
  const Desc src = layout(x), dst = layout(y);
  memory::dims filters = dims_of(w.shape());
  // With groups, oneDNN expects weights [groups, O/groups, C/groups, ...].
  if (g.groups > 1) filters[0] /= g.groups, filters.insert(filters.begin(), g.groups);
  const Desc weights(filters, type_of(y.dtype()), tag::any);
  const Desc bias = with_bias ? row_major({w.size(0)}, w.dtype()) : Desc();
  const memory::dims stride(g.stride.begin(), g.stride.end()), padding(g.padding.begin(), g.padding.end());
  // oneDNN counts the skipped elements: its dilation 0 is PyTorch's dilation 1.
  memory::dims gaps(g.dilation.begin(), g.dilation.end());
  for (auto& gap : gaps) --gap;
  const auto has_defect_in = [&](Pass p) {
    return [&, p](const char* name) { return has_defect(name, p, x.shape(), w.shape(), g); };
  };
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const auto forward = [&] {
    return first_without_defect<Forward>(has_defect_in(Pass::kForward), std::tuple(),
                                         dnnl::prop_kind::forward_training, kDirect, src, weights, bias, dst,
                                         stride, gaps, padding, padding);
  };
  Plan plan;
  plan.src = src, plan.dst = dst, plan.bias = bias, plan.plain_weights = row_major(filters, w.dtype());
  switch (pass) {
    case Pass::kForward: {
      const auto pd = forward();
      plan.primitive = Forward(pd), plan.weights = pd.weights_desc(), plan.scratchpad = pd.scratchpad_desc();
      break;
    }
    case Pass::kInputGrad: {
      const auto pd = first_without_defect<BackwardData>(has_defect_in(pass), std::tuple(forward()), kDirect,
                                                         src, weights, dst, stride, gaps, padding, padding);
      plan.primitive = BackwardData(pd), plan.weights = pd.weights_desc(),
      plan.scratchpad = pd.scratchpad_desc();
      break;
    }
    case Pass::kWeightGrad: {
      const Desc gradient(filters, type_of(w.dtype()), tag::any);
      const auto pd =
          first_without_defect<BackwardWeights>(has_defect_in(pass), std::tuple(forward()), kDirect, src,
                                                gradient, bias, dst, stride, gaps, padding, padding);
      plan.primitive = BackwardWeights(pd), plan.weights = pd.diff_weights_desc();
      plan.scratchpad = pd.scratchpad_desc(), plan.src = pd.src_desc(), plan.dst = pd.diff_dst_desc();
      break;
    }
  }
  return plan;
}

// With dims in order of their strides, each stride must be at least the extent of the dims with smaller strides.
// So neither overlaps nor strides of 0 have a descriptor.
bool has_memory_desc(const MatrixLayout& m) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size)
  for (size_t d = 0; d < m.sizes.size(); ++d) dims.emplace_back(m.strides[d], m.sizes[d]);
  std::sort(dims.begin(), dims.end());
  int64_t end = 1;
  for (const auto& [step, size] : dims) {
    if (step < end) return false;
    end = step * size;
  }
  return true;
}

Plan matmul_plan(DType dtype, const MatrixLayout& a, const MatrixLayout& b, const Tensor& out,
                 bool with_bias) {
  memory::dims bias_sizes(size_t(out.dim()), 1);
  bias_sizes.back() = out.size(-1);
  Plan plan;
  plan.src = Desc(a.sizes, type_of(dtype), a.strides);
  plan.weights = Desc(b.sizes, type_of(dtype), b.strides);
  plan.bias = with_bias ? row_major(bias_sizes, dtype) : Desc();
  plan.dst = row_major(dims_of(out.shape()), out.dtype());
  const int64_t batch = out.dim() == 3 ? out.size(0) : 1;
  const auto has_defect = [&](const char* name) {
    return has_matmul_defect(name, a, b, batch, apply_num_threads());
  };
  const auto pd = first_without_defect<dnnl::matmul>(has_defect, std::tuple(), plan.src, plan.weights,
                                                     plan.bias, plan.dst);
  plan.primitive = dnnl::matmul(pd), plan.scratchpad = pd.scratchpad_desc();
  return plan;
}

// Reads sizes, strides and inner blocks of a layout that oneDNN has chosen. Returns nullopt for a layout that is
// not blocked or has an offset.
std::optional<Blocking> blocking_of(const Desc& layout) {
#if DNNL_VERSION_MAJOR < 3
  const dnnl_memory_desc_t& md = layout.data;
  if (md.format_kind != dnnl_blocked || md.offset0 != 0) return {};
  const auto& b = md.format_desc.blocking;
  const auto list = [](const dnnl_dim_t* from, int n) { return memory::dims(from, from + n); };
  return Blocking{list(md.dims, md.ndims), list(md.padded_dims, md.ndims), list(b.strides, md.ndims),
                  list(b.inner_blks, b.inner_nblks), list(b.inner_idxs, b.inner_nblks)};
#else
  if (layout.get_format_kind() != memory::format_kind::blocked || layout.get_submemory_offset() != 0)
    return {};
  return Blocking{layout.get_dims(), layout.get_padded_dims(), layout.get_strides(), layout.get_inner_blks(),
                  layout.get_inner_idxs()};
#endif
}

}  // namespace gradus::onednn
