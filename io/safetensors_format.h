// The safetensors format on top of open files; shared by safetensors.cc and the files of checkpoints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradus/io/file.h"
#include "gradus/io/safetensors.h"

namespace gradus::io::internal {

// Reads and checks the header; the reader then stands at the first element.
SafetensorsHeader read_header(FileReader& file);
// Reads the elements of one of the header's tensors.
Tensor read_tensor(FileReader& file, const SafetensorsHeader& header, const SafetensorsEntry& entry);

// Returns the tensors in the order of the file.
// Errors: ValueError as save_safetensors.
NamedTensors in_file_order(NamedTensors tensors, std::string_view op);
// Throws the DeviceError of save_safetensors for a tensor without data.
void check_data(const NamedTensors& tensors, std::string_view op);
// Writes the header for tensors that follow in this order.
void write_header(AtomicFile& file, const NamedTensors& tensors, const Metadata& metadata,
                  std::string_view op);
void write_tensor(AtomicFile& file, const Tensor& x);

bool is_utf8(std::string_view text);
// Returns a name from a file for an error: 'quoted', abridged, with control characters escaped.
std::string quote(std::string_view name);
// Returns the names for an error: "'a', 'b', ... (12 in all)".
std::string quote_list(const std::vector<std::string>& names);

}  // namespace gradus::io::internal
