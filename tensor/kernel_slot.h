// Forward declaration of KernelSlot (gradus/tensor/kernel.h), for headers that declare slots.
#pragma once

namespace gradus {

template <class Signature> class KernelSlot;

}  // namespace gradus
