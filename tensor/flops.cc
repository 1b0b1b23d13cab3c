// FLOP counts of matrix products and convolutions, from shapes.
#include "gradus/tensor/flops.h"

#include "gradus/tensor/tensor.h"

namespace gradus {

int64_t kernel_flops(std::string_view op, std::span<const Tensor* const> tensors) {
  if (op == "matmul" || op == "matmul_relu") return 2 * tensors[0]->numel() * tensors[1]->size(-1);
  if (!op.starts_with("conv")) return 0;
  // Each element of the output is a sum over the weights of its channel, w.numel() / w.size(0) multiply-adds.
  const auto products = [](const Tensor& y, const Tensor& w) {
    return w.size(0) > 0 ? 2 * y.numel() * (w.numel() / w.size(0)) : 0;
  };
  if (op.ends_with("_input_grad")) return products(*tensors[1], *tensors[2]);  // dx, dy, w
  if (op.ends_with("_weight_grad"))
    return products(*tensors[tensors.size() - 2], *tensors[0]);  // dw, perhaps db, dy, x
  return products(*tensors[0], *tensors[2]);                     // y, x, w
}

}  // namespace gradus
