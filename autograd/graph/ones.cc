// mark_ones and is_known_ones: a mark with the storage's version in Storage::cast.
#include "gradus/autograd/graph/ones.h"

namespace gradus::autograd {
namespace {

// Stored in Storage::cast, which autocast and GradScaler use for their own data.
struct OnesMark final : Counted {
  explicit OnesMark(uint32_t filled_version) : version(filled_version) {}
  const uint32_t version;  // of the storage when it was filled with ones
};

}  // namespace

void mark_ones(const Tensor& x) { x.storage()->cast = make_ref<OnesMark>(x.storage()->version()); }

bool is_known_ones(const Tensor& x) {
  const auto* mark = dynamic_cast<const OnesMark*>(x.storage()->cast.get());
  return mark && mark->version == x.storage()->version();
}

}  // namespace gradus::autograd
