// FLOP counts of the kernels of matrix products, attention and convolutions, computed from the shapes. A multiply-add counts
// as 2 FLOPs; adding a bias and applying a ReLU do not count. `tensors` are the kernel's arguments without
// undefined ones, the output first.
#include "gradus/tensor/flops.h"

#include "gradus/tensor/tensor.h"

namespace gradus {

int64_t kernel_flops(std::string_view op, std::span<const Tensor* const> tensors) {
  // out [...,M,N], a [...,M,K]: K multiply-adds for each element of out.
  if (op == "matmul" || op == "matmul_relu") return 2 * tensors[0]->numel() * tensors[1]->size(-1);
  // dw, dbias, dy [K,N], x [K,M].
  if (op == "linear_weight_grad") return 2 * tensors[2]->numel() * tensors[3]->size(1);
  // y [...,L,V], softmax_stats, q [...,L,E], k [...,S,E]: the products q k^T and w v, also where keys are masked.
  if (op == "attention") return 2 * tensors[3]->size(-2) * (tensors[2]->numel() + tensors[0]->numel());
  // dq, dk, dv, dy, y, softmax_stats, q, k: the products q k^T, dy v^T, dv, dk and dq.
  if (op == "attention_backward")
    return 2 * tensors[7]->size(-2) * (3 * tensors[0]->numel() + 2 * tensors[3]->numel());
  if (!op.starts_with("conv")) return 0;
  // Each element of the convolution's output y is a sum over the weights of its channel: w.numel() / w.size(0)
  // multiply-adds, also with groups. Both gradients have the same number, where dy stands for y and dw for w.
  const auto products = [](const Tensor& y, const Tensor& w) {
    return w.size(0) > 0 ? 2 * y.numel() * (w.numel() / w.size(0)) : 0;
  };
  if (op.ends_with("_input_grad")) return products(*tensors[1], *tensors[2]);  // dx, dy, w
  if (op.ends_with("_weight_grad"))
    return products(*tensors[tensors.size() - 2], *tensors[0]);  // dw, db if defined, dy, x
  return products(*tensors[0], *tensors[2]);                     // y, x, w
}

}  // namespace gradus
