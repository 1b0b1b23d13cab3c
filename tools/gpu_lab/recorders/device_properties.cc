// Records the properties of device 0: all fields of cudaDeviceProp, all attributes, limits, and cuDNN's
// properties in JSON, from which a machine without a GPU can make plans. Prints a record (recorder.h), and
// writes the JSON to the file that the argument names.
//
// record.sh makes fields.inc and attributes.inc from the toolkit's driver_types.h.
#include <cudnn.h>

#include <vector>

#include "recorder.h"

namespace {

void show(const char* name, const char (&v)[256]) { record::line(name, "%s", v); }
void show(const char* name, const char (&v)[8]) {
  std::string s;
  for (char c : v) s += record::text("%02x", static_cast<unsigned char>(c));
  record::line(name, "%s", s.c_str());
}
void show(const char* name, const cudaUUID_t&) { record::line(name, "(left out)"); }
template <class T> void show(const char* name, const T& v) {
  record::line(name, "%lld", static_cast<long long>(v));
}
template <class T, size_t N> void show(const char* name, const T (&v)[N]) {
  std::string s;
  for (const T& x : v) s += record::text("%s%lld", s.empty() ? "" : " ", static_cast<long long>(x));
  record::line(name, "%s", s.c_str());
}

// Returns cuDNN's JSON for a handle, or for the number of the device.
std::string properties(bool by_handle) {
  cudnnBackendDescriptor_t d;
  cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);
  if (by_handle) {
    cudnnHandle_t handle;
    s = cudnnCreate(&handle);
    record::line("cudnnCreate", "%s", cudnnGetErrorString(s));
    s = cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  } else {
    int32_t id = 0;
    s = cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id);
  }
  record::line("set", "%s", cudnnGetErrorString(s));
  s = cudnnBackendFinalize(d);
  record::line("finalize", "%s", cudnnGetErrorString(s));
  int64_t size = 0;
  s = cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &size,
                               nullptr);
  record::line("get its size", "%s, %lld", cudnnGetErrorString(s), static_cast<long long>(size));
  std::string json(size_t(size > 0 ? size : 0), '\0');
  s = cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, size, &size,
                               json.data());
  record::line("get", "%s, %lld", cudnnGetErrorString(s), static_cast<long long>(size));
  return json.c_str();
}

}  // namespace

int main(int, char** arguments) {
  record::header("Properties of the device", "cuDNN " + std::to_string(cudnnGetVersion()));
  int driver = 0, runtime = 0, devices = 0;
  record::group = "versions";
  MUST(cudaDriverGetVersion(&driver));
  MUST(cudaRuntimeGetVersion(&runtime));
  MUST(cudaGetDeviceCount(&devices));
  record::line("driver, runtime, devices", "%d %d %d", driver, runtime, devices);
  size_t unused = 0, total = 0;
  MUST(cudaMemGetInfo(&unused, &total));
  record::line("cudaMemGetInfo", "%zu of %zu unused", unused, total);
  for (int limit = 0; limit <= 6; ++limit) {
    size_t value = 0;
    const cudaError_t e = cudaDeviceGetLimit(&value, static_cast<cudaLimit>(limit));
    record::line(record::text("cudaDeviceGetLimit %d", limit).c_str(), "%s %zu", cudaGetErrorName(e), value);
    cudaGetLastError();
  }
  int least = 0, greatest = 0;
  MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  record::line("cudaDeviceGetStreamPriorityRange", "%d %d", least, greatest);

  record::group = "cudaDeviceProp";
  cudaDeviceProp p;
  MUST(cudaGetDeviceProperties(&p, 0));
#define FIELD(name) show(#name, p.name);
#include "fields.inc"

  record::group = "cudaDeviceGetAttribute";
  const struct {
    const char* name;
    int id;
  } attributes[] = {
#include "attributes.inc"
  };
  for (const auto& a : attributes) {
    int value = 0;
    const cudaError_t e = cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(a.id), 0);
    if (e == cudaSuccess)
      record::line(a.name, "%d", value);
    else
      record::line(a.name, "%s", cudaGetErrorName(e));
    cudaGetLastError();
  }

  record::group = "cuDNN, from the device's number";
  const std::string by_number = properties(false);
  record::group = "cuDNN, from a handle";
  const std::string by_handle = properties(true);
  record::line("both are the same text", "%s", by_number == by_handle ? "yes" : "no");
  std::FILE* file = std::fopen(arguments[1], "w");
  std::fputs(by_handle.c_str(), file);
  std::fclose(file);
  record::group = "JSON";
  record::line("cuDNN's", "%s", by_handle.c_str());
}
