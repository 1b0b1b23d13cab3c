// MemoryStore: a store in this process's memory, for ranks that are threads. In a simulation, its waits obey the
// simulation.
#pragma once

#include <memory>

#include "gradus/distributed/base/store.h"

namespace gradus::dist {

std::shared_ptr<Store> make_memory_store();

}  // namespace gradus::dist
