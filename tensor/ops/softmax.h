// Raw softmax ops. They work in x's memory order: a channels-last x gives a channels-last result.
#pragma once

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Dense tensors of one layout, seen as [outer, n, inner] with the softmax over n.
// clang-format off
extern KernelSlot<void(const Tensor& y, const Tensor& x, int64_t n, int64_t inner, bool log)> softmax_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t n, int64_t inner, bool
    log)> softmax_backward_kernel;
// clang-format on

Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);
// dx = y (dy - sum(dy y)), and dx = dy - exp(y) sum(dy), where y is the forward's result.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);

}  // namespace gradus::raw
