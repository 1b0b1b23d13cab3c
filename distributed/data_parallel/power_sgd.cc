// power_sgd_hook (declared in comm_hook.h): compresses gradients to rank-r factors before the all-reduce
// (PowerSGD: Vogels, Karimireddy, Jaggi, NeurIPS 2019), one bucket at a time, in host memory: gradients on GPUs are copied there.
// The reducer calls the hook on all ranks for the same buckets in the same order: start() launches the
// all-reduce of the Ps, complete() waits for it, all-reduces the Qs, and writes the results into the bucket.
#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/data_parallel/internal/low_rank.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/work.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::dist {
namespace {

using internal::add_product, internal::first_not_finite, internal::orthonormalize;

// Note [PowerSGD]
// M [n,m] is a rank's gradient, plus the compression error of its last step (error feedback). Q [m,r] is the
// last step's, or random, made orthonormal; it is equal on all ranks.
//   P = orthonormalize(sum over ranks of M Q)   [n,r]
//   Q = mean over ranks of M^T P                [m,r]   (the sum if the bucket's op is a sum)
//   result = P Q^T                              mean of the Ms, projected onto the columns of P
//   error = M - P (M^T P)^T                     added to the same rank's M of the next step
//
// The result must be bit for bit the same on all ranks. The local terms of a sum over ranks may come from any
// kernel. Computations on the sums use only low_rank.h, which is deterministic on every machine.

// The state of one hook, between steps. Completion functions keep it alive.
class PowerSGD : public std::enable_shared_from_this<PowerSGD> {
 public:
  explicit PowerSGD(const PowerSGDOptions& options) : options_(options), generator_(options.seed) {
    constexpr const char* kOp = "power_sgd_hook";
    const auto check = [](bool holds, const char* name, const char* expected, auto given) {
      if (!holds) throw ValueError(kOp, "expected ", name, ' ', expected, ", got ", given);
    };
    check(options.matrix_approximation_rank >= 1, "matrix_approximation_rank", "of at least 1",
          options.matrix_approximation_rank);
    check(options.start_iter >= 2 || !(options.use_error_feedback || options.warm_start), "start_iter",
          "of at least 2 with error feedback or warm start: first gradients are unlike later ones",
          options.start_iter);
    check(options.min_compression_rate > 0, "min_compression_rate", "above 0", options.min_compression_rate);
    check(options.orthogonalization_epsilon >= 0, "orthogonalization_epsilon", "of at least 0",
          options.orthogonalization_epsilon);
  }

  // Starts the communication of a bucket: one all-reduce of the Ps and of the uncompressed gradients, or of
  // the whole bucket if nothing is compressed. Returns the completion function.
  std::function<void()> start(const GradBucket& bucket) {
    const bool skip_compression = backwards_ < options_.start_iter || size_of(bucket.buffer.dtype()) < 4;
    std::vector<Item> items;
    std::vector<Tensor> uncompressed;
    for (size_t i = 0; i < bucket.gradients.size(); ++i) {
      const Tensor& gradient = bucket.gradients[i];
      Matrix* const matrix = skip_compression ? nullptr : find_matrix(bucket.parameters[i]);
      if (!matrix) {
        uncompressed.push_back(gradient);
        continue;
      }
      items.push_back({matrix, raw::view(gradient, {matrix->n, matrix->m}), {}});
      prepare(items.back());
    }
    std::vector<Tensor> message;
    for (const Item& item : items) message.push_back(item.p);
    if (items.empty())
      message = {bucket.buffer};
    else
      message.insert(message.end(), uncompressed.begin(), uncompressed.end());
    const Work work = all_reduce_coalesced(message, {.group = bucket.group, .async_op = true});
    return
        [self = shared_from_this(), bucket, items = std::move(items), uncompressed = std::move(uncompressed),
         work]() mutable { self->complete(bucket, items, uncompressed, work); };
  }

 private:
  // A parameter viewed as a matrix [n,m], and its state between steps. Factors are stored transposed.
  struct Matrix {
    Tensor parameter;
    int64_t n = 0, m = 0, r = 0;
    Tensor error;  // [n,m], compression error of the last step (error feedback)
    Tensor q;      // [r,m], Q^T of the last step
  };
  // A matrix of a bucket in flight.
  struct Item {
    Matrix* matrix;
    Tensor gradient;  // [n,m], view of the bucket
    Tensor p;         // [r,n], P^T
    // Returns M.
    const Tensor& source() const { return matrix->error.defined() ? matrix->error : gradient; }
  };

