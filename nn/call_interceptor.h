// CallInterceptor: an interceptor of module calls on one thread: all calls, nested ones too, whose results
// consist of tensors (contains_tensors). It may replace the tensors of a result, or return an earlier result
// instead of running the module. Pipeline parallelism uses one to split a model into stages.
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

class CallInterceptor {
 public:
  virtual ~CallInterceptor() = default;
  // Called before a call. Returns a pointer to an earlier result of this module (of the call's result type),
  // which the call then copies and returns; null: the module runs.
  virtual const void* before_call(const Module& module) = 0;
  // Called after a call that has not thrown, also after one that before_call answered, with pointers to the
  // tensors of the result, which the interceptor may replace. copy() returns a copy of the result.
  virtual void after_call(const Module& module, std::span<Tensor* const> tensors,
                          const std::function<std::shared_ptr<const void>()>& copy) = 0;
};

// The calling thread's interceptor; null if there is none.
inline constinit thread_local CallInterceptor* call_interceptor = nullptr;

// Sets the thread's interceptor (null: none), which is not owned, for a scope on this thread.
class CallInterceptorScope {
 public:
  explicit CallInterceptorScope(CallInterceptor* interceptor)
      : outer_(std::exchange(call_interceptor, interceptor)) {}
  ~CallInterceptorScope() { call_interceptor = outer_; }
  CallInterceptorScope(const CallInterceptorScope&) = delete;
  CallInterceptorScope& operator=(const CallInterceptorScope&) = delete;

 private:
  CallInterceptor* const outer_;
};

template <class R> constexpr bool is_vector = false;
template <class T> constexpr bool is_vector<std::vector<T>> = true;
template <class R>
concept TupleLike = requires { std::tuple_size<R>::value; };

// Returns whether R is Tensor, or recursively a vector, pair, tuple or struct of such types.
template <class R> constexpr bool contains_tensors() {
  const auto all = []<class... T>(std::type_identity<std::tuple<T...>>) {
    return (contains_tensors<std::remove_cvref_t<T>>() && ...);
  };
  if constexpr (std::is_same_v<R, Tensor>)
    return true;
  else if constexpr (is_vector<R>)
    return contains_tensors<typename R::value_type>();
  else if constexpr (TupleLike<R>)
    return all(std::type_identity<decltype(std::apply([](auto... e) { return std::tuple(e...); },
                                                      std::declval<R>()))>());
  else if constexpr (HasFields<R>)
    return all(std::type_identity<decltype(fields(std::declval<R&>()))>());
  else
    return false;
}

// Calls f(tensor) for each Tensor in `result`, in the order of elements and fields.
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

// Returns f(), or the earlier result from before_call, with the tensors that after_call has replaced.
template <class R, class F> R intercepted(CallInterceptor& interceptor, const Module& module, F& f) {
  const auto* earlier = static_cast<const R*>(interceptor.before_call(module));
  R result = earlier ? *earlier : f();
  std::vector<Tensor*> tensors;
  each_tensor(result, [&](Tensor& x) { tensors.push_back(&x); });
  interceptor.after_call(module, tensors, [&] { return std::make_shared<const R>(result); });
  return result;
}

}  // namespace gradus::nn::internal
