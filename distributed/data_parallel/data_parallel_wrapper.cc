// Loads state dicts whose names have the prefix "module." of PyTorch's wrappers.
#include "gradus/distributed/data_parallel/data_parallel_wrapper.h"

#include <unordered_set>

namespace gradus::dist::internal {

nn::LoadReport load_without_wrappers(nn::Module& module, const nn::StateDict& state,
                                     nn::LoadOptions options) {
  std::unordered_set<std::string> known;
  for (const auto& [name, x] : module.state_dict()) known.insert(name);
  nn::StateDict renamed;
  for (const auto& [name, x] : state) {
    std::string bare = "." + name;
    for (size_t at; (at = bare.find(".module.")) != std::string::npos;) bare.erase(at, 7);
    bare.erase(0, 1);
    renamed.emplace_back(!known.count(name) && known.count(bare) ? bare : name, x);
  }
  return module.load_state_dict(renamed, options);
}

}  // namespace gradus::dist::internal
