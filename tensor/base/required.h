// Required<T, "name">: a mandatory member of an options aggregate. Omitting it is a compile error:
//
//   struct LinearOptions {
//     Required<int64_t, "in"> in;
//     Required<int64_t, "out"> out;
//     bool bias = true;
//   };
//   Linear fc{this, "fc", {.in = 128}};          // error: an option that must be given is missing ... "out"
//   Linear fc{this, "fc", {.in = 12.8, ...}};    // error: a floating-point number is no integer
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace gradus {

namespace internal {
// Satisfied if a U may initialize a T: any integer except bool for an integer T (a value out of
// T's range wraps), any integer for a bool T, any number except bool for a float T, else any U except bool
// that converts to T.
template <class U, class T>
concept CanInitialize =
    std::convertible_to<U, T> && (std::same_as<T, bool> || !std::same_as<std::remove_cvref_t<U>, bool>)&&(
                                     !std::integral<T> || std::integral<std::remove_cvref_t<U>>);
}  // namespace internal

// The name of a member, shown in the compile error.
template <size_t N> struct OptionName {
  constexpr OptionName(const char (&text)[N]) { std::copy_n(text, N, name); }
  char name[N] = {};
};

template <class T, OptionName Name = ""> class Required {
 public:
  // Not `= delete`: the compile error would not name the option. Not constexpr: clang 19 would instantiate the
  // body where code only tests for the constructor, as std::tuple does.
  Required() {
    static_assert(sizeof(T) == 0, "an option that must be given is missing: the one that Required names");
  }

  template <class U>
    requires(internal::CanInitialize<U, T> && !std::same_as<std::remove_cvref_t<U>, Required>)
  constexpr Required(U&& value) : value_(static_cast<T>(std::forward<U>(value))) {}

  // Builds T from several values in braces, without narrowing: {.kernel = {3, 5}}.
  template <class A, class B, class... More>
    requires requires(A a, B b, More... more) {
      T{a, b, more...};
    }
  constexpr Required(A a, B b, More... more) : value_{a, b, more...} {}

  constexpr operator const T&() const { return value_; }
  constexpr const T& operator*() const { return value_; }
  constexpr const T* operator->() const { return &value_; }

 private:
  T value_;
};

}  // namespace gradus
