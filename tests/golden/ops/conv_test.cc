// Convolutions in 1 to 3 dimensions, transposed ones (_back), and gradients against PyTorch's: cases of
// conv.py by name, as golden_ops.h explains. Inputs: x, weight, optional bias.
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

Tensor bias(X x) { return x.size() > 2 ? x[2] : Tensor(); }

template <class Options>
GoldenOp forward(const char* name, Tensor (*op)(const Tensor&, const Tensor&, const Tensor&, const Options&),
                 Options o) {
  return {name, [=](X x) { return op(x[0], x[1], bias(x), o); }};
}
GoldenOp one(const char* name, Conv1dFuncOptions o = {}) { return forward(name, &conv1d, o); }
GoldenOp two(const char* name, Conv2dFuncOptions o = {}) { return forward(name, &conv2d, o); }
GoldenOp three(const char* name, Conv3dFuncOptions o = {}) { return forward(name, &conv3d, o); }
GoldenOp one_back(const char* name, ConvTranspose1dFuncOptions o = {}) {
  return forward(name, &conv_transpose1d, o);
}
GoldenOp two_back(const char* name, ConvTranspose2dFuncOptions o = {}) {
  return forward(name, &conv_transpose2d, o);
}
GoldenOp three_back(const char* name, ConvTranspose3dFuncOptions o = {}) {
  return forward(name, &conv_transpose3d, o);
}

// Inputs: dy, x, weight. The recorded gradients of these ops are second derivatives.
GoldenOp gradients_2d(const char* name, Conv2dFuncOptions o = {}) {
  return {name, [=](X x) {
            return std::vector<Tensor>{conv2d_input_grad(x[0], x[2], x[1].shape(), o),
                                       conv2d_weight_grad(x[0], x[1], x[2].shape(), false, o).first};
          }};
}
GoldenOp gradients_3d(const char* name, Conv3dFuncOptions o = {}) {
  return {name, [=](X x) {
            return std::vector<Tensor>{conv3d_input_grad(x[0], x[2], x[1].shape(), o),
                                       conv3d_weight_grad(x[0], x[1], x[2].shape(), false, o).first};
          }};
}

}  // namespace

static const bool added = add_golden_ops(
    "conv",
    {
        two("conv2d/plain"),
        two("conv2d/no_bias"),
        two("conv2d/stride_padding", {.stride = {2, 1}, .padding = {1, 2}}),
        two("conv2d/dilation", {.padding = 2, .dilation = {2, 3}}),
        two("conv2d/groups", {.padding = 1, .groups = 2}),
        two("conv2d/depthwise", {.stride = 2, .padding = 1, .groups = 4}),
        two("conv2d/1x1"),
        two("conv2d/one_of_all"),
        two("conv2d/empty"),
        two("conv2d/without_batch"),
        two("conv2d/same", {.dilation = {1, 2}, .same_padding = true}),
        two("conv2d/sixteen", {.padding = 1}),
        one("conv1d/plain"),
        one("conv1d/options", {.stride = 2, .padding = 3, .dilation = 2, .groups = 2}),
        one("conv1d/same", {.same_padding = true}),
        one("conv1d/without_batch"),
        one("conv1d/empty"),
        three("conv3d/plain"),
        three("conv3d/options",
              {.stride = {2, 1, 2}, .padding = {0, 1, 2}, .dilation = {1, 2, 1}, .groups = 2}),
        three("conv3d/same", {.same_padding = true}),
        three("conv3d/without_batch"),
        one_back("conv_transpose1d/plain"),
        one_back("conv_transpose1d/options",
                 {.stride = 3, .padding = 2, .output_padding = 1, .dilation = 2, .groups = 2}),
        one_back("conv_transpose1d/without_batch", {.stride = 2}),
        two_back("conv_transpose2d/plain"),
        two_back("conv_transpose2d/no_bias"),
        two_back("conv_transpose2d/dcgan", {.stride = 2, .padding = 1}),
        two_back(
            "conv_transpose2d/options",
            {.stride = {3, 2}, .padding = {1, 0}, .output_padding = {2, 1}, .dilation = {1, 2}, .groups = 2}),
        two_back("conv_transpose2d/depthwise", {.stride = 2, .groups = 3}),
        two_back("conv_transpose2d/whole_strides",
                 {.stride = {1, 2}, .padding = 1, .output_padding = {1, 3}, .dilation = {2, 4}}),
        two_back("conv_transpose2d/one_of_all"),
        two_back("conv_transpose2d/empty"),
        two_back("conv_transpose2d/without_batch", {.stride = 2}),
        three_back("conv_transpose3d/plain"),
        three_back("conv_transpose3d/options",
                   {.stride = {2, 1, 3}, .padding = {1, 0, 1}, .output_padding = {1, 0, 2}, .groups = 2}),
        gradients_2d("conv2d_gradients/plain"),
        gradients_2d("conv2d_gradients/options", {.stride = 2, .padding = 1, .dilation = 2, .groups = 2}),
        gradients_3d("conv3d_gradients/plain"),
        gradients_3d("conv3d_gradients/options", {.stride = 2, .padding = 1, .groups = 2}),
    });

}  // namespace gradus::golden
