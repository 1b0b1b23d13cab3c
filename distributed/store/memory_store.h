// MemoryStore: a key-value store in this process's memory, for ranks that are threads. Thread-safe. In a
// simulation (distributed/simulation), its waits take simulated time.
#pragma once

#include <memory>

#include "gradus/distributed/base/store.h"

namespace gradus::dist {

// Returns an empty store.
std::shared_ptr<Store> make_memory_store();

}  // namespace gradus::dist
