// Conversions between f16 and f32 on the host, compiled by g++ for files that nvcc compiles: nvcc has no
// _Float16.
#include <bit>
#include <cstdint>

namespace gradus::internal {

uint16_t float_to_half(float f);
float half_to_float(uint16_t half);

uint16_t float_to_half(float f) { return std::bit_cast<uint16_t>(static_cast<_Float16>(f)); }
float half_to_float(uint16_t half) { return static_cast<float>(std::bit_cast<_Float16>(half)); }

}  // namespace gradus::internal
