#include "gradus/tensor/cuda/kernels/cross_entropy.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "gradus/tensor/cuda/kernels/powers.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/cuda/kernels/teams.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {

struct alignas(16) SampleLoss {
  double loss, weight;
};

namespace {

constexpr int kScores = 64;  // of a thread, where that is enough

// What the samples come to. Their losses are the result where `loss` is null.
template <class T> struct WholeLoss {
  using In = SampleLoss;
  using Lane = SampleLoss;
  using Wide = SampleLoss;
  using Out = T;
  T* loss;
  bool mean;
  __device__ Lane start() const { return {0, 0}; }
  __device__ Lane step(const Lane& a, const In& x) const { return merge(a, x); }
  __device__ Wide merge(const Wide& a, const Wide& b) const { return {a.loss + b.loss, a.weight + b.weight}; }
  __device__ T finish(const Wide& a, int64_t) const {
    if (loss) *loss = static_cast<T>(mean ? a.loss / a.weight : a.loss);
    return static_cast<T>(a.weight);
  }
};

// A sample's target.
template <class T> struct Target {
  int64_t number;
  bool counts, is_class;
  T weight;  // NaN where it is no class
};
template <class T>
__device__ __forceinline__ Target<T> target_of(const CrossEntropy<T>& s, const Member& me) {
  Target<T> y{s.ignore_index, false, false, 0};
  if (me.limit == 0) return y;
  y.number = s.target[me.line];
  y.counts = y.number != s.ignore_index;
  y.is_class = y.counts && 0 <= y.number && y.number < s.classes;
  if (y.is_class)
    y.weight = s.weight ? s.weight[y.number] : T(1);
  else if (y.counts)
    y.weight = std::numeric_limits<T>::quiet_NaN();
  return y;
}

// loss[i] = (1 - smoothing) * w[t] * nll(t) + smoothing / classes * sum_c w[c] * nll(c) for samples i of
// scores x[outer, classes, inner], where t = target[i] and nll(c) = log(sum_k e^(x[k] - max)) - (x[c] - max);
// without stats x are logarithms of probabilities, and nll(c) = -x[c]. A team of threads (teams.h) has one
// sample. If one block has all samples, it finishes the whole loss, and `total` is its weight. Else `total`
// is null, and the samples' losses go to `losses`.
template <class T, int vector>
__global__ void __launch_bounds__(kTeamThreads, 4)
    cross_entropy_samples(CrossEntropy<T> s, Teams teams, SampleLoss* losses, T* each, WholeLoss<T> whole,
                          T* total) {
  Member me = member_of(teams);
  const bool is_sample = me.limit > 0;
  const Target<T> y = target_of(s, me);
  if (!y.is_class) me.limit = 0;  // its scores are not needed
  auto& places = shared_memory<Places<T>>();
  Powers<T> powers{0, 1};
  if (s.stats) powers = sum_powers<vector>(s.x, teams, me, places);
  const T shift = m::log(powers.sum);
  // -log p_c
  const auto nll = [&](T score) { return static_cast<double>(shift - (score - powers.top)); };
  double smooth = 0;
  if (s.smoothing != 0) {
    for_each_share<1>(teams, me, [&](int64_t c) {
      smooth += (s.weight ? static_cast<double>(s.weight[c]) : 1.0) * nll(s.x[me.first + c * s.inner]);
    });
    if (s.stats) __syncthreads();  // all have read the places
    smooth = merge_team(teams, smooth, places.sum, TakeSum{});
  }
  const int lane = me.lane;
  SampleLoss mine{0, 0};
  if (is_sample && lane == 0) {
    mine.weight = static_cast<double>(y.weight);
    if (y.is_class)
      mine.loss = (1 - s.smoothing) * mine.weight * nll(s.x[me.first + y.number * s.inner]) +
                  s.smoothing / static_cast<double>(s.classes) * smooth;
    else
      mine.loss = mine.weight;
    if (y.counts && !y.is_class) report(s.reports, me.line, static_cast<uint64_t>(y.number));
    if (!total) store_vector(losses + me.line, mine);
    if (each) each[me.line] = static_cast<T>(mine.loss);
    if (s.stats)
      store_vector(s.stats + 2 * me.line,
                   y.is_class ? Vector<T, 2>{powers.top, shift} : Vector<T, 2>{y.weight, y.weight});
  }
  if (!total) return;
  const Teams block{1, 0, 1, kTeamThreads, 1};
  __syncthreads();  // all have read the places
  mine.loss = merge_team(block, mine.loss, places.sum, TakeSum{});
  __syncthreads();
  mine.weight = merge_team(block, mine.weight, places.sum, TakeSum{});
  if (threadIdx.x == 0) *total = whole.finish(mine, 0);
}

// dx[o, c, i] = g * (p[c] * (h + smooth * sum_k w[k]) - (c == t) * h - smooth * w[c]), where p = softmax(x),
// or 0 without stats, t is the target, h = (1 - smoothing) * w[t], smooth = smoothing / classes, and g = dy,
// divided by `total` if given. A team of threads (teams.h) has the classes of one sample.
template <class T, int vector>
__global__ void __launch_bounds__(kTeamThreads, 4)
    cross_entropy_slopes(CrossEntropy<T> s, Teams teams, T* dx, const T* dy, bool each, const T* total,
                         const T* weights) {
  const Member me = member_of(teams);
  const Target<T> y = target_of(s, me);
  T scale = 0;
  Vector<T, 2> stats{};
  if (y.counts) {
    scale = (each ? dy[me.line] : *dy) * (total ? T(1) / *total : T(1));
    if (s.stats) stats = load_vector<Vector<T, 2>>(s.stats + 2 * me.line);
  }
  const T hit = static_cast<T>(1 - s.smoothing) * y.weight;
  const T smooth = static_cast<T>(s.smoothing / static_cast<double>(s.classes));
  const T all = scale * (hit + smooth * (weights ? *weights : static_cast<T>(s.classes)));
  for_each_share<vector>(teams, me, [&](int64_t i) {
    Vector<T, vector> d{};
    if (s.stats && y.counts) d = load_of_line<vector>(s.x, teams, me, i);
#pragma unroll
    for (int k = 0; k < vector; ++k) {
      T v = 0;
      if (y.counts) {
        v = s.stats ? m::exp(d.v[k] - stats.v[0] - stats.v[1]) * all : y.is_class ? T(0) : y.weight;
        if (i + k == y.number) v -= scale * hit;
        if (s.smoothing != 0) v -= scale * smooth * (s.weight ? s.weight[i + k] : T(1));
      }
      d.v[k] = v;
    }
    store_to_line(dx, teams, me, i, d);
  });
}

template <class T> int64_t bytes_of_losses(const CrossEntropy<T>& s) {
  return s.samples() * static_cast<int64_t>(sizeof(SampleLoss));
}

// Calls f<vector>(teams).
template <class T, class F> void with_teams(const CrossEntropy<T>& s, bool in_vectors, F&& f) {
  constexpr int kVector = kVectorSize<T>;
  const auto start = [&]<int vector>() {
    f.template operator()<vector>(teams_for(s.outer, s.classes, s.inner, vector, kScores));
  };
  in_vectors ? start.template operator()<kVector>() : start.template operator()<1>();
}

}  // namespace

