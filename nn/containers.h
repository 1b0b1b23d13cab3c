// ModuleList, ModuleDict, ParameterList and ParameterDict: children or parameters in a list, or under names. The containers
// have no forward: the module that owns a container calls the children.
//
//   nn::ModuleList<Block> blocks{this, "blocks"};           // "blocks.0", "blocks.1", ...
//   for (int i = 0; i < depth; ++i) blocks.add(options);    // a Block(Module*, std::string name, options)
//   for (Block& block : blocks) h = block(h);
//
//   nn::ModuleDict<> heads{this, "heads"};
//   heads.add<nn::Linear>("classes", {.in = 64, .out = 10});
//   heads["classes"](h);
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/nn/layer.h"

namespace gradus::nn::internal {

// A forward iterator over a vector of unique_ptr<T> that dereferences to T&.
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

namespace gradus::nn {

// Base of ModuleList, ModuleDict and Sequential. Owns its children, whose types are M or derived from M.
// References to children stay valid when others are added.
template <class M, class Base = Module> class Container : public Base {
 public:
  Container();
  Container(Module* parent, std::string name);
  ~Container() override;

  size_t size() const { return modules_.size(); }
  auto begin() const { return internal::PointeeIterator(modules_.begin()); }  // over M&
  auto end() const { return internal::PointeeIterator(modules_.end()); }

 protected:
  template <class T> T& append(std::unique_ptr<T> module) {
    T& m = *module;
    modules_.push_back(std::move(module));
    return m;
  }

  std::vector<std::unique_ptr<M>> modules_;
};

// Defined outside of the class, so that `extern template` suppresses their instantiation.
template <class M, class Base> Container<M, Base>::Container() = default;
template <class M, class Base>
Container<M, Base>::Container(Module* parent, std::string name) : Base(parent, std::move(name)) {}
template <class M, class Base> Container<M, Base>::~Container() = default;

extern template class Container<Layer>;
extern template class Container<Layer, Layer>;

// Base of ModuleList and Sequential, whose children are named "0", "1", ...
template <class M, class Base = Module> class IndexedContainer : public Container<M, Base> {
 public:
  using Container<M, Base>::Container;

  // Appends a module of type T (M by default) made from its options or from args. Returns the module.
  template <class T = M>
    requires requires { typename T::Options; }
  T& add(typename T::Options options = {}) {
    return this->append(std::make_unique<T>(this, std::to_string(this->size()), std::move(options)));
  }
  template <class T = M, class... Args>
    requires(!requires { typename T::Options; } && !std::is_abstract_v<T>)
  T& add(Args&&... args) {
    internal::check_child<T, Args...>();
    return this->append(std::make_unique<T>(this, std::to_string(this->size()), std::forward<Args>(args)...));
  }
};

// A list of child modules.
template <class M = Layer> class ModuleList final : public IndexedContainer<M> {
 public:
  using IndexedContainer<M>::IndexedContainer;

  M& operator[](size_t i) const {  // Errors: IndexError
    if (i >= this->size()) throw IndexError("ModuleList", "module ", i, " of ", this->size());
    return *this->modules_[i];
  }
  std::string type_name() const override { return "ModuleList"; }
};

// Child modules under names, in the order of insertion.
template <class M = Layer> class ModuleDict final : public Container<M> {
 public:
  using Container<M>::Container;

  // Adds a module of type T (M by default) made from its options or from args. Returns the module.
  // Errors: ValueError for a name that is empty, dotted or taken.
  template <class T = M>
    requires requires { typename T::Options; }
  T& add(const std::string& key, typename T::Options options = {}) {
    return this->append(std::make_unique<T>(this, key, std::move(options)));
  }
  template <class T = M, class... Args>
    requires(!requires { typename T::Options; })
  T& add(const std::string& key, Args&&... args) {
    internal::check_child<T, Args...>();
    return this->append(std::make_unique<T>(this, key, std::forward<Args>(args)...));
  }

  bool contains(const std::string& key) const { return get(key); }
  M& operator[](const std::string& key) const {  // Errors: IndexError
    if (M* m = get(key)) return *m;
    throw IndexError("ModuleDict", "no module is named '", key, "'");
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const auto& m : this->modules_) names.push_back(m->name());
    return names;
  }
  std::string type_name() const override { return "ModuleDict"; }

 private:
  M* get(const std::string& key) const {
    for (const auto& m : this->modules_)
      if (m->name() == key) return m.get();
    return nullptr;
  }
};

// A list of parameters, named "0", "1", ...
class ParameterList final : public Module {
 public:
  ParameterList();
  ParameterList(Module* parent, std::string name);
  ~ParameterList() override;

  Parameter& add(Tensor value);
  size_t size() const { return items_.size(); }
  auto begin() const { return internal::PointeeIterator(items_.begin()); }  // over Parameter&
  auto end() const { return internal::PointeeIterator(items_.end()); }
  Parameter& operator[](size_t i) const;  // Errors: IndexError

 private:
  std::vector<std::unique_ptr<Parameter>> items_;
};

// Parameters under names, in the order of insertion.
class ParameterDict final : public Module {
 public:
  ParameterDict();
  ParameterDict(Module* parent, std::string name);
  ~ParameterDict() override;

  // Errors: ValueError for a key that is empty, dotted or taken.
  Parameter& add(const std::string& key, Tensor value);
  size_t size() const { return items_.size(); }
  auto begin() const { return internal::PointeeIterator(items_.begin()); }  // over Parameter&
  auto end() const { return internal::PointeeIterator(items_.end()); }
  bool contains(const std::string& key) const { return get(key); }
  Parameter& operator[](const std::string& key) const;  // Errors: IndexError
  const std::vector<std::string>& keys() const { return keys_; }

 private:
  Parameter* get(const std::string& key) const;
  std::vector<std::string> keys_;
  std::vector<std::unique_ptr<Parameter>> items_;
};

}  // namespace gradus::nn
