// Random tensors. Each call takes the next draw of the Context's generator. Element i (row-major) of a draw
// depends on the seed, the number of the draw and i alone, and not on threads, layout or device. Dropout
// masks also depend on the replica in the job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

namespace raw {

// Note [Draws]
// Element i of a draw with key k reads philox(k.seed, k.stream, counter), four 32-bit words:
//   uniform f32, bernoulli   word i mod 4 of counter i / 4
//   normal f32               words 2j, 2j + 1 give elements 2j, 2j + 1 of the counter's four (Box-Muller)
//   uniform f64, integers    words 2j, 2j + 1 of counter i / 2, j = i mod 2
//   normal f64               all words of counter i / 2 give elements 2j, 2j + 1
//   dropout masks            half-word i mod 8 of counter i / 8, the lower half of a word first
// 16-bit floats are drawn as f32.

// The key of a draw, as kernels take it. Those for CUDA add the two numbers of `base`, i64[2], to seed and
// stream, where it is defined: Note [Draws that count from a device].
struct DrawKey {
  PhiloxKey philox;
  Tensor base = {};
};
// Shows a kernel's observer the tensor of a key.
template <class F> void for_each_tensor(const DrawKey& key, F f) { f(key.base); }

extern KernelSlot<void(const Tensor& out, double low, double high, const DrawKey& key)> uniform_kernel;
extern KernelSlot<void(const Tensor& out, double mean, double std, const DrawKey& key)> normal_kernel;
// True with probability p, into a bool tensor.
extern KernelSlot<void(const Tensor& out, double p, const DrawKey& key)> bernoulli_kernel;
// The same with p rounded up to a multiple of 2^-16, from half as many bits.
extern KernelSlot<void(const Tensor& out, double p, const DrawKey& key)> dropout_mask_kernel;
// low + [0, range), into an i64 tensor.
extern KernelSlot<void(const Tensor& out, int64_t low, uint64_t range, const DrawKey& key)> randint_kernel;
extern KernelSlot<void(const Tensor& out, const DrawKey& key)> randperm_kernel;
// out i64 [rows, k]; weights f64 [rows, n]; uniform f64 [rows, k] with replacement, else [rows, n].
extern KernelSlot<void(const Tensor& out, const Tensor& weights, const Tensor& uniform, bool replacement)>
    multinomial_kernel;
// u = 1 where u < p, else 0. Both are f64 or both f32, row-major. Throws where an element of p
// is no probability.
extern KernelSlot<void(const Tensor& u, const Tensor& p)> below_kernel;
// Draws a mask as dropout_mask_kernel does, and y = scale x where it holds, else 0. y may be x.
extern KernelSlot<void(const Tensor& y, const Tensor& mask, const Tensor& x, double p, double scale,
                       const DrawKey& key)>
    dropout_kernel;
// y = scale x where the mask (bool) holds, else 0.
extern KernelSlot<void(const Tensor& out, const Tensor& x, const Tensor& mask, double scale)>
    masked_scale_kernel;

// Fill x with uniform numbers of [low, high), or with normal numbers.
// Errors: DTypeError unless floating; ValueError.
void uniform_(const Tensor& x, double low = 0, double high = 1);
void normal_(const Tensor& x, double mean = 0, double std = 1);
// Fills x, of any dtype, with 1 with probability p, and with 0 otherwise.
// Errors: ValueError unless 0 <= p <= 1.
void bernoulli_(const Tensor& x, double p);
// Return a bool tensor in x's layout, true with probability p. dropout_mask rounds p up to a multiple of
// 2^-16 and draws other elements on each rank.
Tensor bernoulli_mask(const Tensor& x, double p);
Tensor dropout_mask(const Tensor& x, double p);
// Returns scale x where a mask of dropout_mask(x, p) holds, else 0, and the mask. Writes into `out` where
// given; it may share x's buffer.
struct Dropped {
  Tensor y, mask;
};
Dropped dropout(const Tensor& x, double p, double scale, const Tensor& out = {});
// Returns scale x where the mask holds, else 0. Writes into `out` where given; it may share x's buffer.
Tensor masked_scale(const Tensor& x, const Tensor& mask, double scale, const Tensor& out = {});

}  // namespace raw

