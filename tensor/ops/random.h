// Random tensors: rand, randn, randint, randperm, bernoulli, multinomial, dropout, as in PyTorch. Nothing
// here is differentiable. A draw is one use of the generator of the calling thread's Context
// (RandomGenerator: a seed and a count of draws); each call takes the next draw. Element i (row-major) of a
// draw depends only on the seed, the number of the draw and i, not on threads, layout or device. Dropout
// masks also depend on the replica (data-parallel index) in the job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

namespace raw {

// Note [Draws]
// Element i of a draw with key k is computed from words of the counter-based generator philox(k.seed,
// k.stream, counter) (Philox 4x32-10), which returns four 32-bit words:
//   uniform f32, bernoulli   word i mod 4 of counter i / 4
//   normal f32               words 2j, 2j + 1 give elements 2j, 2j + 1 of the counter's four (Box-Muller)
//   uniform f64, integers    words 2j, 2j + 1 of counter i / 2, j = i mod 2
//   normal f64               all words of counter i / 2 give elements 2j, 2j + 1
//   dropout masks            half-word i mod 8 of counter i / 8, the lower half of a word first
// 16-bit floats are drawn as f32.

// The key of a draw as a kernel argument. If `base`, i64[2] on the kernel's device, is defined, kernels add
// its two numbers to seed and stream: Note [Draws that count from a device].
struct DrawKey {
  PhiloxKey philox;
  Tensor base = {};
};
// Lists the tensor of a key for KernelSlot.
template <class F> void for_each_tensor(const DrawKey& key, F f) { f(key.base); }

// Outputs are not empty. out = uniform in [low, high), and normal with this mean and standard deviation; any
// floating dtype and strides.
extern KernelSlot<void(const Tensor& out, double low, double high, const DrawKey& key)> uniform_kernel;
extern KernelSlot<void(const Tensor& out, double mean, double std, const DrawKey& key)> normal_kernel;
// out (bool) = true with probability p.
extern KernelSlot<void(const Tensor& out, double p, const DrawKey& key)> bernoulli_kernel;
// As bernoulli_kernel, with p rounded up to a multiple of 2^-16, from 16 random bits per element.
extern KernelSlot<void(const Tensor& out, double p, const DrawKey& key)> dropout_mask_kernel;
// out (i64) = uniform integers in [low, low + range).
extern KernelSlot<void(const Tensor& out, int64_t low, uint64_t range, const DrawKey& key)> randint_kernel;
// out (i64[n]) = a random permutation of 0 .. n - 1.
extern KernelSlot<void(const Tensor& out, const DrawKey& key)> randperm_kernel;
// out i64 [rows, k] = k indices drawn per row in proportion to weights f64 [rows, n], using random numbers
// `uniform` in [0, 1): f64 [rows, k] with replacement, else [rows, n].
extern KernelSlot<void(const Tensor& out, const Tensor& weights, const Tensor& uniform, bool replacement)>
    multinomial_kernel;
// u = u < p ? 1 : 0. Both are row-major and f64, or both f32. Throws ValueError if an element of p is not in
// [0, 1].
extern KernelSlot<void(const Tensor& u, const Tensor& p)> bernoulli_from_uniform_kernel;
// mask as by dropout_mask_kernel, y = mask ? scale * x : 0. y may be x.
extern KernelSlot<void(const Tensor& y, const Tensor& mask, const Tensor& x, double p, double scale,
                       const DrawKey& key)>
    dropout_kernel;
// out = mask ? scale * x : 0, with a bool mask.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& mask, double scale)>
    masked_scale_kernel;

// Fill x in place with uniform numbers in [low, high), or with normally distributed numbers.
// Errors: DTypeError unless floating; ValueError unless low <= high with a finite difference, or if std < 0;
// ShapeError if elements of x share memory.
void uniform_(const Tensor& x, double low = 0, double high = 1);
void normal_(const Tensor& x, double mean = 0, double std = 1);
// Sets each element of x, of any dtype, to 1 with probability p, else to 0.
// Errors: ValueError unless 0 <= p <= 1.
void bernoulli_(const Tensor& x, double p);
// Return a bool tensor with x's shape and layout that is true with probability p. dropout_mask rounds p up to
// a multiple of 2^-16, and its mask differs between replicas of a job.
Tensor bernoulli_mask(const Tensor& x, double p);
Tensor dropout_mask(const Tensor& x, double p);
// As dropout_mask, with the key of an earlier draw.
Tensor dropout_mask(const Tensor& x, double p, const DrawKey& key);
// Returns the key of the next draw of a dropout mask, for a kernel on `device`.
DrawKey next_dropout_draw(Device device);
// Returns mask = dropout_mask(x, p) and y = mask ? scale * x : 0. p is the probability of keeping an element.
// Writes y to `out` if defined, which has x's shape and dtype and may share x's buffer.
struct DropoutResult {
  Tensor y, mask;
};
DropoutResult dropout(const Tensor& x, double p, double scale, const Tensor& out = {});
// Returns mask ? scale * x : 0. Writes to `out` if defined, which may share x's buffer.
Tensor masked_scale(const Tensor& x, const Tensor& mask, double scale, const Tensor& out = {});

}  // namespace raw

