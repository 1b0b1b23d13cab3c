// PointeeIterator: a forward iterator over a vector of unique_ptr<T> that dereferences to T&.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <vector>

namespace gradus::nn::internal {

template <class T> class PointeeIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = T*;
  using reference = T&;
  using Base = typename std::vector<std::unique_ptr<T>>::const_iterator;

  PointeeIterator() = default;
  explicit PointeeIterator(Base at) : at_(at) {}

  T& operator*() const { return **at_; }
  T* operator->() const { return at_->get(); }
  PointeeIterator& operator++() { return ++at_, *this; }
  PointeeIterator operator++(int) { return PointeeIterator(at_++); }
  bool operator==(const PointeeIterator&) const = default;

 private:
  Base at_;
};
template <class I> PointeeIterator(I) -> PointeeIterator<typename I::value_type::element_type>;

}  // namespace gradus::nn::internal
