// Random splits and folds. The order of a shuffle is that of epoch 0 of a RandomSampler.
#include "gradus/data/split.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "gradus/data/sampler.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {

constexpr double kSumTolerance = 1e-9;  // of fractions

// Returns the numbers of samples of parts that are fractions of `size` samples.
std::vector<int64_t> counts_of_fractions(int64_t size, const std::vector<PartSize>& parts) {
  std::vector<int64_t> counts;
  double sum = 0;
  int64_t rest = size;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double fraction = parts[i].fraction;
    if (!parts[i].is_fraction || !(fraction >= 0 && fraction <= 1))
      throw ValueError("random_split", "expected only counts or only fractions in [0, 1], got part ", i,
                       " = ", parts[i].is_fraction ? fraction : double(parts[i].count));
    sum += fraction;
    counts.push_back(std::min(rest, static_cast<int64_t>(std::floor(double(size) * fraction))));
    rest -= counts.back();
  }
  if (!(std::abs(sum - 1) <= kSumTolerance))
    throw ValueError("random_split", "expected fractions of sum 1, got sum ", sum);
  for (size_t i = 0; rest > 0; ++i, --rest) ++counts[i % counts.size()];
  return counts;
}

std::vector<int64_t> checked_counts(int64_t size, const std::vector<PartSize>& parts) {
  std::vector<int64_t> counts;
  int64_t rest = size;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t count = parts[i].count;
    if (parts[i].is_fraction || count < 0 || count > rest)
      throw ValueError("random_split", "expected counts >= 0 of sum ", size,
                       " (the samples of the data set), got ",
                       parts[i].is_fraction ? parts[i].fraction : double(count), " for part ", i, " with ",
                       rest, " samples left");
    counts.push_back(count);
    rest -= count;
  }
  if (rest != 0)
    throw ValueError("random_split", "expected counts of sum ", size,
                     " (the samples of the data set), got sum ", size - rest);
  return counts;
}

}  // namespace

std::vector<Subset> random_split(DatasetArg dataset, const std::vector<PartSize>& parts, uint64_t seed) {
  const int64_t size = dataset->size();
  const bool by_fraction = !parts.empty() && parts[0].is_fraction;
  const std::vector<int64_t> counts =
      by_fraction ? counts_of_fractions(size, parts) : checked_counts(size, parts);
  const std::vector<int64_t> order = RandomSampler(size, seed).order(0);
  std::vector<Subset> subsets;
  auto first = order.begin();
  for (int64_t count : counts) {
    subsets.emplace_back(dataset, std::vector<int64_t>(first, first + count));
    first += count;
  }
  return subsets;
}

// With the samples sorted by label, the j-th sample counts for part j % k: part i has as many samples of a
// label as the label has such j with j % k == i. Each label's samples are dealt to the parts in blocks.
std::vector<Fold> stratified_k_fold(const std::vector<int64_t>& labels, int64_t k,
                                    const KFoldOptions& options) {
  const int64_t size = static_cast<int64_t>(labels.size());
  if (k < 2 || k > size)
    throw ValueError("k_fold", "expected k in [2, number of samples], got k = ", k, " and ", size,
                     " samples");
  std::map<int64_t, size_t> label_numbers;  // in the order in which labels first occur
  for (int64_t label : labels) label_numbers.try_emplace(label, label_numbers.size());
  std::vector<std::vector<int64_t>> samples(label_numbers.size());
  const std::vector<int64_t> order =
      options.shuffle ? RandomSampler(size, options.seed).order(0) : SequentialSampler(size).order(0);
  for (int64_t sample : order) samples[label_numbers.at(labels[size_t(sample)])].push_back(sample);

  std::vector<int64_t> part_of(labels.size());
  int64_t begin = 0;  // of the label's samples among the sorted ones
  for (const std::vector<int64_t>& of_label : samples) {
    const int64_t end = begin + static_cast<int64_t>(of_label.size());
    const auto count_below = [&](int64_t n, int64_t part) { return (n + k - 1 - part) / k; };
    auto next = of_label.begin();
    for (int64_t part = 0; part < k; ++part)
      for (int64_t n = count_below(end, part) - count_below(begin, part); n > 0; --n)
        part_of[size_t(*next++)] = part;
    begin = end;
  }
  std::vector<Fold> folds(static_cast<size_t>(k));
  for (int64_t part = 0; part < k; ++part)
    for (int64_t sample = 0; sample < size; ++sample) {
      Fold& fold = folds[size_t(part)];
      (part_of[size_t(sample)] == part ? fold.validation : fold.train).push_back(sample);
    }
  return folds;
}

std::vector<Fold> k_fold(int64_t size, int64_t k, const KFoldOptions& options) {
  if (k < 2 || k > size)
    throw ValueError("k_fold", "expected k in [2, number of samples], got k = ", k, " and ", size,
                     " samples");
  return stratified_k_fold(std::vector<int64_t>(size_t(size), 0), k, options);
}

}  // namespace gradus::data
