#include "gradus/tests/distributed/data_parallel/train_faults_history.h"

#include <sstream>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {
namespace {

bool begins_run(const std::string& line) { return line.starts_with("from "); }

// What is wrong with one epoch, whose samples were used so often.
std::vector<std::string> check_epoch(int64_t epoch, const std::map<int64_t, int>& counts,
                                     const Epochs& epochs) {
  const int64_t expected = epoch < epochs.end.epoch ? epochs.per_epoch : epochs.end.samples;
  int64_t repeated = 0, strange = 0;
  for (const auto& [i, count] : counts) {
    repeated += count > 1;
    strange += i < 0 || i >= epochs.samples;
  }
  const int64_t missing = expected - int64_t(counts.size());
  if (!missing && !repeated && !strange) return {};
  return {concat("epoch ", epoch, ": ", missing, " samples missing, ", repeated, " repeated, ", strange,
                 " that do not exist")};
}

}  // namespace

LogLine read_line(const std::string& line, const Epochs& epochs) {
  LogLine read{.begin = begins_run(line)};
  std::istringstream words(line);
  if (read.begin) words.ignore(5);
  int64_t epoch = 0, samples = 0;
  words >> epoch >> samples;
  read.at = epochs.position(epoch, samples);
  for (int64_t index; words >> index;) read.samples.push_back(index);
  return read;
}

History read_history(const std::string& log, const Epochs& epochs) {
  History h;
  std::istringstream lines(log);
  for (std::string text; std::getline(lines, text);) {
    const LogLine line = read_line(text, epochs);
    if (line.begin) {
      h.begins.push_back(line.at);
      h.steps.erase(h.steps.upper_bound(line.at), h.steps.end());
    } else {
      h.steps[line.at] = line.samples;
    }
  }
  return h;
}

std::vector<std::string> check_each_once(const History& h, const Epochs& epochs) {
  std::vector<std::string> wrong;
  std::vector<std::map<int64_t, int>> counts(size_t(epochs.end.epoch) + 1);
  Position before;
  for (const auto& [end, used] : h.steps) {
    if (before >= epochs.end) {
      wrong.emplace_back("there are steps after the last one");
      break;
    }
    if (end != epochs.position(before.epoch, before.samples + int64_t(used.size())))
      wrong.push_back(concat("a step from ", before.epoch, ':', before.samples, " to ", end.epoch, ':',
                             end.samples, " used ", used.size(), " samples"));
    for (const int64_t i : used) ++counts[size_t(before.epoch)][i];
    before = end;
  }
  for (int64_t epoch = 0; epoch <= epochs.end.epoch; ++epoch)
    for (const std::string& w : check_epoch(epoch, counts[size_t(epoch)], epochs)) wrong.push_back(w);
  return wrong;
}

std::optional<Position> step_at(const std::string& log, size_t bytes, size_t before, const Epochs& epochs) {
  std::optional<Position> step;
  bool begun = false;  // a run, since the kill before
  std::istringstream lines(log.substr(before));
  size_t at = before;
  for (std::string text; std::getline(lines, text); at += text.size() + 1) {
    // A step that all ranks had begun gets its line also when a rank has died since.
    if (begins_run(text) && at >= bytes) break;
    const LogLine line = read_line(text, epochs);
    if (line.begin) begun = true, step.reset();
    if (!line.begin && begun) step = line.at;
  }
  return step;
}

}  // namespace gradus::dist
