// Chooses the number of micro-batches of a pipeline, and the stages whose activations are recomputed. Stages are
// measured at up to 4 micro-batch sizes, and times at other sizes are interpolated. A simulation of the schedule
// then predicts the step time (makespan) of each number that fits into memory. The next training steps try the
// best 3 numbers in turn, 2 steps each, and the number with the shortest step is used from then on.
#include "gradus/distributed/pipeline/auto_micro_batches.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "gradus/distributed/pipeline/internal/stage_timing.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr int kMaxMicroBatches = 256;
constexpr int kMaxMeasuredSizes = 4;    // micro-batch sizes at which stages are measured
constexpr int kMaxTrialCandidates = 3;  // candidates (numbers of micro-batches) that are used in trial steps
constexpr int kTrialsPerCandidate = 2;  // trial steps (training steps whose time is measured) per candidate

// Times and memory of all stages for a micro-batch of `rows` rows.
struct Measurement {
  int64_t rows;
  std::vector<StageTimes> stages;
};

// Returns the stages' times and memory for a micro-batch of `rows` rows. Interpolates linearly between the two
// measured sizes next to `rows`, or extrapolates from the nearest two.
std::vector<StageTimes> interpolate_times(int64_t rows, const std::vector<Measurement>& measurements) {
  if (measurements.size() == 1) return measurements[0].stages;
  size_t i = 1;
  while (i + 1 < measurements.size() && measurements[i].rows < rows) ++i;
  const Measurement &a = measurements[i - 1], &b = measurements[i];
  const double fraction = double(rows - a.rows) / double(b.rows - a.rows);
  std::vector<StageTimes> times(a.stages.size());
  for (size_t s = 0; s < times.size(); ++s)
    for (const auto time : kStageTimes) {
      const double x = a.stages[s].*time, y = b.stages[s].*time;
      times[s].*time = std::max(0.0, x + fraction * (y - x));
    }
  return times;
}

// Returns at most kMaxMeasuredSizes evenly spaced elements, including the first and the last.
std::vector<int64_t> subsample(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> selected;
  const size_t n = sizes.size(), count = std::min<size_t>(n, kMaxMeasuredSizes);
  for (size_t i = 0; i < count; ++i) selected.push_back(sizes[count == 1 ? 0 : i * (n - 1) / (count - 1)]);
  return selected;
}

}  // namespace

AutoMicroBatches::AutoMicroBatches(int64_t rows, const Options& options) : rows_(rows) {
  std::vector<int64_t> sizes;                       // rows of a micro-batch, ascending
  const bool is_fixed = options.micro_batches > 0;  // only the recomputation is chosen
  if (is_fixed) sizes.push_back((rows + options.micro_batches - 1) / options.micro_batches);
  for (int64_t size = 1; size <= rows && !is_fixed; ++size)
    if (rows % size == 0 && rows / size <= kMaxMicroBatches) sizes.push_back(size);
  // With several ranks, the undivided batch is not measured but extrapolated: it needs the most memory, and a
  // pipeline with one micro-batch is hardly ever the fastest.
  std::vector<int64_t> measurable = sizes;
  if (options.make_lists(1).ranks() > 1 && measurable.size() > 2) measurable.pop_back();
  std::vector<Measurement> measurements;
  for (int64_t size : subsample(measurable)) measurements.push_back({size, options.measure(size)});
  double least_bytes = INFINITY;  // the smallest peak memory per rank of any candidate
  for (int64_t size : sizes) {
    const int number = is_fixed ? options.micro_batches : int(rows / size);
    RecomputeChoice choice =
        choose_recomputation(options.recompute, options.make_lists(number),
                             interpolate_times(size, measurements), options.rank_bytes, options.memory_limit);
    const double bytes = choice.peak_bytes();
    least_bytes = std::min(least_bytes, bytes);
    if (options.memory_limit > 0 && bytes > options.memory_limit) continue;
    candidates_.push_back({number, std::move(choice)});
  }
  if (candidates_.empty())
    throw ValueError("Pipeline", is_fixed ? "no recomputation" : "no number of micro-batches",
                     " keeps memory_limit = ", int64_t(options.memory_limit),
                     " bytes: a rank needs at least ", int64_t(least_bytes));
  std::ranges::stable_sort(candidates_, {}, [](const Candidate& c) { return c.choice.makespan; });
  num_trial_candidates_ = std::min(int(candidates_.size()), kMaxTrialCandidates);
  num_trial_steps_ = num_trial_candidates_ > 1 ? num_trial_candidates_ * kTrialsPerCandidate : 0;
}

int AutoMicroBatches::micro_batches_for(int64_t rows) const {
  const Candidate& c = candidates_[current()];
  const double number = std::round(double(c.micro_batches) * double(rows) / double(rows_));
  return int(std::clamp<double>(number, 1, double(std::min<int64_t>(rows, kMaxMicroBatches))));
}

void AutoMicroBatches::record_time(int64_t rows, double seconds,
                                   const std::function<double(double)>& max_over_ranks) {
  if (done()) return;
  Candidate& c = candidates_[current()];
  const double scaled = seconds * double(rows_) / double(rows);  // for a batch of rows_ rows
  c.seconds = c.seconds < 0 ? scaled : std::min(c.seconds, scaled);
  if (++trial_steps_done_ < num_trial_steps_) return;
  // After the last trial: the slowest rank determines a candidate's time, and all ranks get the same order.
  for (int i = 0; i < num_trial_candidates_; ++i)
    candidates_[size_t(i)].seconds = max_over_ranks(candidates_[size_t(i)].seconds);
  std::stable_sort(candidates_.begin(), candidates_.begin() + num_trial_candidates_,
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
}

std::string AutoMicroBatches::describe() const {
  std::ostringstream text;
  text << std::setprecision(3);
  const auto line = [&](const Candidate& c) {
    text << c.micro_batches << " micro-batches of " << rows_ / c.micro_batches << " rows: predicted "
         << c.choice.makespan << " s, idle " << c.choice.idle_fraction;
    if (c.seconds >= 0) text << "; ran in " << c.seconds << " s";
    text << '\n';
  };
  text << (done() ? "chosen: " : "so far the best: ");
  for (const Candidate& c : candidates_) line(c);
  return text.str();
}

}  // namespace gradus::dist::internal
