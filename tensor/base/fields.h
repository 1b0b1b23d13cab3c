// Compile-time reflection of aggregates (fields and their names) and of enumerators:
//
//   struct Point { int x, y; };
//   fields(point)              // std::tuple<int&, int&>
//   field_names<Point>()       // {"x", "y"}
//   enumerator_name(color)     // "kRed"
//
// Fields must not be arrays or bit-fields. Enumerators must have values from 0 to 15. As in Boost.PFR, the number
// of fields is the largest number of initializers that compiles, and names are parsed from __PRETTY_FUNCTION__.
#pragma once

#include <array>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace gradus {
namespace internal {

// Converts to a field of any type. The conversion is const, which makes it a worse match than the constructors of
// std::optional and Required and avoids an ambiguity.
struct AnyField {
  template <class T> operator T() const { std::abort(); }
};
template <class O, size_t N = 16> constexpr size_t field_count() {
  constexpr bool fits = []<size_t... I>(std::index_sequence<I...>) {
    return requires { O{(void(I), AnyField())...}; };
  }(std::make_index_sequence<N>());
  if constexpr (fits)
    return N;
  else
    return field_count<O, N - 1>();
}

// Converts to a base class of O, and to nothing else.
template <class O> struct AnyBase {
  template <class B>
    requires(std::is_base_of_v<B, O> && !std::is_same_v<B, O>)
  operator B() const {
    std::abort();
  }
};
template <class O, size_t... I> constexpr bool has_base(std::index_sequence<0, I...>) {
  return requires { O{AnyBase<O>(), (void(I), AnyField())...}; };
}
// Returns field_count if `fields` can bind them, else 0.
template <class O> constexpr size_t bindable_count() {
  if constexpr (std::is_aggregate_v<O>) {
    constexpr size_t n = field_count<O>();
    if constexpr (n >= 1 && n <= 12) return has_base<O>(std::make_index_sequence<n>()) ? 0 : n;
  }
  return 0;
}

// Storage of an O without construction; only the addresses of its fields are used.
template <class O> union Unconstructed {
  constexpr Unconstructed() : unused() {}
  constexpr ~Unconstructed() {}
  char unused;
  O object;
};
template <class O> inline Unconstructed<O> unconstructed;

// Wraps a pointer to a field, because clang 16 does not accept it directly as a template argument.
template <class T> struct Address {
  constexpr Address(const T* p) : of(p) {}
  const T* of;
};

// Returns the last identifier in the spelling of V: "in" for &unconstructed<O>.object.in.
template <auto V> constexpr auto name_in_text() {
  const std::string_view text = __PRETTY_FUNCTION__;
  constexpr auto in_name = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  };
  size_t end = text.size();
  while (!in_name(text[end - 1])) --end;
  size_t begin = end;
  while (in_name(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

}  // namespace internal

// Satisfied by aggregates with 1 to 12 fields and no bases.
template <class O>
concept HasFields = internal::bindable_count<std::remove_const_t<O>>() > 0;

// Returns a tuple of references to o's fields.
template <HasFields O> constexpr auto fields(O& o) {
  using std::tie;
  constexpr size_t n = internal::field_count<std::remove_const_t<O>>();
  // clang-format off
  if constexpr (n == 1) { auto& [a] = o; return tie(a); }
  if constexpr (n == 2) { auto& [a, b] = o; return tie(a, b); }
  if constexpr (n == 3) { auto& [a, b, c] = o; return tie(a, b, c); }
  if constexpr (n == 4) { auto& [a, b, c, d] = o; return tie(a, b, c, d); }
  if constexpr (n == 5) { auto& [a, b, c, d, e] = o; return tie(a, b, c, d, e); }
  if constexpr (n == 6) { auto& [a, b, c, d, e, f] = o; return tie(a, b, c, d, e, f); }
  if constexpr (n == 7) { auto& [a, b, c, d, e, f, g] = o; return tie(a, b, c, d, e, f, g); }
  if constexpr (n == 8) { auto& [a, b, c, d, e, f, g, h] = o; return tie(a, b, c, d, e, f, g, h); }
  if constexpr (n == 9) { auto& [a, b, c, d, e, f, g, h, i] = o; return tie(a, b, c, d, e, f, g, h, i); }
  if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = o; return tie(a, b, c, d, e, f, g, h, i, j); }
  if constexpr (n == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = o; return tie(a, b, c, d, e, f, g, h, i, j, k); }
  if constexpr (n == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = o; return tie(a, b, c, d, e, f, g, h, i, j, k, l); }
  // clang-format on
}

// Returns the names of O's fields as an array, in the order of declaration.
template <HasFields O> constexpr auto field_names() {
  return []<size_t... I>(std::index_sequence<I...>) {
    return std::array<std::string_view, sizeof...(I)>{internal::name_in_text<internal::Address{
        &std::get<I>(fields(internal::unconstructed<O>.object))}>()...};
  }(std::make_index_sequence<internal::field_count<O>()>());
}

// Returns the name of e's enumerator; the digits of a value from 0 to 15 without an enumerator; "?" above 15.
template <class E> constexpr std::string_view enumerator_name(E e) {
  return [e]<size_t... I>(std::index_sequence<I...>) {
    constexpr std::string_view names[] = {internal::name_in_text<E(I)>()...};
    return size_t(e) < sizeof...(I) ? names[size_t(e)] : "?";
  }(std::make_index_sequence<16>());
}

}  // namespace gradus
