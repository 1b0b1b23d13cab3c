// The loss and the accuracy of a classifier, over a batch and over a data set.
#pragma once

#include <cstdint>
#include <functional>

#include "gradus/data/dataloader.h"
#include "gradus/nn/layer.h"
#include "gradus/train/tally.h"

namespace gradus::training {

class Training;

// Returns the number of rows in logits [N,classes] whose target, in i64[N], is among the k largest values. Of
// equal values the first ranks higher. Rows are wrong if the target's value is NaN, and for k = 1 also if
// another value is. Counts the first `rows` rows; -1: all.
int64_t count_correct(const Tensor& logits, const Tensor& target, int64_t k = 1, int64_t rows = -1);

struct ScoreOptions {
  bool top5 = false;  // whether the target is among the five largest logits
};
// Returns the sums of a batch: "loss", "accuracy", and with top5 "accuracy_in_5". Repeated samples
// (Batch::padding) do not count. Does not wait for a GPU: its values stay in Sums::on_device.
// Shapes: loss [] (the mean of the batch, times the samples that count) or [N] (of each sample), logits
// [N,classes], batch.target i64[N].
Sums score(const Tensor& loss, const Tensor& logits, const data::Batch& batch, ScoreOptions options = {});

// Runs the net over the loader, in evaluation mode and without recording, and returns "loss" (cross-entropy)
// and "accuracy" over all ranks. Ends after one batch if `training` has --dry-run. Restores the mode of each
// module, also after an error. Collective.
// Errors: Interrupted if `training` must stop, because a rank has got SIGINT or SIGTERM.
Sums evaluate(Training& training, nn::Layer& net, data::DataLoader& loader);
// The same with another forward, which returns the logits on every rank, as that of a pipeline:
//   training::evaluate(training, pipe.module(), loader,
//                      [&](const Tensor& x) { return pipe.forward(x, {.everywhere = true}); });
Sums evaluate(Training& training, nn::Module& model, data::DataLoader& loader,
              const std::function<Tensor(const Tensor&)>& logits_of);

}  // namespace gradus::training
