#include "gradus/data/sets/host_tensor.h"

#include "gradus/tensor/runtime/job.h"

namespace gradus::data {

HostTensor host_tensor(const std::string& key, int64_t size, const std::function<void(uint8_t* out)>& fill) {
  const HostMemory memory =
      Job::current()->share("data/" + key, static_cast<size_t>(size),
                            [&](std::byte* out) { fill(reinterpret_cast<uint8_t*>(out)); });
  HostTensor result;
  result.bytes = from_blob(const_cast<std::byte*>(memory.bytes.get()), {size}, {.dtype = DType::kU8},
                           [keep = memory.bytes] {});
  (memory.shared ? result.memory.shared : result.memory.own) = size;
  return result;
}

}  // namespace gradus::data
