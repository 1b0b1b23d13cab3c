// Watch: from means of logged values, counts the steps for which each of three failures has lasted, and warns
// once of each: a discriminator that wins, images without diversity, a growing penalty. Not collective.
#include "gradus/train/gan/watch.h"

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/train/text.h"

namespace gradus::gan {
namespace {

using Means = std::map<std::string, double>;

std::string text(double x) { return training::format_text("%.4f", x); }

// Returns the mean over pixels of the variance over the batch: [N, ...] -> f64[].
Tensor variance(const Tensor& x) {
  return to(mean(var(to(detach(x), DType::kF32), 0, {.correction = 0})), DType::kF64);
}

}  // namespace

Tensor diversity(const Tensor& real, const Tensor& fake) {
  const auto off = no_record();
  const Tensor reals = variance(real);
  return sqrt(where(gt(reals, 0), variance(fake) / reals, 1));
}

Watch::Watch(WatchOptions options) : options_(options) {
  if (options.steps < 1) throw ValueError("watch", "expected steps >= 1, got ", options.steps);
}

bool Watch::update(Failure& failure, bool is_present, int64_t steps) const {
  failure.steps = is_present ? failure.steps + steps : 0;
  if (failure.reported || failure.steps < options_.steps) return false;
  return failure.reported = true;
}

std::vector<std::string> Watch::update(const Means& means, int64_t steps) {
  std::vector<std::string> warnings;
  if (options_.won > 0 && means.contains("d/real") && means.contains("d/fake")) {
    const double real = means.at("d/real"), fake = means.at("d/fake");
    if (update(won_, real > options_.won && fake < 1 - options_.won, steps))
      warnings.push_back(concat("the discriminator has won: for ", won_.steps, " steps d/real has been ",
                                text(real), " and d/fake ", text(fake), ", so the generator learns nothing"));
  }
  if (means.contains("diversity")) {
    const double value = means.at("diversity");
    if (update(collapsed_, value < options_.diversity, steps))
      warnings.push_back(concat("the generator makes one image: for ", collapsed_.steps,
                                " steps its images have differed by ", text(value), " of what real ones do"));
  }
  if (means.contains("penalty")) {
    const double value = means.at("penalty");
    const bool grown = min_penalty_ >= 0 && value > 1 && value > options_.penalty_grows * min_penalty_;
    if (update(grows_, grown, steps))
      warnings.push_back(concat("the penalty grows: for ", grows_.steps, " steps it has been above ",
                                options_.penalty_grows, " times its least, ", text(min_penalty_),
                                ", and is now ", text(value)));
    if (min_penalty_ < 0 || value < min_penalty_) min_penalty_ = value;
  }
  return warnings;
}

}  // namespace gradus::gan
