// The slot in which an op finds its kernel: gradus/tensor/kernel.h defines it. Headers that declare slots
// need no more than this.
#pragma once

namespace gradus {

template <class Signature>
class KernelSlot;

}  // namespace gradus