// Returns uniform numbers of [0, 1): multiples of 2^-24 (f32, f16, bf16) or 2^-53 (f64).
Tensor rand(const Shape& shape, TensorOptions options = {});
// Returns numbers of the standard normal distribution.
Tensor randn(const Shape& shape, TensorOptions options = {});
Tensor rand_like(const Tensor& x);
Tensor randn_like(const Tensor& x);
// Returns integers of [low, high).
// Errors: ValueError unless low < high; DTypeError for bool.
Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options = {.dtype = DType::kI64});
// Returns integers of [0, high).
Tensor randint(int64_t high, const Shape& shape, TensorOptions options = {.dtype = DType::kI64});
template <DimIndex A, DimIndex B>
Tensor randint(A low, B high) = delete;  // no shape: write randint(low, high, shape) or randint(high, {n})
// Returns a random order of 0 .. n - 1.
// Errors: ValueError for a negative n.
Tensor randperm(int64_t n, TensorOptions options = {.dtype = DType::kI64});
// Returns 1 with the probability that each element of p gives, else 0, in p's dtype.
// Errors: DTypeError unless floating; ValueError for an element outside [0, 1].
Tensor bernoulli(const Tensor& p);
// Returns integers of [low, high) in x's shape and dtype.
// Errors: as randint.
Tensor randint_like(const Tensor& x, int64_t low, int64_t high);
// Returns numbers of normal distributions with the given means and standard deviations.
// These broadcast together.
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
// The host's generator stays the authority: its state is known without waiting, and the draws on all devices
// are one sequence. At the start of a scope, launches write this state, seed and number of draws, to the
// device. A key in the scope is what was added to both since, and kernels add it to what they read. So the
// first run draws what it draws without the scope. Sums are modulo 2^64, so the generator may have gone back,
// as it does when a checkpoint computes again. repeat() writes the state of that time to the device, and
// takes as many draws from the generator as there were in the scope.
//
// The keys of other draws stay the numbers that they are: those on other devices, those of other generators
// than was the Context's at the start of the scope, and what the host draws itself.
//
// A scope around a capture, which runs nothing, has drawn nothing either. The generator then gets back the
// state that it had before, and repeat() comes before each run, the first one too.

// What keys count from.
struct DrawBase {
  std::shared_ptr<RandomGenerator> generator;
  Tensor numbers;        // i64[2]: seed and stream, as kernels read them
  PhiloxKey start;       // the same, as the kernels that are queued next will read them
  bool is_ahead = true;  // all draws of the scope had its seed and came after its start
};

// Random numbers of what runs again, such as a captured step. Its kernels run with the arguments of the first
// time, the keys of their draws among them, so they would draw the same numbers each time. Within a
// DeviceDraws::Scope keys count from numbers on the device, and those the host can move on.
//
//   DeviceDraws draws(cuda);
//   {
//     const DeviceDraws::Scope scope(draws);
//     step();
//   }
//   draws.repeat();   // the kernels of the step, if they run again now, draw the generator's next numbers
class DeviceDraws {
 public:
  // Errors: DeviceError unless it is a CUDA device.
  explicit DeviceDraws(Device device);
  DeviceDraws(const DeviceDraws&) = delete;
  DeviceDraws& operator=(const DeviceDraws&) = delete;

  // As long as it lives, draws of the Context's generator on the device count from there. Launches that write
  // the generator's state are queued on the current stream first. Does not wait.
  class [[nodiscard]] Scope {
   public:
    // Errors: StateError while another scope of these draws lives.
    explicit Scope(DeviceDraws& draws);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeviceDraws& draws_;
  };

  // Queues launches that write the generator's state to the device, on the current stream, and takes as many
  // draws from the generator as there were in the last scope. Kernels of the scope that run again behind them
  // draw these. Does not wait.
  // Errors: StateError unless a scope has ended whose draws all had its seed and came after its start.
  void repeat();

 private:
  void send_state();

  std::shared_ptr<DrawBase> base_;
  bool is_open_ = false;           // a scope lives
  std::optional<uint64_t> count_;  // of draws in the last scope
};

}  // namespace gradus
