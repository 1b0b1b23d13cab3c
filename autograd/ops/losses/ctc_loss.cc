// CTC loss by the forward-backward algorithm in log space (Graves et al. 2006), as one recursion over the frames for
// all samples together. The states of a sample are its target with blanks between and around the labels.
//   alpha[t,s] = log_prob[t,label_s] + log(sum of exp alpha[t-1] over s, s - 1 and, unless label_s is a blank or equals
//   label_(s-2), s - 2)
// beta is the same recursion from the last frame, over s, s + 1 and s + 2.
#include "gradus/autograd/ops/losses/ctc_loss.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/losses/loss_reduction.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/math.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

constexpr const char* kOp = "ctc_loss";
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kPad = 2;  // states of probability 0 at both ends of alpha and beta

// The states of all samples, L = 2 * (longest target) + 1 each. Device tensors.
struct States {
  Tensor labels;  // i64[N,L]: the class; the blank after a sample's own states
  Tensor skips;   // [N,L]: 0 if state s - 2 may precede state s, else -infinity
  Tensor end;     // [N,L]: 0 for the last state, a blank, else -infinity
  // i64[2 N]: positions in alpha [T + 1,N,L + 2 kPad] of each sample's state before the last, and of the last, after
  // its last frame.
  Tensor final;
  Tensor frames;  // bool[T,N,1]: whether the sample has the frame
};

std::vector<int64_t> checked_lengths(const char* name, const Tensor& lengths, int64_t n, int64_t max) {
  check_integers(kOp, "lengths", name, lengths);
  if (lengths.numel() != n || lengths.dim() > 1)
    throw ShapeError(kOp, "expected ", name, " [", n, "], got ", describe(lengths));
  std::vector<int64_t> values = lengths.to_vector<int64_t>();
  for (const int64_t v : values)
    if (v < 0 || v > max) throw ValueError(kOp, "expected ", name, " in [0, ", max, "], got ", v);
  return values;
}

// Returns the labels of each sample.
std::vector<std::vector<int64_t>> split_targets(const Tensor& targets, const std::vector<int64_t>& lengths,
                                                int64_t classes) {
  const std::vector<int64_t> all = targets.to_vector<int64_t>();
  std::vector<std::vector<int64_t>> labels;
  int64_t at = 0;
  for (size_t n = 0; n < lengths.size(); ++n) {
    if (targets.dim() == 2) at = int64_t(n) * targets.size(1);
    labels.emplace_back(all.begin() + at, all.begin() + at + lengths[n]);
    at += lengths[n];
    for (const int64_t label : labels.back())
      if (label < 0 || label >= classes)
        throw IndexError(kOp, "target ", label, " is out of range for ", classes, " classes");
  }
  return labels;
}

States make_states(const std::vector<std::vector<int64_t>>& targets,
                   const std::vector<int64_t>& input_lengths, const Tensor& log_probs, int64_t blank) {
  const int64_t T = log_probs.size(0), N = log_probs.size(1);
  size_t longest = 0;
  for (const auto& t : targets) longest = std::max(longest, t.size());
  const int64_t L = 2 * int64_t(longest) + 1, width = L + 2 * kPad;
  checked_numel({T + 1, N, width}, kOp);
  std::vector<int64_t> labels(size_t(N * L), blank), final(size_t(2 * N));
  std::vector<double> skips(labels.size(), -kInfinity), end(labels.size(), -kInfinity);
  for (int64_t n = 0; n < N; ++n) {
    const std::vector<int64_t>& t = targets[size_t(n)];
    for (size_t i = 0; i < t.size(); ++i) {
      const size_t s = size_t(n * L) + 2 * i + 1;
      labels[s] = t[i];
      if (i > 0 && t[i] != t[i - 1]) skips[s] = 0;
    }
    const int64_t last = 2 * int64_t(t.size());
    end[size_t(n * L + last)] = 0;
    final[size_t(N + n)] = (input_lengths[size_t(n)] * N + n) * width + kPad + last;
    final[size_t(n)] = final[size_t(N + n)] - 1;  // of an empty target: in the padding
  }
  const Device device = log_probs.device();
  const auto states = [&](const auto& values) { return raw::to(tensor(values, {N, L}), device); };
  const auto numbers = [&](const auto& values) { return raw::to(states(values), log_probs.dtype()); };
  const TensorOptions integers{DType::kI64, device};
  const Tensor ends = raw::to(tensor(input_lengths, {N, 1}), device);
  return {states(labels), numbers(skips), numbers(end), raw::to(tensor(final, {2 * N}), device),
          raw::lt(raw::reshape(arange(T, integers), {T, 1, 1}), ends)};
}