// Returns uniform numbers in [0, 1): multiples of 2^-24 (f32), rounded for f16 and bf16, or 2^-53 (f64).
// Errors of this and the next three: DTypeError unless floating.
Tensor rand(const Shape& shape, TensorOptions options = {});
// Returns numbers of the standard normal distribution.
Tensor randn(const Shape& shape, TensorOptions options = {});
// rand and randn with x's shape, dtype and device.
Tensor rand_like(const Tensor& x);
Tensor randn_like(const Tensor& x);
// Returns uniform integers in [low, high), converted from i64 to the dtype without a check of its range.
// Errors: ValueError unless low < high; DTypeError for bool.
Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options = {.dtype = DType::kI64});
// Returns uniform integers in [0, high).
Tensor randint(int64_t high, const Shape& shape, TensorOptions options = {.dtype = DType::kI64});
template <DimIndex A, DimIndex B>
Tensor randint(A low, B high) = delete;  // no shape: write randint(low, high, shape) or randint(high, {n})
// Returns a random permutation of 0 .. n - 1.
// Errors: ValueError for a negative n.
Tensor randperm(int64_t n, TensorOptions options = {.dtype = DType::kI64});
// Returns a tensor like p whose element i is 1 with probability p[i], else 0.
// Errors: DTypeError unless floating; ValueError for an element outside [0, 1].
Tensor bernoulli(const Tensor& p);
// Returns uniform integers in [low, high) with x's shape and dtype.
// Errors: as randint.
Tensor randint_like(const Tensor& x, int64_t low, int64_t high);
// Return normally distributed numbers with these means and standard deviations, which broadcast.
// Errors: DTypeError unless floating; ValueError for a negative std given as a number.
Tensor normal(const Tensor& mean, const Tensor& std);
Tensor normal(const Tensor& mean, double std = 1);
Tensor normal(double mean, const Tensor& std);
Tensor normal(double mean, double std, const Shape& shape, TensorOptions options = {});

struct MultinomialOptions {
  bool replacement = false;  // an index may be drawn more than once
};
// Returns `count` indices for each row, drawn with probabilities proportional to the weights of the row.
// Shapes: weights[n] -> i64[count]; weights[rows,n] -> i64[rows,count].
// Errors: ShapeError for another number of dims, or for no weights; DTypeError unless floating; ValueError
// for a count below 1, and for weights that are negative, not finite or all 0. Without replacement also
// ValueError for a count above the number of positive weights.
Tensor multinomial(const Tensor& weights, int64_t count, MultinomialOptions options = {});

// Note [Draws that count from a device]
// The generator on the host remains authoritative: its state is known without synchronization, and the draws
// on all devices are one sequence. At the start of a scope, its state (seed and number of draws) is written
// to the device. The keys of draws in the scope are relative to this state, and kernels add the state that
// they read. So the first run draws the same numbers as without the scope. Sums are modulo 2^64, so the
// generator may be set back within the scope, as checkpoint recomputation does. repeat() writes the
// generator's current state to the device and advances the generator by the number of draws in the scope.
//
// Keys of other draws stay absolute: draws on other devices, draws of generators other than the Context's at
// the start of the scope, and draws on the host.
//
// A scope around a graph capture, which runs nothing, draws nothing. The caller then restores the generator's
// state, and calls repeat() before each run, including the first one.

// The state on a device to which keys are relative.
struct DrawBase {
  std::shared_ptr<RandomGenerator> generator;
  Tensor device_state;        // i64[2]: seed and stream, which kernels read
  PhiloxKey start;            // the value of `device_state` that the kernels queued next will read
  bool is_repeatable = true;  // all draws of the scope used its seed and came after its start
};

// Random numbers for kernels that are replayed with unchanged arguments, as by a CUDA graph. With absolute
// keys each replay would draw the same numbers. Within a DeviceDraws::Scope keys are relative to a state on
// the device, which repeat() advances.
//
//   DeviceDraws draws(cuda);
//   {
//     const DeviceDraws::Scope scope(draws);
//     step();
//   }
//   draws.repeat();   // the kernels of the step, if they run again now, draw the generator's next numbers
// Not thread-safe.
class DeviceDraws {
 public:
  // Errors: DeviceError unless it is cpu:0 or a CUDA device.
  explicit DeviceDraws(Device device);
  DeviceDraws(const DeviceDraws&) = delete;
  DeviceDraws& operator=(const DeviceDraws&) = delete;

  // During its lifetime, keys of draws of the Context's generator on the device are relative. The constructor
  // queues writes of the generator's state on the current stream. Does not block. The thread, and its
  // Context, must be the same in constructor, draws and destructor.
  class [[nodiscard]] Scope {
   public:
    // Errors: StateError if another scope of `draws` exists.
    explicit Scope(DeviceDraws& draws);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeviceDraws& draws_;
  };

  // Queues writes of the generator's state to the device on the current stream, and advances the generator by
  // the number of draws in the last scope. Kernels of the scope that are replayed afterwards use these draws.
  // Does not block.
  // Errors: StateError unless a scope has ended in which all draws used its seed and came after its start.
  void repeat();

 private:
  void send_state();

  std::shared_ptr<DrawBase> base_;
  bool is_open_ = false;           // a scope exists
  std::optional<uint64_t> count_;  // number of draws in the last scope
};

}  // namespace gradus
