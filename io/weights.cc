// load_weights and save_weights: Module::load_state_dict and state_dict on a safetensors file.
#include "gradus/io/weights.h"

namespace gradus::io {

nn::LoadReport load_weights(nn::Module& module, const std::filesystem::path& path, nn::LoadOptions options) {
  const SafetensorsFile file = load_safetensors(path);
  try {
    return module.load_state_dict(file.tensors, std::move(options));
  } catch (Error& e) {
    e.add_context("while loading " + path.string());
    throw;
  }
}

void save_weights(const nn::Module& module, const std::filesystem::path& path, const Metadata& metadata) {
  save_safetensors(path, module.state_dict(), metadata);
}

}  // namespace gradus::io
