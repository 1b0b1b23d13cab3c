// Intrusive reference counting: Counted (base class) and Ref<T> (smart pointer). The counts are atomic. A Ref
// itself is like a std::shared_ptr: two threads must not use one Ref object at the same time if one of them
// changes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace gradus {

// Base class of reference-counted objects. The count starts at 0; the first Ref makes it 1. Releasing the last
// reference calls dispose(), which by default deletes the object, so objects must be created with `new`. A class
// overrides dispose() to act before its destructor runs, or to free objects in another way.
class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    // No shortcut for a sole owner: a concurrent try_retain must see the count reach zero.
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) const_cast<Counted*>(this)->dispose();
  }
  // Takes a reference and returns true, or returns false if the count is already zero. For a list of raw pointers
  // from which objects remove themselves in dispose() or in the destructor. The caller must have locked the list's
  // mutex, so that the object still exists during the call.
  bool try_retain() const {
    uint32_t n = count_.load(std::memory_order_relaxed);
    while (n != 0)
      if (count_.compare_exchange_weak(n, n + 1, std::memory_order_acq_rel)) return true;
    return false;
  }
  // Returns the number of references at this moment; other threads may change it at any time.
  uint32_t use_count() const { return count_.load(std::memory_order_acquire); }

 protected:
  virtual ~Counted() = default;
  // Called once, by the thread that releases the last reference.
  virtual void dispose() { delete this; }

 private:
  mutable std::atomic<uint32_t> count_{0};
};

// A smart pointer to a Counted object; null by default.
template <class T> class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  // Adds a reference to *p. `p` may be null.
  explicit Ref(T* p) : p_(p) {
    if (p_) p_->retain();
  }
  Ref(const Ref& o) : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  // Converts by static_cast<T*>. A conversion to a derived class is not checked: the object must be a T.
  template <class U> Ref(const Ref<U>& o) : Ref(static_cast<T*>(o.get())) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) p_->release();
  }

  // Takes ownership of a reference that is already counted, for example by try_retain(); does not add one.
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const Ref& o) const { return p_ == o.p_; }

 private:
  T* p_ = nullptr;
};

// Returns the first reference to a new T.
template <class T, class... Args> Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace gradus
