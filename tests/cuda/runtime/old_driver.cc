// A driver for CUDA 12.8, as far as its version.
extern "C" int cuDriverGetVersion(int* version) { return *version = 12080, 0; }
