// Loads and saves the weights of a module as a safetensors file.
//
//   models::ResNet net(models::resnet50({.classes = 10}));
//   io::load_weights(net, "resnet50.safetensors", {.except = {"fc"}});  // without the head, whose size differs
#pragma once

#include <filesystem>

#include "gradus/io/safetensors.h"
#include "gradus/nn/module.h"

namespace gradus::io {

// Copies a file's tensors into the parameters and buffers of the same names, with conversion of floating-point
// dtypes. Returns the names that were not loaded: those in options.except, and without options.strict the
// missing and unexpected ones.
// Errors: FileError as load_safetensors; ValueError naming the file, every mismatching shape, and with
// options.strict every missing or unexpected name. The module does not change after an error.
nn::LoadReport load_weights(nn::Module& module, const std::filesystem::path& path,
                            nn::LoadOptions options = {});

// Writes all parameters and persistent buffers, atomically, with `metadata` in the file's header.
// Errors: as save_safetensors.
void save_weights(const nn::Module& module, const std::filesystem::path& path, const Metadata& metadata = {});

}  // namespace gradus::io
