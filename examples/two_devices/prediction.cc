// Measures each half with clock readings that are queued between its kernels, fits lines by weighted least
// squares, and simulates the two queues.
#include "gradus/examples/two_devices/prediction.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "gradus/autograd/grad_manager.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::examples {
namespace {

constexpr int kRounds = 4;  // the first one warms up

// Trains one half of the network alone, on its device.
class Half {
 public:
  Half(Device device, const std::vector<Tensor>& parameters, std::function<Tensor()> forward)
      : device_(device), forward_(std::move(forward)), opt_(parameters, {.lr = 0}) {
    gm_.attach(parameters);
  }

  // Queues a training step, with a clock reading before and after each of its parts.
  void queue_step() {
    auto recording = gm_.record();
    record_time();
    const Tensor y = forward_();
    record_time();
    gm_.backward(y, ones_like(y));  // gradients add up, as they do over splits
    record_time();
    opt_.step();
    record_time();
  }

  // Waits for all steps. Returns the median seconds of a part (0 forward, 1 backward, 2 optimizer), without
  // the first step.
  double seconds_of(size_t part) const {
    synchronize(device_);
    std::vector<double> seconds;
    for (size_t at = 4; at < times_->size(); at += 4)
      seconds.push_back(
          std::chrono::duration<double>((*times_)[at + part + 1] - (*times_)[at + part]).count());
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
  }

 private:
  using Times = std::vector<std::chrono::steady_clock::time_point>;
  void record_time() {
    Stream::of(device_).enqueue([times = times_] { times->push_back(std::chrono::steady_clock::now()); });
  }

  const Device device_;
  const std::function<Tensor()> forward_;
  GradManager gm_;
  optim::SGD opt_;
  const std::shared_ptr<Times> times_ = std::make_shared<Times>();  // the queue may outlive this object
};

std::vector<Tensor> parameters_on(Device device, const nn::Module& net) {
  std::vector<Tensor> found;
  for (const Tensor& p : net.parameters())
    if (p.device() == device) found.push_back(p);
  return found;
}

// Measured (images, seconds) of one half, to which lines are fitted.
struct Points {
  std::vector<std::pair<int64_t, double>> forward, backward;
  double step = 0;

  void add(int64_t images, const Half& half) {
    forward.emplace_back(images, half.seconds_of(0));
    backward.emplace_back(images, half.seconds_of(1));
    step = half.seconds_of(2);
  }
  HalfTimes fitted() const { return {fit(forward), fit(backward), step}; }
};

}  // namespace

LinearTime fit(const std::vector<std::pair<int64_t, double>>& points) {
  // Weighted least squares: sums of w, w m, w m^2, w t, w m t with m = images, t = seconds, w = 1 / t^2.
  double s = 0, sm = 0, smm = 0, st = 0, smt = 0;
  for (const auto& [images, t] : points) {
    const double m = static_cast<double>(images), w = 1 / (t * t);
    s += w, sm += w * m, smm += w * m * m, st += w * t, smt += w * m * t;
  }
  if (points.size() == 1) return {.per_image = smt / smm};
  const double per_image = (s * smt - sm * st) / (s * smm - sm * sm);
  return {.fixed = (st - per_image * sm) / s, .per_image = per_image};
}

StepTimes measure(ModelParallelResNet50& net, const Batch& batch) {
  Points first, second;
  for (int64_t n = 1; n <= batch.images.size(0); n *= 4) {
    const Tensor x = to(narrow(batch.images, 0, 0, n), kFirst);
    const Tensor labels = to(narrow(batch.labels, 0, 0, n), kSecond);
    const Tensor hidden = to(net.first_half(x), kSecond);
    std::vector<Tensor> params_and_input = parameters_on(kSecond, net);
    params_and_input.push_back(hidden);
    Half a(kFirst, parameters_on(kFirst, net), [&] { return net.first_half(x); });
    Half b(kSecond, params_and_input, [&] { return nn::mse_loss(net.second_half(hidden), labels); });
    for (int round = 0; round < kRounds; ++round) {
      a.queue_step();
      b.queue_step();
      synchronize(kFirst);  // the next round then reuses the memory of this one
      synchronize(kSecond);
    }
    first.add(n, a);
    second.add(n, b);
    for (const Tensor& p : net.parameters()) p.set_grad({});
  }
  return {first.fitted(), second.fitted()};
}

double predict(const StepTimes& times, int64_t batch, int64_t split_size) {
  const auto& [first, second] = times;
  std::vector<int64_t> splits;
  for (int64_t done = 0; done < batch; done += split_size)
    splits.push_back(std::min(split_size, batch - done));
  double a = 0, b = 0;  // the times at which the first and the second device become idle
  for (const int64_t m : splits) {
    a += first.forward(m);
    b = std::max(a, b) + second.forward(m);
  }
  std::ranges::reverse(splits);
  for (const int64_t m : splits) {
    b += second.backward(m);
    a = std::max(a, b) + first.backward(m);
  }
  return std::max(a + first.step, b + second.step);
}

int64_t best_split(const StepTimes& times, int64_t batch) {
  int64_t best = batch;
  for (int64_t size = 1; size < batch; ++size)
    if (predict(times, batch, size) < predict(times, batch, best)) best = size;
  return best;
}

}  // namespace gradus::examples
