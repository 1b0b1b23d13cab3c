// Declares KernelSlot, the slot in which an op finds its kernel, for headers that declare slots.
// gradus/tensor/kernel.h defines it.
#pragma once

namespace gradus {

template <class Signature> class KernelSlot;

}  // namespace gradus
