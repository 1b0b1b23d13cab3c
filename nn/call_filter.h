// CallFilter: sees the calls of modules on a thread. It may change what they return, or return an earlier
// result instead of running them. A pipeline cuts models with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/tensor/base/fields.h"
#include "gradus/tensor/tensor.h"

namespace gradus::nn {
class Module;
}

namespace gradus::nn::internal {

class CallFilter {
 public:
  virtual ~CallFilter() = default;
  // A call begins. Returns a result of an earlier call of this module, of the same type, to return a copy of
  // it; null: the module runs.
  virtual const void* enter(const Module& module) = 0;
  // A call ends. `tensors` are those of the result, and may be replaced; copy() makes a copy of the result.
  virtual void leave(const Module& module, std::span<Tensor* const> tensors,
                     const std::function<std::shared_ptr<const void>()>& copy) = 0;
};

// The thread's filter, or null.
inline constinit thread_local CallFilter* call_filter = nullptr;

// Makes `filter` (null: none) the thread's filter for a scope.
class CallFilterScope {
 public:
  explicit CallFilterScope(CallFilter* filter) : outer_(std::exchange(call_filter, filter)) {}
  ~CallFilterScope() { call_filter = outer_; }
  CallFilterScope(const CallFilterScope&) = delete;
  CallFilterScope& operator=(const CallFilterScope&) = delete;

 private:
  CallFilter* const outer_;
};

template <class R> constexpr bool is_vector = false;
template <class T> constexpr bool is_vector<std::vector<T>> = true;
template <class R>
concept TupleLike = requires { std::tuple_size<R>::value; };

// Whether R is a tensor, or a vector, pair, tuple or struct of such.
template <class R> constexpr bool holds_tensors() {
  const auto all = []<class... T>(std::type_identity<std::tuple<T...>>) {
    return (holds_tensors<std::remove_cvref_t<T>>() && ...);
  };
  if constexpr (std::is_same_v<R, Tensor>)
    return true;
  else if constexpr (is_vector<R>)
    return holds_tensors<typename R::value_type>();
  else if constexpr (TupleLike<R>)
    return all(std::type_identity<decltype(std::apply([](auto... e) { return std::tuple(e...); },
                                                      std::declval<R>()))>());
  else if constexpr (HasFields<R>)
    return all(std::type_identity<decltype(fields(std::declval<R&>()))>());
  else
    return false;
}

template <class R, class F> void each_tensor(R& result, const F& f) {
  if constexpr (std::is_same_v<R, Tensor>)
    f(result);
  else if constexpr (is_vector<R>)
    for (auto& element : result) each_tensor(element, f);
  else if constexpr (TupleLike<R>)
    std::apply([&](auto&... e) { (each_tensor(e, f), ...); }, result);
  else
    std::apply([&](auto&... e) { (each_tensor(e, f), ...); }, fields(result));
}

// Calls f(), or returns what the filter gives.
template <class R, class F> R filtered(CallFilter& filter, const Module& module, F& f) {
  const auto* earlier = static_cast<const R*>(filter.enter(module));
  R result = earlier ? *earlier : f();
  std::vector<Tensor*> tensors;
  each_tensor(result, [&](Tensor& x) { tensors.push_back(&x); });
  filter.leave(module, tensors, [&] { return std::make_shared<const R>(result); });
  return result;
}

}  // namespace gradus::nn::internal
