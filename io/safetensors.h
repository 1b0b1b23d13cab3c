// Reads and writes safetensors files: named tensors and string metadata, in the format of Hugging Face's
// safetensors library, to exchange weights with other frameworks.
//
//   io::save_safetensors("net.safetensors", {{"fc.weight", w}, {"fc.bias", b}}, {{"format", "gradus"}});
//   Tensor w = io::load_safetensors("net.safetensors").at("fc.weight");
//
// Format: 8 bytes of header length (little endian), a JSON header, and the elements of all tensors,
// row-major, without gaps. Files are untrusted: the whole header is checked before any tensor is allocated.
// Functions may be called from any thread; a SafetensorsReader is used by one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/io/file.h"
#include "gradus/tensor/named_tensors.h"
#include "gradus/tensor/tensor.h"

namespace gradus::io {

using gradus::NamedTensors;
using Metadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  NamedTensors tensors;  // in the order of the file
  Metadata metadata;

  bool contains(std::string_view name) const;
  // Returns the tensor of this name.
  // Errors: FileError listing the existing names if there is none.
  const Tensor& at(std::string_view name) const;

  std::string path;  // for errors
};

// One tensor of a file. Its elements are the bytes [begin, end), counted from the end of the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype;
  Shape shape;
  int64_t begin;
  int64_t end;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the file, without gaps or overlaps
  Metadata metadata;
  int64_t data_begin = 0;  // position in the file from which the entries' bytes count
};

// Writes tensors of any dtype, device and layout, atomically (AtomicFile). Elements are row-major; tensors
// are ordered by descending dtype size, then by name, as in the reference library.
//
// Errors: ValueError for an undefined tensor, for a name that occurs twice or is "__metadata__", for names
// and metadata that are not UTF-8 or exceed 100 MB; DeviceError for a tensor without data (meta); FileError
// if the file cannot be written.
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const Metadata& metadata = {});

// Reads all tensors into host memory.
//
// Errors: FileError naming the file and its defect: missing, truncated, malformed, or an unsupported dtype.
SafetensorsFile load_safetensors(const std::filesystem::path& path);

// Reads and checks only the header: names, dtypes, shapes.
// Errors: as load_safetensors.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

// Reads single tensors of a file, which stays open.
class SafetensorsReader {
 public:
  // Reads and checks the header.
  // Errors: as load_safetensors.
  explicit SafetensorsReader(const std::filesystem::path& path);
  const SafetensorsHeader& header() const { return header_; }
  // Reads one of the header's tensors into host memory.
  // Errors: as load_safetensors.
  Tensor read(const SafetensorsEntry& entry);

 private:
  FileReader file_;
  SafetensorsHeader header_;
};

}  // namespace gradus::io
