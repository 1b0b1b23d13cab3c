// Linked into a test: the emulated cuDNN supports no convolution, so Gradus's own kernels compute all.
#include "gradus/tools/cuda_emulator/libraries/cudnn.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT

[[maybe_unused]] const bool is_set = (refuse_graphs(RefusedGraphs::kAll), true);

}  // namespace
