#include "gradus/train/log_lines.h"

#include "gradus/train/text.h"

namespace gradus::training {

std::string steps_line(const StepReport& r) {
  std::string text = format("step %lld  %lld %s", static_cast<long long>(r.step),
                            static_cast<long long>(r.images), r.unit.c_str());
  for (const auto& [name, sum] : r.recent.of) text += "  " + mean_text(name, r.recent.mean(name));
  if (r.skipped > 0) text += format("  skipped %lld", static_cast<long long>(r.skipped));
  return text + format("  %.0f %s/s", r.images_per_second, r.unit.c_str());
}

std::string epoch_line(const StepReport& r) {
  std::string text =
      format("Train Epoch: %lld [%lld/%lld (%.0f%%)]\tLoss: %.6f", static_cast<long long>(r.epoch),
             static_cast<long long>(r.samples), static_cast<long long>(r.total),
             100.0 * double(r.samples) / double(r.total), r.recent.mean("loss"));
  if (r.all.contains("accuracy")) text += format("\tAccuracy: %.2f%%", 100 * r.all.mean("accuracy"));
  return text + format("\t%.0f images/s", r.images_per_second);
}

std::string test_line(const Sums& all) {
  return format("Test set: Average loss: %.4f, Accuracy: %lld/%lld (%.2f%%)", all.mean("loss"),
                static_cast<long long>(all.sum("accuracy")), static_cast<long long>(all.seen),
                100 * all.mean("accuracy"));
}

}  // namespace gradus::training
