// Reads and writes checkpoint files tensor by tensor, for checkpoints that exceed the memory of one process or
// whose tensors are on several ranks. A writer or reader is used by one thread at a time.
//
//   io::CheckpointWriter out("runs/last.ckpt", content);    // content's tensors may be on the meta device
//   for (const auto& [name, x] : out.tensors()) out.write(receive(name));  // x: dtype and shape to write
//   out.commit();                                           // without commit the old file stays
//
//   io::CheckpointReader in("runs/last.ckpt");
//   const Tensor w = in.read("model.fc.weight");
//   in.check();  // throws FileError if the file is damaged
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

// Writes the same file as save_checkpoint.
class CheckpointWriter {
 public:
  // Writes the header. Uses only names, dtypes and shapes of the tensors.
  // Errors: as save_checkpoint.
  CheckpointWriter(const std::filesystem::path& path, const Checkpoint& content,
                   const SaveOptions& options = {});
  // Returns the content's tensors, in the order in which their elements must be written.
  const NamedTensors& tensors() const { return tensors_; }
  // Appends elements, of any device: a whole tensor, or the next elements of a tensor in row-major order.
  // They must have the dtype in tensors(); only their total number of bytes is checked.
  // Errors: FileError; DeviceError for a tensor without data.
  void write(const Tensor& elements);
  // Replaces PATH by the new file. The previous file becomes PATH.previous if it is intact.
  // Errors: FileError; InternalError unless all elements have been written.
  void commit();

 private:
  const std::filesystem::path path_;
  AtomicFile file_;
  NamedTensors tensors_;
  int64_t remaining_bytes_ = 0;  // number of bytes still to be written
};

// Reads the files of load_checkpoint.
class CheckpointReader {
 public:
  // Reads the header and all values except the elements of tensors.
  // Errors: FileError as load_checkpoint, without the fallback to PATH.previous.
  explicit CheckpointReader(const std::filesystem::path& path);
  // Returns all entries; tensors are on the meta device, with dtype and shape but no data.
  const Checkpoint& content() const { return content_; }

  // Reads a tensor into host memory. Does not verify the elements: see check.
  // Errors: FileError if the tensor does not exist or cannot be read.
  Tensor read(const std::string& name);
  Checkpoint read();  // reads all tensors

  // CRC-32s of the parts of the file that a reader has read. Ranks that read different tensors join them.
  struct Checksums {
    uint32_t header = 0;
    std::map<int64_t, uint32_t> tensors;  // by index of the tensor in the file
  };
  const Checksums& checksums() const { return checksums_; }
  // Adds the checksums of another reader of the file, so that check() need not read those tensors.
  // Errors: FileError if the checksums are of another file.
  void join(const Checksums& others);
  // Verifies the checksum of the whole file. Reads the tensors that have no checksum yet and discards them.
  // Errors: FileError if the file is damaged.
  void check();
  int64_t bytes_read() const { return file_.bytes_read(); }

 private:
  Tensor read(int64_t index);
  FileReader file_;
  SafetensorsHeader header_;                // without reserved entries ("__...")
  std::map<std::string, int64_t> indices_;  // name -> index in header_.entries
  Checkpoint content_;
  Checksums checksums_;
};

// Returns load(PATH). If load(PATH) throws FileError, returns load(PATH.previous) with a warning.
// Errors: FileError naming both files and the defect of each; other errors of `load`.
LoadedCheckpoint load_newest(const std::filesystem::path& path,
                             const std::function<LoadedCheckpoint(const std::filesystem::path&)>& load);

// Verifies PATH or PATH.previous as load_checkpoint does, but returns tensors on the meta device.
// Errors: as load_checkpoint.
LoadedCheckpoint inspect_checkpoint(const std::filesystem::path& path);

}  // namespace gradus::io
