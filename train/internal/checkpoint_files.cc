// CheckpointFiles: the paths of a training program's checkpoints, the choice of the one to resume from, and
// the check that it belongs to the same program, data and settings. The entries of statistics in a checkpoint
// are flat names such as "history.3.train.sum.loss".
#include "gradus/train/internal/checkpoint_files.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "gradus/distributed/group/attempt.h"
#include "gradus/io/checkpoint_file.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/train/ranks.h"

namespace gradus::training::internal {
namespace fs = std::filesystem;
namespace {

Environment environment() { return read_environment().value_or(Environment{}); }

// Returns whether the file or the version before it, which a crash may leave alone, exists. False for "".
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

void CheckpointFiles::keep_last(int64_t steps, int64_t count) const {
  const auto keep = [&]() -> std::string {
    if (!is_first_rank()) return "";
    const std::string kind = ".step-", kept = path(concat(kind, steps));
    // By time: a training that has resumed from an earlier checkpoint makes files with fewer steps.
    std::vector<std::pair<fs::file_time_type, fs::path>> files;
    try {
      fs::remove(kept);
      std::error_code no_links;
      fs::create_hard_link(path(), kept, no_links);
      if (no_links) fs::copy_file(path(), kept);
      for (const fs::directory_entry& entry : fs::directory_iterator(dir_)) {
        const std::string name = entry.path().filename().string(), prefix = program_ + kind;
        if (name.starts_with(prefix) && name.ends_with(".ckpt") && entry.path() != kept)
          files.emplace_back(entry.last_write_time(), entry.path());
      }
      std::sort(files.rbegin(), files.rend());
      for (size_t i = size_t(count) - 1; i < files.size(); ++i) fs::remove(files[i].second);
    } catch (const fs::filesystem_error& e) {
      throw FileError("keep_last", e.what());
    }
    return "";
  };
  dist::attempt("keep_last", keep);
}

std::string CheckpointFiles::find(bool use_latest) const {
  const auto find = [&]() -> std::string {
    if (!is_first_rank()) return "";
    const Environment job = environment();
    const std::string last = path();
    const bool has_last = exists(last);
    // The checkpoint may be that of an earlier training. inspect_checkpoint falls back to PATH.previous.
    if (job.restart_count > 0 && has_last &&
        io::inspect_checkpoint(last).checkpoint.get<std::string>("job") == job.job_id)
      return last;
    if (!resume_.empty()) return resume_;
    return use_latest && has_last ? last : "";
  };
  return dist::attempt("resume", find)[0];  // on all ranks the result of rank 0, or its error
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

// The sums must be on the host (Sums::read): on_device is not written.
void put_sums(io::Checkpoint& c, const std::string& name, const Sums& s) {
  std::string names;
  for (const auto& [key, sum] : s.of) {
    names += key + '\n';
    c.put(concat(name, ".sum.", key), sum);
  }
  for (const auto& [key, count] : s.counts) c.put(concat(name, ".count.", key), count);
  c.put(name + ".seen", s.seen);
  c.put(name + ".names", names);  // one per line, in the order of s.of
}

Sums get_sums(const io::Checkpoint& c, const std::string& name) {
  Sums s{.seen = c.get<int64_t>(name + ".seen")};
  std::istringstream names(c.get<std::string>(name + ".names"));
  for (std::string key; std::getline(names, key);) {
    s.of.emplace_back(key, c.get<double>(concat(name, ".sum.", key)));
    if (const std::string count = concat(name, ".count.", key); c.contains(count))
      s.counts.emplace_back(key, c.get<int64_t>(count));
  }
  return s;
}

void put_history(io::Checkpoint& c, const std::vector<EpochResult>& history) {
  c.put("history.size", int64_t(history.size()));
  for (size_t i = 0; i < history.size(); ++i) {
    const std::string name = concat("history.", i);
    c.put(name + ".epoch", history[i].epoch);
    put_sums(c, name + ".train", history[i].train);
    put_sums(c, name + ".test", history[i].test);
    c.put(name + ".seconds", history[i].seconds);
    c.put(name + ".images", history[i].images);
  }
}

std::vector<EpochResult> get_history(const io::Checkpoint& c) {
  std::vector<EpochResult> history;
  const int64_t size = c.get<int64_t>("history.size");
  for (int64_t i = 0; i < size; ++i) {  // the first missing entry throws: a file may claim any size
    const std::string name = concat("history.", i);
    history.push_back({.epoch = c.get<int64_t>(name + ".epoch"),
                       .train = get_sums(c, name + ".train"),
                       .test = get_sums(c, name + ".test"),
                       .seconds = c.get<double>(name + ".seconds"),
                       // absent in older files
                       .images = c.contains(name + ".images") ? c.get<int64_t>(name + ".images") : 0});
  }
  return history;
}

}  // namespace gradus::training::internal
