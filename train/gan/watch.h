// Watch: warns of failures of a GAN's training that its losses do not show.
//
//   gan::Watch watch;
//   training::Training training("ring", run, loader, parts,
//                               {.warnings = [&](const training::Sums& recent, int64_t steps) {
//                                 return watch.update(recent.means(), steps);
//                               }});
//   for (training::Step& s : training) {
//     ...
//     s.log("diversity", gan::diversity(real, fake));
//   }
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::gan {

// Returns sqrt(mean(var(fake)) / mean(var(real))), with variances over the batch and means over pixels; 1 if
// the real images are equal.
// Shapes: real [N,...], fake [N,...] -> f64[].
Tensor diversity(const Tensor& real, const Tensor& fake);

struct WatchOptions {
  // Warn of: d/real > won and d/fake < 1 - won; 0: never, for the scores of critics.
  double won = 0.99;
  double diversity = 0.1;     // a smaller diversity
  double penalty_grows = 10;  // a penalty above 1 and above this multiple of its minimum so far
  int64_t steps = 300;        // that lasts for this number of steps
};

class Watch {
 public:
  // Errors: ValueError for steps < 1.
  explicit Watch(WatchOptions options = {});

  // Takes the means over the last `steps` steps of "d/real" and "d/fake" (1 and 0 for a perfect
  // discriminator), "diversity" and "penalty". Names may be missing. Returns new warnings: each of the three
  // kinds at most once in all.
  std::vector<std::string> update(const std::map<std::string, double>& means, int64_t steps);

 private:
  struct Failure {
    int64_t steps = 0;      // number of steps for which the failure has lasted
    bool reported = false;  // a warning has been returned
  };
  // Adds `steps` steps in which the failure was or was not present. Returns whether to report it now.
  bool update(Failure& failure, bool is_present, int64_t steps) const;

  WatchOptions options_;
  Failure won_, collapsed_, grows_;
  double min_penalty_ = -1;  // -1: none yet
};

}  // namespace gradus::gan
