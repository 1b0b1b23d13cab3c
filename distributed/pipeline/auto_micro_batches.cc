#include "gradus/distributed/pipeline/auto_micro_batches.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr int kMostMicroBatches = 256;
constexpr int kSizes = 4;   // at which stages are measured
constexpr int kTried = 3;   // candidates that are run
constexpr int kRounds = 2;  // that each of them is run

struct Measured {
  int64_t rows;  // of a micro-batch
  std::vector<StageTimes> stages;
};

// Returns the value at `rows` of the line through two measured sizes.
std::vector<StageTimes> times_at(int64_t rows, const std::vector<Measured>& measured) {
  if (measured.size() == 1) return measured[0].stages;
  size_t i = 1;
  while (i + 1 < measured.size() && measured[i].rows < rows) ++i;
  const Measured &a = measured[i - 1], &b = measured[i];
  const double share = double(rows - a.rows) / double(b.rows - a.rows);
  const auto between = [&](double x, double y) { return std::max(0.0, x + share * (y - x)); };
  std::vector<StageTimes> times;
  for (size_t s = 0; s < a.stages.size(); ++s) {
    const StageTimes &x = a.stages[s], &y = b.stages[s];
    times.push_back({.forward = between(x.forward, y.forward),
                     .input_gradient = between(x.input_gradient, y.input_gradient),
                     .weight_gradient = between(x.weight_gradient, y.weight_gradient),
                     .bytes = between(x.bytes, y.bytes),
                     .input_bytes = between(x.input_bytes, y.input_bytes)});
  }
  return times;
}

// Returns a few of the sizes, from the smallest to the largest.
std::vector<int64_t> some_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> some;
  const size_t n = sizes.size(), count = std::min<size_t>(n, kSizes);
  for (size_t i = 0; i < count; ++i) some.push_back(sizes[count == 1 ? 0 : i * (n - 1) / (count - 1)]);
  return some;
}

}  // namespace

AutoMicroBatches::AutoMicroBatches(int64_t rows, const Setting& setting) : rows_(rows) {
  std::vector<int64_t> sizes;  // rows of a micro-batch, ascending
  for (int64_t size = 1; size <= rows; ++size)
    if (rows % size == 0 && rows / size <= kMostMicroBatches) sizes.push_back(size);
  // A batch in one piece is predicted from smaller pieces: it needs the most memory, and several ranks hardly
  // ever run it.
  std::vector<int64_t> measurable = sizes;
  if (setting.lists(1).ranks() > 1 && measurable.size() > 2) measurable.pop_back();
  std::vector<Measured> measured;
  for (int64_t size : some_of(measurable)) measured.push_back({size, setting.measure(size)});

  double least_bytes = INFINITY;
  for (int64_t size : sizes) {
    const int number = int(rows / size);
    RecomputeChoice choice =
        choose_recomputation(setting.recompute, setting.lists(number), times_at(size, measured),
                             setting.rank_bytes, setting.memory_limit);
    const double bytes = choice.most_bytes();
    least_bytes = std::min(least_bytes, bytes);
    if (setting.memory_limit > 0 && bytes > setting.memory_limit) continue;
    candidates_.push_back({number, std::move(choice)});
  }
  if (candidates_.empty())
    throw ValueError("Pipeline",
                     "no number of micro-batches keeps memory_limit = ", int64_t(setting.memory_limit),
                     " bytes: a rank needs at least ", int64_t(least_bytes));
  std::ranges::stable_sort(candidates_, {}, [](const Candidate& c) { return c.choice.makespan; });
  best_few_ = std::min(int(candidates_.size()), kTried);
  trials_ = best_few_ > 1 ? best_few_ * kRounds : 0;
}

int AutoMicroBatches::number_for(int64_t rows) const {
  const Candidate& c = candidates_[tried()];
  const double number = std::round(double(c.number) * double(rows) / double(rows_));
  return int(std::clamp<double>(number, 1, double(std::min<int64_t>(rows, kMostMicroBatches))));
}

void AutoMicroBatches::ran(int64_t rows, double seconds, const std::function<double(double)>& largest) {
  if (done()) return;
  Candidate& c = candidates_[tried()];
  const double scaled = seconds * double(rows_) / double(rows);
  c.ran = c.ran < 0 ? scaled : std::min(c.ran, scaled);
  if (++tried_ < trials_) return;
  for (int i = 0; i < best_few_; ++i) candidates_[size_t(i)].ran = largest(candidates_[size_t(i)].ran);
  std::stable_sort(candidates_.begin(), candidates_.begin() + best_few_,
                   [](const Candidate& a, const Candidate& b) { return a.ran < b.ran; });
}

std::string AutoMicroBatches::describe() const {
  std::ostringstream text;
  text << std::setprecision(3);
  const auto line = [&](const Candidate& c) {
    text << c.number << " micro-batches of " << rows_ / c.number << " rows: predicted " << c.choice.makespan
         << " s, idle " << c.choice.idle_fraction;
    if (c.ran >= 0) text << "; ran in " << c.ran << " s";
    text << '\n';
  };
  text << (done() ? "chosen: " : "so far the best: ");
  for (const Candidate& c : candidates_) line(c);
  return text.str();
}

}  // namespace gradus::dist::internal
