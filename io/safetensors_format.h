// Internal to io: reads and writes the parts of open safetensors files (io/safetensors.h), as which
// checkpoints are stored, too. `op` is the name of the public operation in errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradus/io/file.h"
#include "gradus/io/safetensors.h"

namespace gradus::io::internal {

// Reads and checks the header of a file at position 0. Leaves the reader's position at the first element.
// Errors, here and in read_tensor: FileError naming the file and its defect.
SafetensorsHeader read_header(FileReader& file);
// Reads one of the header's tensors into host memory.
Tensor read_tensor(FileReader& file, const SafetensorsHeader& header, const SafetensorsEntry& entry);

// Returns the tensors in the order in which a file has them: by descending dtype size, then by name.
// Errors: ValueError as save_safetensors.
NamedTensors in_file_order(NamedTensors tensors, std::string_view op);
// Checks that all tensors have data.
// Errors: DeviceError as save_safetensors.
void check_data(const NamedTensors& tensors, std::string_view op);
// Writes the header. The caller then writes `tensors`, which are in_file_order, by write_tensor. Meta tensors
// will do for the header. Errors: ValueError as save_safetensors; FileError.
void write_header(AtomicFile& file, const NamedTensors& tensors, const Metadata& metadata,
                  std::string_view op);
void write_tensor(AtomicFile& file, const Tensor& x);  // appends the elements, row-major, from any device

bool is_utf8(std::string_view text);
// Returns an untrusted name for an error message: quoted, truncated, with control characters escaped.
std::string quote(std::string_view name);
// Returns a list of names for an error message: "'a', 'b', ... (12 in all)".
std::string quote_list(const std::vector<std::string>& names);

}  // namespace gradus::io::internal
