#include "mark.h"

#include "gradus/tensor/cuda/kernel.h"

namespace report {
namespace {

__global__ void case_begins() {}

}  // namespace

void mark() { gradus::cuda::launch("report", case_begins, {1, 1}, nullptr); }

}  // namespace report
