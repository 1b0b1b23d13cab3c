// Splits of data sets: random_split, as torch.utils.data.random_split, and folds of cross-validation, as
// KFold and StratifiedKFold of scikit-learn. A split is a function of its arguments, so all ranks, and a run
// that resumes, make the same one.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "gradus/data/dataset.h"

namespace gradus::data {

// The size of a part: a number of samples, or a fraction of the data set.
struct PartSize {
  PartSize(std::integral auto samples) : count(static_cast<int64_t>(samples)) {}
  PartSize(std::floating_point auto part) : fraction(part), is_fraction(true) {}
  int64_t count = 0;
  double fraction = 0;
  bool is_fraction = false;
};

// Divides a data set into disjoint parts of random samples: random_split(set, {0.8, 0.2}, seed), or
// random_split(set, {50000, 10000}, seed). Of n samples, a fraction f gives floor(f n); the remaining samples
// go to the first parts, one each. Parts of a borrowed data set borrow it too.
// Errors: ValueError unless all parts are counts >= 0 whose sum is the size of the data set, or all are
// fractions in [0, 1] whose sum is 1.
std::vector<Subset> random_split(DatasetArg dataset, const std::vector<PartSize>& parts, uint64_t seed);

// Indices of samples, ascending.
struct Fold {
  std::vector<int64_t> train, validation;
};

struct KFoldOptions {
  bool shuffle = false;  // false: each validation part is a range of samples
  uint64_t seed = 0;
};

// Divides the samples 0, ..., size - 1 into k parts of nearly equal size. Fold i validates with part i, and
// trains with all others. The first size % k parts have one sample more.
// Errors: ValueError unless 2 <= k <= size.
std::vector<Fold> k_fold(int64_t size, int64_t k, const KFoldOptions& options = {});
// Divides samples with these labels so that each part has nearly the same number of samples of each label.
// Errors: ValueError unless 2 <= k <= labels.size().
std::vector<Fold> stratified_k_fold(const std::vector<int64_t>& labels, int64_t k,
                                    const KFoldOptions& options = {});

}  // namespace gradus::data
