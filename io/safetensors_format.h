// The safetensors format on open files, shared by safetensors.cc, checkpoint.cc, checkpoint_file.cc and event_writer.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradus/io/file.h"
#include "gradus/io/safetensors.h"

namespace gradus::io::internal {

// Reads and checks the header. Leaves the reader's position at the first element.
SafetensorsHeader read_header(FileReader& file);
// Reads the elements of one of the header's tensors.
Tensor read_tensor(FileReader& file, const SafetensorsHeader& header, const SafetensorsEntry& entry);

// Returns the tensors in the order of the file.
// Errors: ValueError as save_safetensors.
NamedTensors in_file_order(NamedTensors tensors, std::string_view op);
// Checks that all tensors have data.
// Errors: DeviceError as save_safetensors.
void check_data(const NamedTensors& tensors, std::string_view op);
// Writes the header for tensors whose elements follow in this order.
void write_header(AtomicFile& file, const NamedTensors& tensors, const Metadata& metadata,
                  std::string_view op);
void write_tensor(AtomicFile& file, const Tensor& x);

bool is_utf8(std::string_view text);
// Returns an untrusted name for an error message: quoted, truncated, with control characters escaped.
std::string quote(std::string_view name);
// Returns a list of names for an error message: "'a', 'b', ... (12 in all)".
std::string quote_list(const std::vector<std::string>& names);

}  // namespace gradus::io::internal
