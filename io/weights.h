// Weights of a whole module: from a safetensors file, and into one.
//
//   models::ResNet net(models::resnet50({.classes = 10}));
//   io::load_weights(net, "resnet50.safetensors", {.except = {"fc"}});  // not the head: its size differs
#pragma once

#include <filesystem>

#include "gradus/io/safetensors.h"
#include "gradus/nn/module.h"

namespace gradus::io {

// Copies a file's tensors into the parameters and buffers of the same names, converted to their dtypes: a
// file in f16 fits a module in f32. Returns the names that were passed over.
// Errors: FileError as load_safetensors; ValueError naming the file and every name that is missing,
// unexpected or misshapen. Nothing is changed then.
nn::LoadReport load_weights(nn::Module& module, const std::filesystem::path& path,
                            nn::LoadOptions options = {});

// Writes all parameters and persistent buffers.
// Errors: as save_safetensors.
void save_weights(const nn::Module& module, const std::filesystem::path& path, const Metadata& metadata = {});

}  // namespace gradus::io
