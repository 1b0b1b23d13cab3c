// Linked into op_table_test: an emulated device of 64 MiB. The op table needs little memory, and small
// devices reuse the same pages, which is faster.
#include "gradus/tools/cuda_emulator/memory.h"

namespace {

[[maybe_unused]] const bool is_set = (gradus::cuda::emulated::set_devices(1, size_t(64) << 20), true);

}  // namespace