// Returns log_probs of the states' classes, [T,N,L].
Tensor of_states(const Tensor& log_probs, const Tensor& labels) {
  return raw::gather(log_probs, 2, raw::expand(labels, {log_probs.size(0), labels.size(0), labels.size(1)}));
}

// Returns [T + 1,N,L + 2 kPad]: alpha after t frames, or, if backwards, beta of the frames from t on. `emitted` is
// log_probs of the states.
Tensor recursion(const Tensor& emitted, const States& states, bool backwards) {
  const int64_t T = emitted.size(0), N = emitted.size(1), L = emitted.size(2);
  const Tensor all =
      full({T + 1, N, L + 2 * kPad}, -kInfinity, {.dtype = emitted.dtype(), .device = emitted.device()});
  const auto at = [&](int64_t t, int64_t shift) {
    return raw::narrow(raw::select(all, 0, t), 1, kPad + shift, L);
  };
  // A sequence starts in the state 0, or ends in the last one, before its first frame.
  if (backwards)
    raw::copy_(at(T, 0), states.end);
  else
    raw::fill_(raw::narrow(at(0, 0), 1, 0, 1), 0);
  Tensor skips = states.skips;
  if (backwards) {  // skips[s + 2]
    skips = raw::to(full({N, L}, -kInfinity, {.device = emitted.device()}), emitted.dtype());
    if (L > 2) raw::copy_(raw::narrow(skips, 1, 0, L - 2), raw::narrow(states.skips, 1, 2, L - 2));
  }
  const int64_t next = backwards ? 1 : -1;
  for (int64_t i = 0; i < T; ++i) {
    const int64_t frame = backwards ? T - 1 - i : i, from = backwards ? frame + 1 : frame;
    const Tensor near = raw::binary<functors::LogAddExp>(at(from, 0), at(from, next));
    const Tensor skip = raw::add(at(from, 2 * next), skips);
    Tensor y = raw::add(raw::binary<functors::LogAddExp>(near, skip), raw::select(emitted, 0, frame));
    if (backwards) y = raw::where(raw::select(states.frames, 0, frame), y, states.end);
    raw::copy_(at(from - next, 0), y);
  }
  return all;
}

// Returns the gradient [T,N,C] with respect to log_probs for dy [N].
Tensor gradient(const Tensor& dy, const Tensor& log_probs, const Tensor& alpha, const Tensor& losses,
                const States& states, bool zero_infinity) {
  const int64_t T = log_probs.size(0), N = log_probs.size(1), L = states.labels.size(1);
  const Tensor emitted = of_states(log_probs, states.labels), beta = recursion(emitted, states, true);
  const auto own = [&](const Tensor& x, int64_t first) {
    return raw::narrow(raw::narrow(x, 0, first, T), 2, kPad, L);
  };
  // alpha and beta both include the frame.
  const Tensor both = raw::sub(raw::add(own(alpha, 1), own(beta, 0)), emitted);
  const Tensor posterior = raw::unary<functors::Exp>(raw::add(both, raw::reshape(losses, {1, N, 1})));
  const Tensor of_classes =
      raw::scatter_add(zeros_like(log_probs), 2, raw::expand(states.labels, {T, N, L}), posterior);
  // NaN for an infinite loss, in all classes.
  const Tensor factor = raw::reshape(raw::add(dy, raw::sub(losses, losses)), {1, N, 1});
  const Tensor dx = raw::mul(raw::sub(raw::unary<functors::Exp>(log_probs), of_classes), factor);
  Tensor counts = states.frames;
  if (zero_infinity)
    counts = raw::logical_and(counts, raw::reshape(raw::unary<functors::IsFinite>(losses), {1, N, 1}));
  return raw::where(counts, dx, zeros({}, {.dtype = dx.dtype(), .device = dx.device()}));
}

