// All convolutions of the program are computed by our own kernels: the library supports none.
#include "gradus/tools/cuda_emulator/libraries/cudnn.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT

[[maybe_unused]] const bool is_set = (refuse_graphs(RefusedGraphs::kAll), true);

}  // namespace
