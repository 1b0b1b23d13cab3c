// Built as libcuda.so.1 for old_driver_test: a driver that reports CUDA 12.8.
extern "C" int cuDriverGetVersion(int* version) { return *version = 12080, 0; }