Tensor no_second_order(const Tensor&) { throw StateError(kOp, "has no second derivative"); }

// Returns the losses [N] of log_probs [T,N,C].
Tensor losses_of(const Tensor& log_probs, const States& states, bool zero_infinity) {
  const int64_t N = log_probs.size(1);
  const Tensor alpha = recursion(of_states(log_probs, states.labels), states, false);
  const Tensor final = raw::index_select(raw::reshape(alpha, {alpha.numel()}), 0, states.final);
  const Tensor losses = raw::unary<functors::Neg>(
      raw::binary<functors::LogAddExp>(raw::narrow(final, 0, 0, N), raw::narrow(final, 0, N, N)));
  const Tensor y = zero_infinity
                       ? raw::where(raw::unary<functors::IsFinite>(losses), losses, zeros_like(losses))
                       : raw::clone(losses);  // the rule keeps `losses`
  if (Recorder r{kOp, log_probs})
    r.record(y, wrt(log_probs, [log_probs = r.save(log_probs), alpha = r.save(alpha), losses, states,
                                zero_infinity](const Tensor& dy) {
               const Tensor x = log_probs.get();
               const Tensor dx = gradient(dy, x, alpha.get(), losses, states, zero_infinity);
               if (Recorder second{"ctc_loss_backward", dy, x})
                 second.record(dx, wrt(dy, &no_second_order), wrt(x, &no_second_order));
               return dx;
             }));
  return y;
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& o) {
  const OpCall call(kOp, {{"log_probs", log_probs},
                          {"targets", targets},
                          {"input_lengths", input_lengths},
                          {"target_lengths", target_lengths}});
  if (autograd::Casting cast{"ctc_loss"})
    return ctc_loss(cast(log_probs), targets, input_lengths, target_lengths, o);
  check_floating(kOp, "log_probs", log_probs);
  check_integers(kOp, "classes", "targets", targets);
  if (log_probs.dim() == 2 && targets.dim() == 1 && input_lengths.dim() == 0 && target_lengths.dim() == 0) {
    const Tensor batch = ctc_loss(unsqueeze(log_probs, 1), targets, raw::unsqueeze(input_lengths, 0),
                                  raw::unsqueeze(target_lengths, 0), o);
    return reshape(batch, {});
  }
  if (log_probs.dim() != 3 || targets.dim() < 1 || targets.dim() > 2 ||
      (targets.dim() == 2 && targets.size(0) != log_probs.size(1)))
    throw ShapeError(kOp, "expected log_probs [T,N,C] and targets [N,S] or [sum of target_lengths], got ",
                     describe(log_probs), " and ", describe(targets));
  if (autograd::has_16_bits(log_probs))
    return to(ctc_loss(autograd::at_least_f32(log_probs), targets, input_lengths, target_lengths, o),
              log_probs.dtype());
  const int64_t T = log_probs.size(0), N = log_probs.size(1), C = log_probs.size(2);
  if (o.blank < 0 || o.blank >= C) throw ValueError(kOp, "expected a blank in [0, ", C, "), got ", o.blank);
  const std::vector<int64_t> in = checked_lengths("input_lengths", input_lengths, N, T);
  const std::vector<int64_t> out =
      checked_lengths("target_lengths", target_lengths, N, targets.size(targets.dim() - 1));
  Checked total(kOp, 0);
  for (const int64_t n : out) total = total + n;
  if (targets.dim() == 1 && total != targets.size(0))
    throw ValueError(kOp, "expected target_lengths with the sum ", targets.size(0),
                     ", the number of targets, got ", int64_t(total));
  const States states = make_states(split_targets(targets, out, C), in, log_probs, o.blank);
  Tensor losses = losses_of(log_probs, states, o.zero_infinity);
  if (o.reduction == Reduction::kMean) {
    std::vector<double> divisors;
    for (const int64_t n : out) divisors.push_back(double(std::max<int64_t>(n, 1)));
    losses = losses / raw::to(raw::to(tensor(divisors, {N}), losses.dtype()), losses.device());
  }
  return autograd::reduce_losses(kOp, losses, o.reduction);
}

}  // namespace gradus
