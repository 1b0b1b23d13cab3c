// Implementation of safetensors.h with the functions of safetensors_format.h.
#include "gradus/io/safetensors.h"

#include <algorithm>

#include "safetensors_format.h"

namespace gradus::io {

bool SafetensorsFile::contains(std::string_view name) const {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == name; });
}

const Tensor& SafetensorsFile::at(std::string_view name) const {
  for (const auto& [n, x] : tensors)
    if (n == name) return x;
  std::vector<std::string> names;
  for (const auto& [n, x] : tensors) names.push_back(n);
  throw FileError("safetensors", path, ": has no tensor ", internal::quote(name), "; it has ",
                  internal::quote_list(names));
}

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const Metadata& metadata) {
  constexpr std::string_view kOp = "save_safetensors";
  const NamedTensors ordered = internal::in_file_order(tensors, kOp);
  internal::check_data(ordered, kOp);
  AtomicFile file(path, {.op = std::string(kOp)});
  internal::write_header(file, ordered, metadata, kOp);
  for (const auto& [name, x] : ordered) internal::write_tensor(file, x);
  file.commit();
}

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  SafetensorsReader file(path);
  SafetensorsFile result;
  result.path = path.string();
  result.metadata = file.header().metadata;
  for (const SafetensorsEntry& e : file.header().entries) result.tensors.emplace_back(e.name, file.read(e));
  return result;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  FileReader file(path, {.op = "read_safetensors_header"});
  return file.parse([&] { return internal::read_header(file); });
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : file_(path, {.op = "load_safetensors"}),
      header_(file_.parse([&] { return internal::read_header(file_); })) {}

Tensor SafetensorsReader::read(const SafetensorsEntry& entry) {
  return file_.parse([&] { return internal::read_tensor(file_, header_, entry); });
}

}  // namespace gradus::io
