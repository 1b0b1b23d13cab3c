// Watch: says when the training of a GAN has gone wrong in one of the ways that losses alone do not show.
//
//   gan::Watch watch;
//   training::Training training("ring", {...}, run, {.warnings = [&](const training::Sums& recent, int64_t steps) {
//                              return watch.update(recent.means(), steps);
//                            }});
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

// Returns how much the fakes of a batch differ from each other, as a share of how much the reals do. It
// is the root of the ratio of their variances over the batch, each a mean over pixels; 1 where the reals
// do not differ.
// Shapes: real [N,...], fake [N,...] -> [].
Tensor diversity(const Tensor& real, const Tensor& fake);

struct WatchOptions {
  double won = 0.99;  // d/real above this, and d/fake below 1 - this; 0: not watched, as for critics' scores
  double diversity = 0.1;     // below this
  double penalty_grows = 10;  // times its least mean so far, and above 1
  int64_t steps = 300;        // what has gone on for so many steps is a warning
};

class Watch {
 public:
  // Errors: ValueError for steps < 1.
  explicit Watch(WatchOptions options = {});

  // Takes the means of what `steps` steps have logged, under the names "d/real" and "d/fake", which are 1 and
  // 0 in the discriminator's best case, "diversity" and "penalty". Those that are missing are not watched.
  // Returns the new warnings. Each of the three kinds comes once.
  std::vector<std::string> update(const std::map<std::string, double>& means, int64_t steps);

 private:
  // One of the kinds.
  struct Kind {
    int64_t steps = 0;  // that it has gone on
    bool said = false;
  };
  // Returns whether it is to be said.
  bool counts(Kind& kind, bool now, int64_t steps) const;

  WatchOptions options_;
  Kind won_, same_, grows_;
  double least_penalty_ = -1;  // -1: none yet
};

}  // namespace gradus::gan
