// The default lines of a training's log and tests, in the formats that training_options.h shows.
#include "gradus/train/training_options.h"

#include "gradus/train/text.h"

namespace gradus::training {

std::string steps_line(const StepReport& r) {
  std::string text = format_text("step %lld  %lld %s", r.step, r.images, r.unit);
  for (const auto& [name, sum] : r.recent.of) text += "  " + mean_text(name, r.recent.mean(name));
  if (r.skipped > 0) text += format_text("  skipped %lld", r.skipped);
  return text + format_text("  %.0f %s/s", r.images_per_second, r.unit);
}

std::string epoch_line(const StepReport& r) {
  std::string text = format_text("Train Epoch: %lld [%lld/%lld (%.0f%%)]\tLoss: %.6f", r.epoch, r.samples,
                                 r.total, 100.0 * double(r.samples) / double(r.total), r.recent.mean("loss"));
  if (r.all.contains("accuracy")) text += format_text("\tAccuracy: %.2f%%", 100 * r.all.mean("accuracy"));
  return text + format_text("\t%.0f %s/s", r.images_per_second, r.unit);
}

std::string test_line(const Sums& all) {
  return format_text("Test set: Average loss: %.4f, Accuracy: %lld/%lld (%.2f%%)", all.mean("loss"),
                     int64_t(all.sum("accuracy")), all.seen, 100 * all.mean("accuracy"));
}

}  // namespace gradus::training
