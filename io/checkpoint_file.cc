// CheckpointWriter and CheckpointReader. A checkpoint is a safetensors file: tensors, other values as text in
// its metadata, the format's version as metadata "__checkpoint__", and as its last tensor "__crc32__" the
// CRC-32 of all bytes before it. The CRC of the file is joined from the CRCs of its header and of each
// tensor, so that several readers can share the verification.
#include "gradus/io/checkpoint_file.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <vector>

#include "safetensors_format.h"

namespace gradus::io {
namespace {

using internal::quote;

constexpr std::string_view kVersionKey = "__checkpoint__";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kChecksum = "__crc32__";
constexpr int64_t kChecksumBytes = 4;
constexpr std::string_view kSave = "save_checkpoint";
constexpr std::string_view kLoad = "load_checkpoint";

// Returns a tensor on the meta device.
Tensor without_data(DType dtype, const Shape& shape) {
  return empty(shape, {.dtype = dtype, .device = {DeviceType::kMeta}});
}

// Returns whether `path` is an intact checkpoint. Reads the whole file.
bool is_intact(const std::filesystem::path& path) {
  try {
    CheckpointReader(path).check();
    return true;
  } catch (const std::exception&) {  // including std::bad_alloc for a corrupt header
    return false;
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(const std::filesystem::path& path, const Checkpoint& content,
                                   const SaveOptions& options)
    : path_(path),
      file_(path, {.op = std::string(kSave), .checksum = true, .lock_timeout = options.lock_timeout}) {
  Metadata metadata{{std::string(kVersionKey), std::string(kVersion)}};
  for (const auto& [name, value] : content.values_) {
    if (const Tensor* x = std::get_if<Tensor>(&value)) {
      tensors_.emplace_back(name, *x);
      remaining_bytes_ += x->nbytes();
    } else {
      metadata.emplace(name, Checkpoint::to_text(value));
    }
  }
  tensors_ = internal::in_file_order(std::move(tensors_), kSave);
  NamedTensors all = tensors_;
  all.emplace_back(kChecksum, without_data(DType::kU8, {kChecksumBytes}));
  internal::write_header(file_, all, metadata, kSave);
}

void CheckpointWriter::write(const Tensor& elements) {
  internal::write_tensor(file_, elements);
  remaining_bytes_ -= elements.nbytes();
}

void CheckpointWriter::commit() {
  if (remaining_bytes_ != 0)
    throw InternalError("a checkpoint lacks ", remaining_bytes_, " bytes of its tensors");
  const uint32_t crc = file_.crc32();
  file_.write(&crc, kChecksumBytes);
  file_.commit_with_backup(is_intact(path_) ? path_.string() + ".previous" : "");
}

CheckpointReader::CheckpointReader(const std::filesystem::path& path)
    : file_(path, {.op = std::string(kLoad), .checksum = true}) {
  content_.source_ = path.string();
  file_.parse([&] {
    header_ = internal::read_header(file_);
    checksums_.header = file_.crc32();
    const auto version = header_.metadata.find(std::string(kVersionKey));
    if (version == header_.metadata.end()) file_.fail("is a safetensors file, but not a checkpoint");
    if (version->second != kVersion)
      file_.fail("is a checkpoint of version ", quote(version->second), "; expected ", kVersion);
    header_.metadata.erase(version);
    std::vector<SafetensorsEntry>& entries = header_.entries;
    if (entries.empty() || entries.back().name != kChecksum ||
        entries.back().end - entries.back().begin != kChecksumBytes)
      file_.fail("has no checksum at its end");
    entries.pop_back();
    for (size_t i = 0; i < entries.size(); ++i) {
      indices_[entries[i].name] = int64_t(i);
      content_.values_[entries[i].name] = without_data(entries[i].dtype, entries[i].shape);
    }
    for (const auto& [name, text] : header_.metadata)
      if (!content_.values_.emplace(name, Checkpoint::from_text(file_, name, text)).second)
        file_.fail("has ", quote(name), " both as a tensor and as a value");
  });
}

Tensor CheckpointReader::read(int64_t index) {
  return file_.parse([&] {
    Tensor x = internal::read_tensor(file_, header_, header_.entries[size_t(index)]);
    checksums_.tensors[index] = file_.crc32();  // of the bytes since read_tensor's seek
    return x;
  });
}

Tensor CheckpointReader::read(const std::string& name) {
  content_.tensor(name);  // throws if there is none
  return read(indices_.at(name));
}

Checkpoint CheckpointReader::read() {
  Checkpoint all = content_;
  for (const auto& [name, index] : indices_) all.values_[name] = read(index);
  return all;
}

void CheckpointReader::join(const Checksums& others) {
  bool same = others.header == checksums_.header;
  for (const auto& [index, crc] : others.tensors)
    same = same && checksums_.tensors.try_emplace(index, crc).first->second == crc;
  if (!same) file_.fail("is damaged, or is not the file that others have read");
}

void CheckpointReader::check() {
  std::vector<char> buffer(1 << 20);
  uint32_t crc = checksums_.header;
  int64_t end = 0;
  for (size_t i = 0; i < header_.entries.size(); ++i) {
    const SafetensorsEntry& e = header_.entries[i];
    const auto [found, unread] = checksums_.tensors.try_emplace(int64_t(i));
    if (unread) {
      file_.seek(header_.data_begin + e.begin);
      for (int64_t left = e.end - e.begin; left > 0;) {
        const int64_t bytes = std::min(left, std::ssize(buffer));
        file_.read(buffer.data(), bytes);
        left -= bytes;
      }
      found->second = file_.crc32();
    }
    crc = combine_crc32(crc, found->second, e.end - e.begin);
    end = e.end;
  }
  uint32_t stored = 0;
  file_.seek(header_.data_begin + end);
  file_.read(&stored, kChecksumBytes);
  if (stored != crc) file_.fail("is damaged: its checksum does not match its content");
}

LoadedCheckpoint load_newest(const std::filesystem::path& path,
                             const std::function<LoadedCheckpoint(const std::filesystem::path&)>& load) {
  // Returns an error's text without its "[load_checkpoint] " prefix, which the final error adds.
  const auto defect = [](const FileError& e) {
    const std::string text = e.what(), start = concat('[', kLoad, "] ");
    return text.starts_with(start) ? text.substr(start.size()) : text;
  };
  const auto load_from = [&](const std::filesystem::path& p) {
    LoadedCheckpoint loaded = load(p);
    loaded.path = p.string();
    return loaded;
  };
  std::string newest;
  try {
    return load_from(path);
  } catch (const FileError& e) {
    newest = defect(e);
  }
  const std::filesystem::path previous = path.string() + ".previous";
  try {
    LoadedCheckpoint loaded = load_from(previous);
    loaded.warning = concat(newest, "; continuing from ", previous.string());
    return loaded;
  } catch (const FileError& e) {
    throw FileError(kLoad, "no usable checkpoint: ", newest, "; ", defect(e));
  }
}

LoadedCheckpoint inspect_checkpoint(const std::filesystem::path& path) {
  return load_newest(path, [](const std::filesystem::path& p) {
    CheckpointReader file(p);
    file.check();
    LoadedCheckpoint found;
    found.checkpoint = file.content();
    found.bytes_read = file.bytes_read();
    return found;
  });
}

}  // namespace gradus::io