  // Returns the matrix of a parameter, or null if the parameter's gradient is sent uncompressed.
  Matrix* find_matrix(const Tensor& parameter) {
    if (parameter.dim() < 2 || parameter.numel() == 0) return nullptr;
    const auto [it, is_new] = matrices_.try_emplace(parameter.ref().get());
    Matrix& matrix = it->second;
    if (is_new) {
      const int64_t n = parameter.size(0), m = parameter.numel() / n;
      matrix = {
          .parameter = parameter, .n = n, .m = m, .r = std::min({n, m, options_.matrix_approximation_rank})};
    }
    const double compressed = double((matrix.n + matrix.m) * matrix.r);
    const bool smaller = compressed * options_.min_compression_rate < double(matrix.n) * double(matrix.m);
    return smaller ? &matrix : nullptr;
  }

  // Fills x with random numbers that are the same on all ranks, without using the Context's generator.
  void draw(const Tensor& x) { raw::normal_kernel(x, 0, 1, {generator_.next()}); }
  // Adds the last error to the gradient (`error` is then M), makes Q orthonormal, and computes P^T = Q^T M^T.
  void prepare(Item& item) {
    Matrix& matrix = *item.matrix;
    if (options_.use_error_feedback) {
      if (matrix.error.defined())
        raw::add_(matrix.error, item.gradient);
      else
        matrix.error = raw::clone(item.gradient);
    }
    if (!matrix.q.defined()) {
      matrix.q = empty({matrix.r, matrix.m}, {.dtype = item.gradient.dtype()});
      draw(matrix.q);
    }
    // Replaces rows of zeros, which come from steps with zero gradients: a zero row would stay zero.
    for (int64_t k = 0; k < matrix.r; ++k) {
      const Tensor row = raw::select(matrix.q, 0, k);
      if (std::ranges::all_of(row.to_vector<double>(), [](double v) { return v == 0; })) draw(row);
    }
    orthonormalize(matrix.q, options_.orthogonalization_epsilon);
    item.p = raw::matmul(matrix.q, raw::transpose(item.source(), 0, 1));
  }

  // Waits for the Ps, reduces the Qs, and writes the results to the bucket and the errors to the state.
  void complete(const GradBucket& bucket, std::vector<Item>& items, const std::vector<Tensor>& uncompressed,
                const Work& work) {
    work.wait();
    for (const Tensor& x : uncompressed) bucket.divide(x);
    if (!items.empty()) {
      std::vector<Tensor> local_qs, qs;
      for (Item& item : items) {
        orthonormalize(item.p, options_.orthogonalization_epsilon);
        local_qs.push_back(raw::matmul(item.p, item.source()));
        qs.push_back(raw::clone(local_qs.back()));
      }
      const Work sums = all_reduce_coalesced(qs, {.group = bucket.group, .async_op = true});
      for (size_t i = 0; i < items.size(); ++i)
        if (options_.use_error_feedback) add_product(items[i].matrix->error, items[i].p, local_qs[i], -1);
      sums.wait();
      for (size_t i = 0; i < items.size(); ++i) {
        Matrix& matrix = *items[i].matrix;
        bucket.divide(qs[i]);
        raw::fill_(items[i].gradient, 0);
        add_product(items[i].gradient, items[i].p, qs[i], 1);
        // NaN or infinity on any rank spreads to every rank's Q: to the result, but not to the state.
        const bool finite = first_not_finite(qs[i]) < 0;
        if (!finite) matrix.error = Tensor();
        matrix.q = finite && options_.warm_start ? qs[i] : Tensor();
      }
    }
    if (!bucket.is_last) return;
    ++backwards_;
    // Drops the state of parameters that only this hook still refers to.
    std::erase_if(matrices_,
                  [](const auto& entry) { return entry.second.parameter.ref()->use_count() == 1; });
  }

  const PowerSGDOptions options_;
  RandomGenerator generator_;                               // has the same state on all ranks
  int64_t backwards_ = 0;                                   // backwards that are complete
  std::unordered_map<const TensorImpl*, Matrix> matrices_;  // per parameter
};

}  // namespace

CommHook power_sgd_hook(const PowerSGDOptions& options) {
  return [state = std::make_shared<PowerSGD>(options)](const GradBucket& bucket) -> std::function<void()> {
    if (bucket.buffer.device().type != DeviceType::kCUDA) return state->start(bucket);
    GradBucket on_host = bucket;
    on_host.buffer = raw::to(bucket.buffer, kCPU);
    int64_t offset = 0;
    for (Tensor& gradient : on_host.gradients) {
      gradient =
          view_as_strided(on_host.buffer, gradient.shape(), row_major_strides(gradient.shape()), offset);
      offset += gradient.numel();
    }
    return [complete = state->start(on_host), from = on_host.buffer, to = bucket.buffer] {
      complete();
      raw::copy_(to, from);
    };
  };
}

}  // namespace gradus::dist
