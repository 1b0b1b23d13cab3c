#include "gradus/tensor/ops/creation.h"

#include "gradus/tensor/cuda/kernels/creation.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

void arange_cuda(const Tensor& out, double start, double step) {
  arange("arange", view_of(out), out.numel(), start, step, stream_for({&out}));
}

void linspace_cuda(const Tensor& out, double start, double end) {
  linspace("linspace", view_of(out), out.numel(), start, end, stream_for({&out}));
}

[[maybe_unused]] const bool is_set =
    (raw::arange_kernel.cuda = &arange_cuda, raw::linspace_kernel.cuda = &linspace_cuda, true);

}  // namespace
}  // namespace gradus::cuda
