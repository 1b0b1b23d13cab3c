// CUDA kernels of cross-entropy and negative log-likelihood with class indices, and of their gradient. A
// thread group (thread_groups.h: 1 to 256 threads of a block) computes the log-softmax statistics and the
// loss of one sample; a second launch sums the samples, unless one block has all. No atomic sums, so results
// are the same in every run. A target outside [0, classes) gives NaN and a later IndexError.
// Scores and their gradient have elements E, other tensors T = compute_t<E>. Softmax and the gradient are
// computed in T; losses are weighted and summed in f64.
#include "gradus/tensor/cuda/kernels/losses/cross_entropy.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/cuda/kernels/thread_groups.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {

// The weighted loss of a sample, and the weight of its target; or sums of both.
struct alignas(16) SampleLoss {
  double loss, weight;
};

namespace {

constexpr int kScores = 64;  // maximum number of scores per thread, if a block is enough for that

// Reduction op (reduce_ops.h) that sums SampleLoss over the samples. finish() returns the total weight, and
// writes the sum or weighted mean of the losses to *loss. Null `loss`: LossReduction::kNone.
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
  int64_t number;         // class index
  bool counts, is_class;  // counts: not ignore_index; is_class: counts, and in [0, classes)
  T weight;               // of the class; 0 if ignored, NaN if out of range
};
template <class E>
__device__ __forceinline__ Target<compute_t<E>> target_of(const CrossEntropy<E>& s,
                                                          const ThreadIndex& thread) {
  using T = compute_t<E>;
  Target<T> y{s.ignore_index, false, false, 0};
  if (thread.limit == 0) return y;
  y.number = s.target[thread.row];
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
// if s.stats is null, x are log-probabilities, and nll(c) = -x[c]. Each thread group has one sample. If one
// block has all samples, the block also finishes the whole loss and writes the total weight to *total.
// Otherwise `total` is null, and the samples' losses and weights go to `losses`. `each`: output of the
// samples' losses, or null. Writes s.stats.
template <class E, int vector>
__global__ void __launch_bounds__(kBlockThreads, 4)
    cross_entropy_samples(CrossEntropy<E> s, ThreadGroups groups, SampleLoss* losses, compute_t<E>* each,
                          WholeLoss<compute_t<E>> whole, compute_t<E>* total) {
  using T = compute_t<E>;
  ThreadIndex thread = thread_index(groups);
  const bool is_sample = thread.limit > 0;
  const Target<T> y = target_of(s, thread);
  if (!y.is_class) thread.limit = 0;  // the sample's scores are not needed
  auto& scratch = shared_memory<GroupScratch<T>>();
  ExpSum<T> exp_sum{0, 1};
  if (s.stats) exp_sum = sum_exp<vector>(s.x, groups, thread, scratch);
  const T shift = m::log(exp_sum.sum);
  // -log p_c
  const auto nll = [&](T score) { return static_cast<double>(shift - (score - exp_sum.row_max)); };
  double smooth = 0;
  if (s.smoothing != 0) {
    for_each_vector<1>(groups, thread, [&](int64_t c) {
      smooth +=
          (s.weight ? static_cast<double>(s.weight[c]) : 1.0) * nll(widen(s.x[thread.first + c * s.inner]));
    });
    if (s.stats) __syncthreads();  // all threads have read `scratch`
    smooth = merge_group(groups, smooth, scratch.sum, AddOp{});
  }
  const int lane = thread.rank;
  SampleLoss local{0, 0};
  if (is_sample && lane == 0) {
    local.weight = static_cast<double>(y.weight);
    if (y.is_class)
      local.loss = (1 - s.smoothing) * local.weight * nll(widen(s.x[thread.first + y.number * s.inner])) +
                   s.smoothing / static_cast<double>(s.classes) * smooth;
    else
      local.loss = local.weight;
    if (y.counts && !y.is_class) report(s.reports, thread.row, static_cast<uint64_t>(y.number));
    if (!total) store_vector(losses + thread.row, local);
    if (each) each[thread.row] = static_cast<T>(local.loss);
    if (s.stats)
      store_vector(s.stats + 2 * thread.row,
                   y.is_class ? Vector<T, 2>{exp_sum.row_max, shift} : Vector<T, 2>{y.weight, y.weight});
  }
  if (!total) return;
  const ThreadGroups block{1, 0, 1, kBlockThreads, 1};
  __syncthreads();  // all threads have read `scratch`
  local.loss = merge_group(block, local.loss, scratch.sum, AddOp{});
  __syncthreads();
  local.weight = merge_group(block, local.weight, scratch.sum, AddOp{});
  if (threadIdx.x == 0) *total = whole.finish(local, 0);
}

// dx[o, c, i] = g * (p[c] * (h + smooth * sum_k w[k]) - (c == t) * h - smooth * w[c]), where p = softmax(x),
// or 0 if s.stats is null, t is the target, h = (1 - smoothing) * w[t], smooth = smoothing / classes, and g =
// dy, divided by *total unless `total` is null. `each`: dy has one element per sample, else one in all.
// `weights` is the sum of w[k]; null: the number of classes. Ignored samples get 0. One group per sample.
template <class E, int vector>
__global__ void __launch_bounds__(kBlockThreads, 4)
    cross_entropy_backward(CrossEntropy<E> s, ThreadGroups groups, E* dx, const compute_t<E>* dy, bool each,
                           const compute_t<E>* total, const compute_t<E>* weights) {
  using T = compute_t<E>;
  const ThreadIndex thread = thread_index(groups);
  const Target<T> y = target_of(s, thread);
  T scale = 0;
  Vector<T, 2> stats{};
  if (y.counts) {
    scale = (each ? dy[thread.row] : *dy) * (total ? T(1) / *total : T(1));
    if (s.stats) stats = load_vector<Vector<T, 2>>(s.stats + 2 * thread.row);
  }
  const T hit = static_cast<T>(1 - s.smoothing) * y.weight;
  const T smooth = static_cast<T>(s.smoothing / static_cast<double>(s.classes));
  const T all = scale * (hit + smooth * (weights ? *weights : static_cast<T>(s.classes)));
  for_each_vector<vector>(groups, thread, [&](int64_t i) {
    Vector<T, vector> d{};
    if (s.stats && y.counts) d = load_from_row<vector>(s.x, groups, thread, i);
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
    store_to_row(dx, groups, thread, i, d);
  });
}

template <class E> int64_t bytes_of_losses(const CrossEntropy<E>& s) {
  return s.samples() * static_cast<int64_t>(sizeof(SampleLoss));
}

// Calls f<vector>(groups) with the groups for one sample each; vector: scores that a thread loads at once.
template <class E, class F> void with_groups(const CrossEntropy<E>& s, bool in_vectors, F&& f) {
  constexpr int kVector = kVectorSize<E>;
  const auto start = [&]<int vector>() {
    f.template operator()<vector>(thread_groups_for(s.outer, s.classes, s.inner, vector, kScores));
  };
  in_vectors ? start.template operator()<kVector>() : start.template operator()<1>();
}

}  // namespace

