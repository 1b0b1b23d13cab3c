// Which samples a training has used, as its sample log tells (gradus/train/internal/step_log.h).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradus::dist {

// A place in the training; at the end of an epoch it is the beginning of the next one.
struct Position {
  int64_t epoch = 0, samples = 0;
  auto operator<=>(const Position&) const = default;
};

// What a training goes through.
struct Epochs {
  int64_t samples = 0;    // of the data set
  int64_t per_epoch = 0;  // that an epoch uses: fewer, where a last batch that is not full is dropped
  Position end = {};      // of the training

  Position position(int64_t epoch, int64_t used) const {
    return used >= per_epoch ? Position{epoch + 1, 0} : Position{epoch, used};
  }
  // Returns where a training is that has used so many samples, and the reverse.
  Position after(int64_t used) const { return {used / per_epoch, used % per_epoch}; }
  int64_t used(const Position& p) const { return p.epoch * per_epoch + p.samples; }
};

struct History {
  std::vector<Position> begins;                    // of every run
  std::map<Position, std::vector<int64_t>> steps;  // by their ends; those that were lost are gone
};

// A line of the log.
struct LogLine {
  bool begin = false;  // of a run, there; else a step ends there
  Position at = {};
  std::vector<int64_t> samples = {};
};
LogLine read_line(const std::string& line, const Epochs& epochs);

History read_history(const std::string& log, const Epochs& epochs);

// Returns what is wrong with a history that should have every sample once in every epoch.
std::vector<std::string> check_each_once(const History& h, const Epochs& epochs);

// Returns the end of the step that the training had begun when its log had so many bytes. None: it was
// starting. `before` is the length that the log had at the kill before, 0 for the first one.
std::optional<Position> step_at(const std::string& log, size_t bytes, size_t before, const Epochs& epochs);

}  // namespace gradus::dist
