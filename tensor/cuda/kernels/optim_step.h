// Optimizer steps: update rules (tensor/ops/formulas/optim_rule.h) over the elements of many parameters in
// one launch (multi-tensor apply). Rules with norms of each parameter, as LARS and LAMB, take three launches:
// sums of squares per chunk, a rate per parameter, the step. A chunk is a block's part of a tensor.
//
// Note [Steps that the device decides]
// A GradScaler skips a step whose gradients are infinite or NaN. The found-inf flag `found` is on the device,
// so the host knows neither whether a step is made nor how many were made. Each parameter's step number is
// then in device memory too (raw::StepNumbers; `step` is the number of the last step). begin_steps()
// increments it and makes a rule for each parameter. If *found is not 0, all kernels return at once. A null
// `found`: no step is skipped. The learning rate may be in device memory, too, so that a captured CUDA graph
// reads the current rate when it runs.
//
// P is the type of parameters and gradients in memory, T the type of states, in which rules compute.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gradus/tensor/cuda/kernels/chunk_loop.h"
#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/tensor_table.h"
#include "gradus/tensor/ops/formulas/optim_rule.h"

namespace gradus::cuda {
namespace optim_step_detail {

template <class Rule> constexpr int states_of = Rule::kUses[0] + Rule::kUses[1] + Rule::kUses[2];
// Parameters, gradients, then the states that the rule uses.
template <class Rule> constexpr int arrays_of = 2 + states_of<Rule>;
template <class Rule, int state>
constexpr int array_of_state = 2 + (state > 0 && Rule::kUses[0]) + (state > 1 && Rule::kUses[1]);

// Calls f.operator()<k>() for each state k that the rule uses.
template <class Rule, int k = 0, class F> __host__ __device__ __forceinline__ void for_each_state(F&& f) {
  if constexpr (k < 3) {
    if constexpr (Rule::kUses[k]) f.template operator()<k>();
    for_each_state<Rule, k + 1>(f);
  }
}

// Elements of a vector, which is 16 bytes of the widest array: the states' type T, or P without states.
template <class Rule, class P>
constexpr int vector_of_step = states_of<Rule> ? kVectorSize<compute_t<P>> : kVectorSize<P>;

// Calls f(p, grad, a, b, c) for the elements of a chunk, with the states a, b, c. Values that the pass does
// not read are 0. Vectors are used if all arrays are aligned.
template <raw::Pass pass, class Rule, class P, class F>
__device__ __forceinline__ void over_elements(const TensorTable<arrays_of<Rule>>& table, const Chunk& chunk,
                                              F&& f) {
  using T = compute_t<P>;
  constexpr int kVector = vector_of_step<Rule, P>;
  P* const param = table.template at<P>(0, chunk);
  const P* const grad = table.template at<P>(1, chunk);
  T* states[3] = {};
  constexpr size_t kBytes = kVector * sizeof(P);
  bool in_vectors = is_aligned(param, kBytes) && is_aligned(grad, kBytes);
  for_each_state<Rule>([&]<int k>() {
    states[k] = table.template at<T>(array_of_state<Rule, k>, chunk);
    in_vectors = in_vectors && is_aligned(states[k], kVector * sizeof(T));
  });
  for_each_chunk_vector<kVector>(chunk, in_vectors, [&]<int n>(int i) {
    Vector<P, n> p = load<n>(param + i), g{};
    Vector<T, n> s[3] = {};
    if constexpr (pass.reads_grad) g = load<n>(grad + i);
    if constexpr (pass.reads_states) for_each_state<Rule>([&]<int k>() { s[k] = load<n>(states[k] + i); });
#pragma unroll
    for (int e = 0; e < n; ++e) {
      T x = widen(p.v[e]);
      f(x, widen(g.v[e]), s[0].v[e], s[1].v[e], s[2].v[e]);
      p.v[e] = convert<P>(x);
    }
    if constexpr (pass.writes_param) store(param + i, p);
    if constexpr (pass.writes_states) for_each_state<Rule>([&]<int k>() { store(states[k] + i, s[k]); });
  });
}

template <class Make, class T>
using rule_of = decltype(std::declval<const Make&>().template rule<T>(raw::StepNumbers{}));

__device__ __forceinline__ bool is_skipped(const float* found) { return found && *found != 0; }

// Sets the members of `rule` that depend on the learning rate or the step from `there` in device memory. The
// others stay kernel arguments, which take no registers.
template <class Rule> __device__ __forceinline__ void load_rule(Rule& rule, const Rule& there) {
  if constexpr (requires { rule.copy_device_scalars(there); })
    rule.copy_device_scalars(there);
  else
    rule = there;
}

// numbers[i].step += 1 and rules[i] = make.rule(numbers[i]), for each parameter i. One thread per parameter.
// `lr`, if not null, replaces make.lr.
template <class Make, class T>
__global__ void __launch_bounds__(kWarp) begin_steps(Make make, rule_of<Make, T>* rules, const float* found,
                                                     const double* lr, TensorTable<1> numbers) {
  const int64_t i = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  if (i >= numbers.count || is_skipped(found)) return;
  if constexpr (requires { make.lr; })
    if (lr) make.lr = *lr;
  auto* const there = static_cast<raw::StepNumbers*>(numbers.data[0][i]);
  raw::StepNumbers n = *there;
  n.step += 1;
  rules[i] = make.template rule<T>(n);
  if constexpr (requires { make.advance(n); }) make.advance(n);
  *there = n;
}

// rule(p[i], sign * grad[i] + decay * p[i], states[i]) for the elements of all parameters. One block per
// chunk. `rules`: one rule per tensor; null: `rule` for all.
template <class Rule, class P>
__global__ void __launch_bounds__(kChunkThreads)
    step_elements(Rule rule, const Rule* rules, const float* found, compute_t<P> sign, compute_t<P> decay,
                  TensorTable<arrays_of<Rule>> table) {
  using T = compute_t<P>;
  if (is_skipped(found)) return;
  constexpr raw::Pass kAll{true, true, true, true};
  const Chunk chunk = table.chunk_of(blockIdx.x);
  if (rules) load_rule(rule, rules[chunk.tensor]);
  over_elements<kAll, Rule, P>(table, chunk, [&](T& p, T g, T& a, T& b, T& c) {
    raw::step_element(rule, sign, decay, p, g, a, b, c);
  });
}

// Sums of the squares of the two values that a rule measures, in f64.
using Squares = raw::Pair<double>;
struct AddSquares {
  using Wide = Squares;
  __device__ Squares merge(const Squares& a, const Squares& b) const {
    return {a.first + b.first, a.second + b.second};
  }
};
inline constexpr int64_t kSharedOfSums = sizeof(MergedWarps<Squares, kChunkThreads>);

// sums[chunk] = sums of squares of the two values that the rule measures per element. One block per chunk.
template <class Rule, class P>
__global__ void __launch_bounds__(kChunkThreads)
    measure_chunks(Rule rule, const Rule* rules, const float* found, Squares* sums,
                   TensorTable<arrays_of<Rule>> table) {
  using T = compute_t<P>;
  if (is_skipped(found)) return;
  const Chunk chunk = table.chunk_of(blockIdx.x);
  if (rules) load_rule(rule, rules[chunk.tensor]);
  Squares local{};
  over_elements<Rule::kMeasurePass, Rule, P>(table, chunk, [&](T& p, T g, T& a, T& b, T& c) {
    const raw::Pair<T> x = rule.measure(p, g, a, b, c);
    local.first += double(x.first) * double(x.first);
    local.second += double(x.second) * double(x.second);
  });
  local = merge_block<kChunkThreads>(AddSquares{}, local);
  if (threadIdx.x == 0) sums[blockIdx.x] = local;
}

// rates[tensor] = rule.rate(sqrt(s.first), sqrt(s.second)), s = sum over chunks. One block per tensor.
template <class Rule, class T>
__global__ void __launch_bounds__(kChunkThreads)
    rates_of_tensors(Rule rule, const Rule* rules, const float* found, T* rates, const Squares* sums,
                     TensorTable<arrays_of<Rule>> table) {
  if (is_skipped(found)) return;
  const int64_t tensor = blockIdx.x;
  if (rules) load_rule(rule, rules[tensor]);
  const int64_t chunks = blocks_for(table.n[tensor], kChunk), first = table.first_block[tensor];
  Squares local{};
  for (int64_t i = threadIdx.x; i < chunks; i += kChunkThreads)
    local =
        AddSquares{}.merge(local, std::bit_cast<Squares>(load_vector<Vector<double, 2>>(sums + first + i)));
  local = merge_block<kChunkThreads>(AddSquares{}, local);
  if (threadIdx.x == 0) rates[tensor] = rule.rate(m::sqrt(local.first), m::sqrt(local.second));
}

// rule.step(rates[tensor], p[i], grad[i], states[i]) for the elements of all parameters. One block per chunk.
template <class Rule, class P>
__global__ void __launch_bounds__(kChunkThreads)
    step_at_rates(Rule rule, const Rule* rules, const float* found, const compute_t<P>* rates,
                  TensorTable<arrays_of<Rule>> table) {
  using T = compute_t<P>;
  if (is_skipped(found)) return;
  const Chunk chunk = table.chunk_of(blockIdx.x);
  if (rules) load_rule(rule, rules[chunk.tensor]);
  const T rate = rates[chunk.tensor];
  over_elements<Rule::kStepPass, Rule, P>(
      table, chunk, [&](T& p, T g, T& a, T& b, T& c) { rule.step(rate, p, g, a, b, c); });
}

// Returns the arrays that the rule uses.
template <class Rule>
std::vector<ArraysOfTensor<arrays_of<Rule>>> used_by(std::span<const StepArrays> items) {
  std::vector<ArraysOfTensor<arrays_of<Rule>>> used;
  for (const StepArrays& item : items) {
    ArraysOfTensor<arrays_of<Rule>> arrays{{item.param, item.grad}, item.n};
    for_each_state<Rule>([&]<int k>() { arrays.data[array_of_state<Rule, k>] = item.state[k]; });
    used.push_back(arrays);
  }
  return used;
}

}  // namespace optim_step_detail

using optim_step_detail::rule_of;

// Increments the step in each of `numbers`, f64[3] as raw::StepNumbers, and writes the parameter's rule to
// `rules`. If the step is skipped, both stay unchanged. *lr replaces make.lr, unless `lr` is null. `rules`,
// `found`, `lr` and the elements of `numbers` are device pointers.
template <class T, class Make>
void begin_steps(const char* op, const Make& make, rule_of<Make, T>* rules, const float* found,
                 const double* lr, std::span<void* const> numbers, cudaStream_t stream) {
  static_assert(sizeof(Make) + 3 * sizeof(void*) + 8 <= kOtherArgumentBytes);
  std::vector<ArraysOfTensor<1>> each;
  for (void* const n : numbers) each.push_back({{n}, 1});
  for_each_table<1>(each, [&](const TensorTable<1>& table, int64_t) {
    launch(op, optim_step_detail::begin_steps<Make, T>, {blocks_for(table.count, kWarp), kWarp}, stream, make,
           rules, found, lr, table);
    rules += table.count;
  });
}

// Updates all parameters by rule(p, sign grad + decay p, states). `known`: rules and found-inf flag in device
// memory; with null members `rule` applies to all parameters, and the step is made.
template <class P, class Rule>
void step(const char* op, const Rule& rule, compute_t<P> sign, compute_t<P> decay,
          std::span<const StepArrays> items, cudaStream_t stream, DeviceRules<Rule> known = {}) {
  using namespace optim_step_detail;  // NOLINT
  static_assert(sizeof(Rule) + 2 * sizeof(void*) + 2 * sizeof(double) + 8 <= kOtherArgumentBytes);
  const auto used = used_by<Rule>(items);
  for_each_table<arrays_of<Rule>>(used, [&](const TensorTable<arrays_of<Rule>>& table, int64_t blocks) {
    launch(op, step_elements<Rule, P>, {blocks, kChunkThreads}, stream, rule, known.rules, known.found, sign,
           decay, table);
    if (known.rules) known.rules += table.count;
  });
}

// Returns the bytes of workspace that step_by_norms() needs, aligned to 16.
inline int64_t norms_workspace(std::span<const StepArrays> items) {
  int64_t bytes = 0;
  for (const StepArrays& item : items)
    bytes += blocks_for(item.n, kChunk) * static_cast<int64_t>(sizeof(optim_step_detail::Squares)) +
             static_cast<int64_t>(sizeof(double));
  return bytes;
}

// Updates all parameters by rule.step(rate, p, grad, states), where the rate of a parameter is computed from
// the 2-norms of the two values that the rule measures of each element. `workspace` has
// norms_workspace(items) bytes.
template <class P, class Rule>
void step_by_norms(const char* op, const Rule& rule, std::span<const StepArrays> items, void* workspace,
                   cudaStream_t stream, DeviceRules<Rule> known = {}) {
  using namespace optim_step_detail;  // NOLINT
  using T = compute_t<P>;
  static_assert(sizeof(Rule) + 4 * sizeof(void*) + 8 <= kOtherArgumentBytes);
  const auto used = used_by<Rule>(items);
  for_each_table<arrays_of<Rule>>(used, [&](const TensorTable<arrays_of<Rule>>& table, int64_t blocks) {
    auto* const sums = static_cast<Squares*>(workspace);  // reused by each table
    auto* const rates = reinterpret_cast<T*>(sums + blocks);
    const Grid chunks{blocks, kChunkThreads}, with_sums{blocks, kChunkThreads, kSharedOfSums};
    launch(op, measure_chunks<Rule, P>, with_sums, stream, rule, known.rules, known.found, sums, table);
    launch(op, rates_of_tensors<Rule, T>, {table.count, kChunkThreads, kSharedOfSums}, stream, rule,
           known.rules, known.found, rates, sums, table);
    launch(op, step_at_rates<Rule, P>, chunks, stream, rule, known.rules, known.found, rates, table);
    if (known.rules) known.rules += table.count;
  });
}

}  // namespace gradus::cuda