template <class T> int64_t cross_entropy_workspace(const CrossEntropy<T>& s) {
  const SampleLoss* const losses = nullptr;
  return std::max(bytes_of_losses(s) + reduce_workspace<WholeLoss<T>>(losses, 1, s.samples(), 1),
                  16 + reduce_workspace<Sum<T>>(s.weight, 1, s.classes, 1));
}

template <class T>
void cross_entropy(const char* op, const CrossEntropy<T>& s, LossOf kind, T* loss, T* total, void* workspace,
                   cudaStream_t stream) {
  auto* const losses = static_cast<SampleLoss*>(workspace);
  const bool each = kind == LossOf::kEach;
  const auto whole = [&] { return WholeLoss<T>{each ? nullptr : loss, kind == LossOf::kMean}; };
  bool is_done = false;
  with_teams(s, lie_in_vectors(s.classes, s.inner, s.x), [&]<int vector>(Teams teams) {
    if (!s.stats && s.smoothing == 0) teams.lanes = teams.apart = 1;  // one score is read
    // Few samples of few classes are for one block: it needs no second launch.
    const auto lanes = kTeamThreads / static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(s.samples())));
    if (teams.apart == 1 && lanes > 0 && lanes < teams.lanes && s.classes <= 4 * lanes * vector)
      teams.lanes = static_cast<int>(lanes);
    is_done = teams.blocks() == 1;
    if (s.samples() > 0)
      launch(op, cross_entropy_samples<T, vector>, {teams.blocks(), kTeamThreads, sizeof(Places<T>)}, stream,
             s, teams, losses, each ? loss : nullptr, whole(), is_done ? total : nullptr);
  });
  if (!is_done)
    reduce_rows(op, whole(), total, losses, 1, s.samples(),
                static_cast<char*>(workspace) + bytes_of_losses(s), stream);
}

template <class T>
void cross_entropy_grad(const char* op, const CrossEntropy<T>& s, LossOf kind, T* dx, const T* dy,
                        const T* total, void* workspace, cudaStream_t stream) {
  if (s.samples() == 0) return;
  T* weights = nullptr;
  if (s.weight && s.smoothing != 0) {
    weights = static_cast<T*>(workspace);
    reduce_rows(op, Sum<T>{}, weights, s.weight, 1, s.classes, static_cast<char*>(workspace) + 16, stream);
  }
  const bool in_vectors =
      s.stats ? lie_in_vectors(s.classes, s.inner, dx, s.x) : lie_in_vectors(s.classes, s.inner, dx);
  with_teams(s, in_vectors, [&]<int vector>(const Teams& teams) {
    launch(op, cross_entropy_slopes<T, vector>, {teams.blocks(), kTeamThreads}, stream, s, teams, dx, dy,
           kind == LossOf::kEach, kind == LossOf::kMean ? total : nullptr, weights);
  });
}

template int64_t cross_entropy_workspace(const CrossEntropy<float>&);
template int64_t cross_entropy_workspace(const CrossEntropy<double>&);
template void cross_entropy(const char*, const CrossEntropy<float>&, LossOf, float*, float*, void*,
                            cudaStream_t);
template void cross_entropy(const char*, const CrossEntropy<double>&, LossOf, double*, double*, void*,
                            cudaStream_t);
template void cross_entropy_grad(const char*, const CrossEntropy<float>&, LossOf, float*, const float*,
                                 const float*, void*, cudaStream_t);
template void cross_entropy_grad(const char*, const CrossEntropy<double>&, LossOf, double*, const double*,
                                 const double*, void*, cudaStream_t);

}  // namespace gradus::cuda
