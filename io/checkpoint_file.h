// Checkpoint files, tensor by tensor: for what does not fit one memory, or lies on several ranks.
//
//   io::CheckpointWriter out("runs/last.ckpt", content);    // content's tensors may be on the meta device
//   for (const auto& [name, x] : out.tensors()) out.write(elements_of(name));
//   out.commit();
//
//   io::CheckpointReader in("runs/last.ckpt");
//   const Tensor w = in.read("model.fc.weight");
//   in.check();  // whether the file is whole
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "gradus/io/checkpoint.h"
#include "gradus/io/file.h"
#include "gradus/io/safetensors.h"

namespace gradus::io {

// Writes what save_checkpoint writes.
class CheckpointWriter {
 public:
  // Begins the file. Of the tensors it takes names, dtypes and shapes.
  // Errors: as save_checkpoint.
  CheckpointWriter(const std::filesystem::path& path, const Checkpoint& content,
                   const SaveOptions& options = {});
  // Returns the content's tensors, in the order in which their elements must be written.
  const NamedTensors& tensors() const { return tensors_; }
  // Writes the next elements: those of a tensor, or of a row-major part of it.
  // Errors: FileError; DeviceError for a tensor without data.
  void write(const Tensor& elements);
  // Puts the file in its place, and the one before at PATH.previous, if that is good.
  // Errors: FileError; InternalError unless all elements have been written.
  void commit();

 private:
  const std::filesystem::path path_;
  AtomicFile file_;
  NamedTensors tensors_;
  int64_t left_ = 0;  // bytes to write
};

// Reads what load_checkpoint reads.
class CheckpointReader {
 public:
  // Reads all but the tensors' elements.
  // Errors: FileError as load_checkpoint, of this file.
  explicit CheckpointReader(const std::filesystem::path& path);
  // Returns the values, and the tensors on the meta device.
  const Checkpoint& content() const { return content_; }

  // Reads a tensor, into host memory. The elements may be damaged: see check.
  // Errors: FileError if it is not there, or cannot be read.
  Tensor read(const std::string& name);
  Checkpoint read();  // everything

  // What has been read, as checksums: they may come from another reader of the file.
  struct Checksums {
    uint32_t header = 0;
    std::map<int64_t, uint32_t> tensors;  // by their place in the file
  };
  const Checksums& checksums() const { return checksums_; }
  // Takes what another reader has read as read.
  // Errors: FileError if that reader has read another file.
  void join(const Checksums& others);
  // Checks the whole file, and for that reads what has not been read, without keeping it.
  // Errors: FileError if the file is damaged.
  void check();
  int64_t bytes_read() const { return file_.bytes_read(); }

 private:
  Tensor read(int64_t place);

  FileReader file_;
  SafetensorsHeader header_;  // without the format's own entries
  std::map<std::string, int64_t> places_;
  Checkpoint content_;
  Checksums checksums_;
};

// Returns load(PATH). If that is a FileError, returns load(PATH.previous), with a warning.
// Errors: FileError naming both files and what is wrong with each; other errors of `load`.
LoadedCheckpoint load_newest(const std::filesystem::path& path,
                             const std::function<LoadedCheckpoint(const std::filesystem::path&)>& load);

// Reads PATH, or PATH.previous, as load_checkpoint does, and checks it whole, but keeps no elements: the
// tensors of the result are on the meta device.
// Errors: as load_checkpoint.
LoadedCheckpoint inspect_checkpoint(const std::filesystem::path& path);

}  // namespace gradus::io
