// The slot of the program's DeviceLibrary.
#include "gradus/distributed/transport/device_collectives.h"

namespace gradus::dist::internal {
namespace {
constinit DeviceLibrary* the_library = nullptr;
}  // namespace

DeviceLibrary* find_device_library() noexcept { return the_library; }
void register_device_library(DeviceLibrary* library) noexcept { the_library = library; }

}  // namespace gradus::dist::internal
