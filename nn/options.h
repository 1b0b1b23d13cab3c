// ModuleWith: base of modules that are constructed from an options struct, which to_string(module) prints.
// Options are aggregates: fields(o) returns a tuple of their fields and field_names<O>() the names
// (compile-time reflection, base/fields.h). Required<T, name> is a field without a default, which every
// construction must initialize.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "gradus/nn/module.h"
#include "gradus/tensor/base/fields.h"

namespace gradus::nn {

// A number of input features or channels that the first call determines, as in torch.nn.LazyLinear:
// nn::Linear fc({.in = nn::kLazy, .out = 10}).
inline constexpr int64_t kLazy = std::numeric_limits<int64_t>::min();

// Returns "in=20, out=30, bias=false": all options up to the last Required one, and further options that
// differ from their defaults. Numbers, sizes and shapes print as in errors (3x3, [8,4]), lists as shapes,
// enumerators by name, and nullopt as "none". Returns "" unless HasFields<O>.
template <class O> std::string options_text(const O& options);

namespace internal {

// The type that {} converts to in ModuleWith's overload for {}.
enum class NoOptions : uint8_t {};

template <class T> constexpr bool is_required = false;
template <class T, OptionName name> constexpr bool is_required<Required<T, name>> = true;

// Returns the text of one field.
template <class T> std::string value_text(const T& v) {
  if constexpr (is_required<T>) {
    return value_text(*v);
  } else if constexpr (std::same_as<T, int64_t>) {
    return v == kLazy ? "lazy" : concat(v);
  } else if constexpr (std::same_as<T, bool>) {
    return v ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(enumerator_name(v));
  } else if constexpr (requires { v.has_value(); }) {
    return v ? value_text(*v) : "none";
  } else if constexpr (requires(std::ostream& out) { out << v; }) {
    return concat(v);
  } else if constexpr (std::convertible_to<T, Dims>) {
    return value_text<Dims>(v);
  } else if constexpr (requires { v.begin(); }) {
    std::string text;
    for (const auto& element : v) text += (text.empty() ? "" : ",") + value_text(element);
    return "[" + text + "]";
  } else {
    return "{" + options_text(v) + "}";
  }
}

// Values without operator== count as equal, so they are not printed.
template <class T> bool differ(const T& a, const T& b) {
  if constexpr (std::equality_comparable<T>)
    return !(a == b);
  else
    return false;
}

// Returns the number of initializers that an options struct with fields T... needs: up to the last Required
// field.
template <class... T> constexpr int needed(const std::tuple<const T&...>&) {
  int i = 0, n = 0;
  ((++i, n = is_required<T> ? i : n), ...);
  return n;
}

}  // namespace internal

template <class O> std::string options_text(const O& options) {
  std::string text;
  if constexpr (HasFields<O>) {
    const auto values = fields(options);
    constexpr auto names = field_names<O>();
    constexpr int needed = internal::needed(values);  // signed: g++ 14 warns of i < 0 otherwise
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
    // Defaults after the last Required field, for comparison.
    const O defaults = [&]<size_t... I>(std::index_sequence<I...>) {
      return O{std::get<I>(values)...};
    }(std::make_index_sequence<needed>());
#pragma GCC diagnostic pop
    const auto add = [&](int i, const auto& value, const auto& default_value) {
      if (i < needed || internal::differ(value, default_value))
        text += concat(text.empty() ? "" : ", ", names[size_t(i)], '=', internal::value_text(value));
    };
    [&]<size_t... I>(std::index_sequence<I...>) {
      (add(int(I), std::get<I>(values), std::get<I>(fields(defaults))), ...);
    }(std::make_index_sequence<names.size()>());
  }
  return text;
}

// A module with options. Constructed as a child by {parent, name, options}, as a root by {options}. The
// options may be omitted if none is Required.
template <class O, class Base = Module> class ModuleWith : public Base {
 public:
  using Options = O;
  ModuleWith(Module* parent, std::string name, Options options = {});
  explicit ModuleWith(Options options = {});
  // Overload for {}, which would be ambiguous between Options and the copy constructor. A template, so that
  // explicit instantiation of the class does not instantiate it.
  template <int = 0> explicit ModuleWith(internal::NoOptions) : ModuleWith() {}
  const Options& options() const { return options_; }
  std::string extra_repr() const override;

 protected:
  // Replaces kLazy by a size.
  Options& mutable_options() { return options_; }

 private:
  Options options_;
};

// Defined outside of the class, so that `extern template` suppresses their instantiation: the library
// instantiates the constructors and the printing of its layers' options once.
template <class O, class Base>
ModuleWith<O, Base>::ModuleWith(Module* parent, std::string name, Options options)
    : Base(parent, std::move(name)), options_(std::move(options)) {}
template <class O, class Base>
ModuleWith<O, Base>::ModuleWith(Options options) : options_(std::move(options)) {}
template <class O, class Base> std::string ModuleWith<O, Base>::extra_repr() const {
  return options_text(options_);
}

}  // namespace gradus::nn
