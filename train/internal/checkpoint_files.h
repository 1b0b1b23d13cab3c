// CheckpointFiles: the paths of a training's checkpoints, the choice of the one to resume from, and the check
// that it fits the program, data set and settings. Functions that write sums and test results to a checkpoint.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gradus/io/checkpoint.h"
#include "gradus/train/command_line.h"
#include "gradus/train/training.h"

namespace gradus::training::internal {

class CheckpointFiles {
 public:
  // `fixed` are settings that a checkpoint must share with the training that resumes from it.
  CheckpointFiles(std::string program, const RunOptions& run, std::string dataset,
                  std::vector<std::pair<std::string, std::string>> fixed);

  // Returns DIR/PROGRAM.ckpt, and DIR/PROGRAM.best.ckpt for kind ".best"; "" without --checkpoint-dir.
  std::string path(const std::string& kind = "") const;
  // Keeps path() also as DIR/PROGRAM.step-STEPS.ckpt, and removes all but the last `count` of these. Rank 0 changes
  // the files. Collective.
  // Errors: FileError, on all ranks.
  void keep_last(int64_t steps, int64_t count) const;
  // Returns the checkpoint to resume from, "" for none: after a restart by the launcher the latest one of
  // this job; else that of --resume; else, if use_latest, the latest one in --checkpoint-dir. Rank 0 searches
  // the files, and sends the path to all ranks. Collective.
  std::string find(bool use_latest) const;
  // Errors: FileError for another program's checkpoint; ValueError for other data or other fixed settings.
  void check(const io::LoadedCheckpoint& loaded) const;
  // Returns a checkpoint with the values that check() compares, and the id of the job.
  io::Checkpoint identity() const;

 private:
  std::string program_, dir_, resume_, dataset_;
  std::vector<std::pair<std::string, std::string>> fixed_;
};

// Write and read sums, whose entries are named NAME.sum.KEY, and the results of all tests.
// Errors of reading: FileError for a missing entry.
void put_sums(io::Checkpoint& c, const std::string& name, const Sums& s);
Sums get_sums(const io::Checkpoint& c, const std::string& name);
void put_history(io::Checkpoint& c, const std::vector<EpochResult>& history);
std::vector<EpochResult> get_history(const io::Checkpoint& c);

}  // namespace gradus::training::internal
