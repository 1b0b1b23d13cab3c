// Computes image metrics as the test of a training (training::TrainingOptions::test), on the averaged
// generator's images, and keeps the best checkpoint by the first metric. Collective.
#include "gradus/examples/gans/train_metrics.h"

namespace gradus::examples {

TrainMetrics::TrainMetrics(const Args& a, const Images& images, Networks& net, const NetworkOptions& networks,
                           const gan::Ema& ema)
    : net_(net), ema_(ema), size_(images.size) {
  if (a.metrics.empty()) return;
  const std::vector<std::string> names = metric_names(a.metrics);
  latents_ = latents(a.metrics_samples, a.seed, networks);
  compared_by_ = compared_by(names);
  const int64_t batch = a.batch ? a.batch : recipe(a.model).batch;
  every_ = a.metrics_every ? a.metrics_every : tenth(a, batch, images.set->size());
  metrics_.emplace(ImageMetricsOptions{
      .names = names,
      .images = {.dir = a.data, .size = images.size, .on_error_skip = a.on_error == "skip"},
      .n = a.metrics_samples,
      .classifier = a.classifier});
}

void TrainMetrics::add_to(training::TrainingOptions& options) {
  if (!metrics_) return;
  options.test = [this] { return test(); };
  options.test_every = every_;
  options.test_line = [this](const training::Sums&) {
    std::string line = "metrics";
    for (const Figure& f : last_) line += "  " + text_of(f);
    return line;
  };
  if (!compared_by_) return;
  options.best_by = compared_by_->first;
  options.lower_is_better = compared_by_->second;
  options.keep_best = true;
}

training::Sums TrainMetrics::test() {
  last_ = (*metrics_)(source_of(net_, latents_, size_, ema_.weights()));
  training::Sums sums = {.seen = latents_.z.size(0)};
  for (const Figure& f : last_) {
    sums.of.emplace_back(f.name, f.value);
    sums.counts.emplace_back(f.name, 1);
  }
  return sums;
}

std::vector<std::pair<std::string, training::SummaryValue>> TrainMetrics::summary(
    const training::Training& training) const {
  std::vector<std::pair<std::string, training::SummaryValue>> values;
  if (!metrics_ || training.history().empty()) return values;
  for (const auto& [name, sum] : training.last().test.of)
    for (const Figure& f : metrics_->floors()) {
      if (f.name != name) continue;
      const std::string at = "metrics/" + name + '/';
      values.emplace_back(at + "value", training.last().test.mean(name));
      values.emplace_back(at + "n", f.n);
      if (!std::isnan(f.floor)) values.emplace_back(at + "floor", f.floor);
      if (!f.features_sha256.empty()) values.emplace_back(at + "features_sha256", f.features_sha256);
    }
  return values;
}

int64_t tenth(const Args& a, int64_t batch, int64_t images_of_an_epoch) {
  const int64_t all = a.images       ? a.images
                      : a.iterations ? a.iterations * batch
                                     : a.epochs * images_of_an_epoch;
  return std::max(all / 10, int64_t{1});
}

}  // namespace gradus::examples
