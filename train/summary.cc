// Prints a training's start and results on rank 0, and writes the results as a JSON object, which lists data
// set, test results, speed, memory, options and history, to the file of --summary. Only describe() is
// collective.
#include "gradus/train/summary.h"

#include <sys/resource.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/blocked_signals.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/train/ranks.h"
#include "gradus/train/text.h"

namespace gradus::training {
namespace {

using Json = nlohmann::ordered_json;

// Adds the mean of each sum as member prefix + name.
void add_means(Json& to, const std::string& prefix, const Sums& sums) {
  for (const auto& [name, sum] : sums.of) to[prefix + name] = sums.mean(name);
}

// Returns one object per test: the means of the test and of the training before it.
Json history_of(const Training& t) {
  Json history = Json::array();
  for (const EpochResult& e : t.history()) {
    Json& entry = history.emplace_back(Json{{"epoch", e.epoch}});
    add_means(entry, "train_", e.train);
    add_means(entry, "test_", e.test);
    entry["seconds"] = e.seconds;
    entry["images"] = e.images;
  }
  return history;
}

// Returns the maximum resident set size of this process in MiB (ru_maxrss is in KiB).
double peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Replaces the file. A full disk or file size limit is an error, not a signal.
// Errors: FileError.
void write_text_file(const std::string& path, const std::string& text) {
  const gradus::internal::BlockedSignals blocked;
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  if (!out) throw FileError("write", "cannot write ", path, errno ? concat(": ", std::strerror(errno)) : "");
}

// Converts a value. A double that is a whole number below 2^53 becomes an integer: 3 instead of 3.0.
Json json_of(const SummaryValue& value) {
  const double* number = std::get_if<double>(&value);
  if (number && *number == std::trunc(*number) && std::abs(*number) < 0x1p53) return int64_t(*number);
  return std::visit([](const auto& v) { return Json(v); }, value);
}

}  // namespace

void describe(const Training& t, const nn::Module& net, const data::DataLoader& test_loader) {
  describe(t, concat(net), test_loader);
}

void describe(const Training& t, const std::string& net, const data::DataLoader& test_loader) {
  const data::Dataset &train = t.loader().dataset(), &test = test_loader.dataset();
  check_same_on_all_ranks("data sets", concat(train.size(), '+', test.size(), " images of ", train.name()));
  print(concat(train.size(), " training and ", test.size(), " test images of ", train.name(), "; ",
               machine_text(t.run()), "; seed ", t.run().seed, '\n', net));
}

void report(const Training& t) {
  std::string text;
  if (!t.history().empty())
    for (const auto& [name, sum] : t.last().test.of)
      text += (text.empty() ? "Test " : ", ") + mean_text(name, t.last().test.mean(name));
  print(concat(text.empty() ? "No test" : text, "; trained at ", format_text("%.0f", t.images_per_second()),
               " images/s"));
  write_summary(t);
}

void write_summary(const Training& t, const std::vector<std::pair<std::string, SummaryValue>>& more) {
  if (t.run().summary.empty() || !is_first_rank()) return;
  Json summary = {{"example", t.program()},
                  {"dataset", t.loader().dataset().name()},
                  {"train_samples", t.loader().dataset().size()}};
  if (!t.history().empty()) summary["test_samples"] = t.last().test.seen;
  summary.update({{"epochs", t.epoch()}, {"steps", t.steps()}});
  if (!t.history().empty()) {
    add_means(summary, "test_", t.last().test);
    add_means(summary, "best_test_", t.best().test);
  }
  summary.update({{"images_per_second", t.images_per_second()},
                  {"peak_rss_mib", peak_rss_mib()},
                  {"device", devices_text(t.run())},
                  {"threads", num_threads()},
                  {"world_size", dist::get_world_size()},
                  {"seconds", t.seconds()},
                  {"seed", t.run().seed},
                  {"history", history_of(t)}});
  for (const auto& [name, value] : t.run().values)
    summary["options"][name] = std::visit([](const auto& v) { return Json(v); }, value);
  for (const auto& [name, value] : more) summary[Json::json_pointer("/" + name)] = json_of(value);
  write_text_file(t.run().summary, summary.dump(2) + "\n");
}

}  // namespace gradus::training
