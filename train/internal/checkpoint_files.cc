#include "gradus/train/internal/checkpoint_files.h"

#include <filesystem>

#include "gradus/distributed/group/attempt.h"
#include "gradus/io/checkpoint_file.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/train/ranks.h"

namespace gradus::training::internal {
namespace fs = std::filesystem;
namespace {

Environment environment() { return read_environment().value_or(Environment{}); }

bool exists(const std::string& file) {
  return !file.empty() && (fs::exists(file) || fs::exists(file + ".previous"));
}

}  // namespace

CheckpointFiles::CheckpointFiles(std::string program, const RunOptions& run, std::string dataset,
                                 std::vector<std::pair<std::string, std::string>> fixed)
    : program_(std::move(program)),
      dir_(run.checkpoint_dir),
      resume_(run.resume),
      dataset_(std::move(dataset)),
      fixed_(std::move(fixed)) {}

std::string CheckpointFiles::path(const std::string& kind) const {
  return dir_.empty() ? "" : (fs::path(dir_) / (program_ + kind + ".ckpt")).string();
}

std::string CheckpointFiles::find(bool latest) const {
  const auto find = [&]() -> std::string {
    if (!is_first_rank()) return "";
    const Environment job = environment();
    const std::string last = path();
    const bool has_last = exists(last);
    // An earlier training may have left a checkpoint, before this job's first one.
    if (job.restart_count > 0 && has_last &&
        io::inspect_checkpoint(last).checkpoint.get<std::string>("job") == job.job_id)
      return last;
    if (!resume_.empty()) return resume_;
    return latest && has_last ? last : "";
  };
  return dist::attempt("resume", find)[0];
}

void CheckpointFiles::check(const io::LoadedCheckpoint& loaded) const {
  const io::Checkpoint& c = loaded.checkpoint;
  if (const std::string program = c.get<std::string>("program"); program != program_)
    throw FileError("resume", loaded.path, ": expected a checkpoint of ", program_, ", got one of ", program);
  if (const std::string dataset = c.get<std::string>("dataset"); dataset != dataset_)
    throw ValueError("resume", loaded.path, " was trained on ", dataset, ", not on ", dataset_);
  for (const auto& [name, value] : fixed_)
    if (const std::string saved = c.get<std::string>("fixed." + name); saved != value)
      throw ValueError("resume", loaded.path, " was trained with ", name, ' ', saved, ", not with ", value);
}

io::Checkpoint CheckpointFiles::identity() const {
  io::Checkpoint c;
  c.put("program", program_);
  c.put("dataset", dataset_);
  c.put("job", environment().job_id);
  for (const auto& [name, value] : fixed_) c.put("fixed." + name, value);
  return c;
}

}  // namespace gradus::training::internal
