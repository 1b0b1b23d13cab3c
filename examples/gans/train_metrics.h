// TrainMetrics: computes the metrics of --metrics during a training, on images of the averaged generator.
#pragma once

#include "gradus/examples/gans/args.h"
#include "gradus/examples/gans/images.h"
#include "gradus/examples/gans/metrics.h"

namespace gradus::examples {

class TrainMetrics {
 public:
  // With --metrics, computes the features of the reference images. All arguments must outlive the metrics.
  // Collective.
  // Errors: as ImageMetrics.
  TrainMetrics(const Args& a, const Images& images, Networks& net, const NetworkOptions& networks,
               const gan::Ema& ema);

  // Makes the metrics the test of a training, which keeps the best checkpoint by the first metric.
  void add_to(training::TrainingOptions& options);
  // Returns the values of the last test for the summary: "metrics/frechet/value", ...
  std::vector<std::pair<std::string, training::SummaryValue>> summary(
      const training::Training& training) const;

 private:
  training::Sums test();

  Networks& net_;
  const gan::Ema& ema_;
  Latents latents_;
  int64_t size_, every_ = 0;
  std::optional<std::pair<std::string, bool>> compared_by_;
  std::optional<ImageMetrics> metrics_;
  std::vector<Figure> last_;
};

// Returns a tenth of the images of a training, at least 1.
int64_t tenth(const Args& a, int64_t batch, int64_t images_of_an_epoch);

}  // namespace gradus::examples
