// Loss and accuracy of a classifier, as sums over samples: score() for one batch, evaluate() over a data loader
// and all ranks. Sums of tensors on a GPU stay on the GPU (Sums::on_device), so that a batch does not wait for the
// GPU.
#include "gradus/train/evaluate.h"

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/losses/cross_entropy.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/train/metrics/classification.h"
#include "gradus/train/training.h"

namespace gradus::training {
namespace {

// Returns i64[]: the number of the first `rows` rows of logits [N,classes] whose target class, in i64[N], has one
// of the k largest logits. The result is on the device of the logits.
Tensor correct(const Tensor& logits, const Tensor& target, int64_t k, int64_t rows) {
  const Tensor x = raw::to(raw::narrow(logits, 0, 0, rows), DType::kF32);
  const Tensor y = raw::to(raw::narrow(target, 0, 0, rows), x.device());
  return raw::sum(metrics::internal::in_top_k(x, y, k));
}

// Returns the sum of losses [N] as f64[], added in f64, on the device of the losses.
Tensor sum_of(const Tensor& losses) {
  const Tensor values = raw::to(losses, DType::kF32);
  if (internal::is_on_gpu(values)) return raw::sum(raw::to(values, DType::kF64));
  double sum = 0;
  for (const float value : values.to_vector<float>()) sum += double(value);
  return scalar(sum, {.dtype = DType::kF64});
}

}  // namespace

int64_t count_correct(const Tensor& logits, const Tensor& target, int64_t k, int64_t rows) {
  return correct(logits, target, k, rows < 0 ? logits.size(0) : rows).item<int64_t>();
}

// The last b.padding rows of a batch are repeated samples or replacements of unreadable samples, and do not count.
// A scalar loss is the batch's mean and counts `rows` times. to_f64_scalar() returns a copy in f64 on the same GPU.
Sums score(const Tensor& loss, const Tensor& logits, const data::Batch& b, ScoreOptions options) {
  const int64_t rows = b.size() - b.padding;
  Sums sums{.seen = rows};
  const auto add = [&](const char* name, const Tensor& number, double times) {
    if (internal::is_on_gpu(number))
      sums.on_device.push_back({name, internal::to_f64_scalar(number), times});
    else
      sums.of.emplace_back(name, number.item<double>() * times);
  };
  if (loss.dim() == 0)
    add("loss", loss, double(rows));
  else
    add("loss", sum_of(raw::narrow(loss, 0, 0, rows)), 1);
  add("accuracy", correct(logits, b.target, 1, rows), 1);
  if (options.top5) add("accuracy_in_5", correct(logits, b.target, 5, rows), 1);
  return sums;
}

Sums evaluate(Training& training, nn::Layer& net, data::DataLoader& loader) {
  return evaluate(training, net, loader, [&](const Tensor& x) { return net(x); });
}

Sums evaluate(Training& training, nn::Module& model, data::DataLoader& loader,
              const std::function<Tensor(const Tensor&)>& logits_of) {
  const nn::ModeScope mode(model, false);
  const auto off = no_record();
  Tally tally;
  for (const data::Batch& b : loader) {
    const Tensor logits = logits_of(b.input);
    tally.add(score(cross_entropy(logits, b.target, {.reduction = Reduction::kNone}), logits, b));
    if (training.end_test_step()) break;  // --dry-run: one batch; throws Interrupted if the job must stop
  }
  return tally.reduce();
}

}  // namespace gradus::training
