// TrainMetrics: the numbers of --metrics while a training goes on: of images that the
// averaged generator makes.
#pragma once

#include "gradus/examples/gans/args.h"
#include "gradus/examples/gans/images.h"
#include "gradus/examples/gans/metrics.h"

namespace gradus::examples {

class TrainMetrics {
 public:
  // Looks at the reference images, if --metrics names numbers. All of it must outlive
  // the metrics. Collective.
  // Errors: as ImageMetrics.
  TrainMetrics(const Args& a, const Images& images, Networks& net, const NetworkOptions& networks,
               const gan::Ema& ema);

  // Lets a training make them, and keep the checkpoint that is the best by the first.
  void add_to(training::TrainingOptions& options);
  // Returns those of the last test, for the summary: "metrics/frechet/value", ...
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

// Returns the images of a tenth of the training, at least 1.
int64_t tenth(const Args& a, int64_t batch, int64_t images_of_an_epoch);

}  // namespace gradus::examples
