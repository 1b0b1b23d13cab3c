#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {
namespace {

using namespace functors;  // NOLINT
using raw::Binary, raw::Unary;

const Slots mathematics{
    on_cuda<Unary<Exp>>,    on_cuda<Unary<Exp2>>,      on_cuda<Unary<Expm1>>, on_cuda<Unary<Log>>,
    on_cuda<Unary<Log2>>,   on_cuda<Unary<Log10>>,     on_cuda<Unary<Log1p>>, on_cuda<Binary<LogAddExp>>,
    on_cuda<Binary<Xlogy>>, on_cuda<Unary<Erf>>,       on_cuda<Unary<Erfc>>,  on_cuda<Unary<Erfinv>>,
    on_cuda<Unary<Lgamma>>, on_cuda<Unary<Polygamma>>,
};

}  // namespace
}  // namespace gradus::cuda