template <class E> int64_t cross_entropy_workspace(const CrossEntropy<E>& s) {
  const SampleLoss* const losses = nullptr;
  return std::max(bytes_of_losses(s) + reduce_workspace<WholeLoss<compute_t<E>>>(losses, 1, s.samples(), 1),
                  16 + reduce_workspace<Sum<compute_t<E>>>(s.weight, 1, s.classes, 1));
}

template <class E>
void cross_entropy(const char* op, const CrossEntropy<E>& s, LossReduction kind, compute_t<E>* loss,
                   compute_t<E>* total, void* workspace, cudaStream_t stream) {
  using T = compute_t<E>;
  auto* const losses = static_cast<SampleLoss*>(workspace);
  const bool each = kind == LossReduction::kNone;
  const auto whole = [&] { return WholeLoss<T>{each ? nullptr : loss, kind == LossReduction::kMean}; };
  bool is_done = false;
  with_groups(s, has_vector_rows(s.classes, s.inner, s.x), [&]<int vector>(ThreadGroups groups) {
    if (!s.stats && s.smoothing == 0) groups.size = groups.stride = 1;  // one score per sample is read
    // Few samples of few classes are computed by one block, which saves the second launch.
    const auto threads_each =
        kBlockThreads / static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(s.samples())));
    if (groups.stride == 1 && threads_each > 0 && threads_each <= kWarp && threads_each < groups.size &&
        s.classes <= 4 * threads_each * vector)
      groups.size = static_cast<int>(threads_each);
    is_done = groups.blocks() == 1;
    if (s.samples() > 0)
      launch(op, cross_entropy_samples<E, vector>, {groups.blocks(), kBlockThreads, sizeof(GroupScratch<T>)},
             stream, s, groups, losses, each ? loss : nullptr, whole(), is_done ? total : nullptr);
  });
  if (!is_done)
    reduce_rows(op, whole(), total, losses, 1, s.samples(),
                static_cast<char*>(workspace) + bytes_of_losses(s), stream);
}

template <class E>
void cross_entropy_grad(const char* op, const CrossEntropy<E>& s, LossReduction kind, E* dx,
                        const compute_t<E>* dy, const compute_t<E>* total, void* workspace,
                        cudaStream_t stream) {
  using T = compute_t<E>;
  if (s.samples() == 0) return;
  T* weights = nullptr;
  if (s.weight && s.smoothing != 0) {
    weights = static_cast<T*>(workspace);
    reduce_rows(op, Sum<T>{}, weights, s.weight, 1, s.classes, static_cast<char*>(workspace) + 16, stream);
  }
  const bool in_vectors =
      s.stats ? has_vector_rows(s.classes, s.inner, dx, s.x) : has_vector_rows(s.classes, s.inner, dx);
  with_groups(s, in_vectors, [&]<int vector>(const ThreadGroups& groups) {
    launch(op, cross_entropy_backward<E, vector>, {groups.blocks(), kBlockThreads}, stream, s, groups, dx, dy,
           kind == LossReduction::kNone, kind == LossReduction::kMean ? total : nullptr, weights);
  });
}

#define GRADUS_INSTANTIATE(E)                                                                    \
  template int64_t cross_entropy_workspace(const CrossEntropy<E>&);                              \
  template void cross_entropy(const char*, const CrossEntropy<E>&, LossReduction, compute_t<E>*, \
                              compute_t<E>*, void*, cudaStream_t);                               \
  template void cross_entropy_grad(const char*, const CrossEntropy<E>&, LossReduction, E*,       \
                                   const compute_t<E>*, const compute_t<E>*, void*, cudaStream_t);
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(double)
GRADUS_INSTANTIATE(bf16)
GRADUS_INSTANTIATE(f16)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
