// Required<T, "name">: a member of an options aggregate that must be given. A missing one does not compile:
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
// What may initialize a T: for an integer any integer but bool, for a float any number, otherwise
// what converts to T.
template <class U, class T>
concept Gives =
    std::convertible_to<U, T> && (std::same_as<T, bool> || !std::same_as<std::remove_cvref_t<U>, bool>)&&(
                                     !std::integral<T> || std::integral<std::remove_cvref_t<U>>);
}  // namespace internal

// A member's name, for the compiler's message.
template <size_t N> struct OptionName {
  constexpr OptionName(const char (&text)[N]) { std::copy_n(text, N, name); }
  char name[N] = {};
};

template <class T, OptionName Name = ""> class Required {
 public:
  // Not `= delete`: the compiler would then say that nothing matches, and not which option is missing. Not
  // constexpr: clang 19 would look into it where code only asks whether it is there, as std::tuple does.
  Required() {
    static_assert(sizeof(T) == 0, "an option that must be given is missing: the one that Required names");
  }

  template <class U>
    requires(internal::Gives<U, T> && !std::same_as<std::remove_cvref_t<U>, Required>)
  constexpr Required(U&& value) : value_(static_cast<T>(std::forward<U>(value))) {}

  // Builds T from several numbers in braces: {.kernel = {3, 5}}. Does not narrow.
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
