// Linked into tests: four emulated devices of 256 MiB, one for each of up to four ranks, which NCCL then connects.
#include "gradus/tools/cuda_emulator/memory.h"

namespace {

[[maybe_unused]] const bool is_set = (gradus::cuda::emulated::set_devices(4, size_t(256) << 20), true);

}  // namespace
