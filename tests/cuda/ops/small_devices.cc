// The op table needs little memory. Small devices use the same pages again, which saves the system's time.
#include "gradus/tools/cuda_emulator/memory.h"

namespace {

[[maybe_unused]] const bool is_set = (gradus::cuda::emulated::set_devices(1, size_t(64) << 20), true);

}  // namespace
