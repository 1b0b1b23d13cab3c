#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {
namespace {

using namespace functors;  // NOLINT
using raw::Binary, raw::Unary;

const Slots trigonometry{
    on_cuda<Unary<Sin>>,  on_cuda<Unary<Cos>>,   on_cuda<Unary<Tan>>,    on_cuda<Unary<Asin>>,
    on_cuda<Unary<Acos>>, on_cuda<Unary<Atan>>,  on_cuda<Binary<Atan2>>, on_cuda<Unary<Sinh>>,
    on_cuda<Unary<Cosh>>, on_cuda<Unary<Asinh>>, on_cuda<Unary<Acosh>>,  on_cuda<Unary<Atanh>>,
};

}  // namespace
}  // namespace gradus::cuda
