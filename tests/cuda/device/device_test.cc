// Options, timing and the result lines of kernels_on_device (device_test.h).
#include "device_test.h"

namespace device_test {

Options& options() {
  static Options o;
  return o;
}
double elapsed() {
  static const auto begin = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::atomic<int> Group::passed = 0, Group::failed = 0, Group::left_out = 0;

// With --small the templates are tested for f32, bf16 and i64 alone, except copies, whose kernels differ by
// the size of elements.
static bool is_of_further_type(const std::string& name) {
  if (!options().small || name.starts_with("copy ") || name.starts_with("fill ")) return false;
  for (const char* type : {" f64", " f16", " i32", " i16", " i8", " u8"})
    if (name.ends_with(type)) return true;
  return false;
}

Group::Group(std::string name) : name_(std::move(name)), runs_(true), begin_(elapsed()) {
  if (name_.find(options().only) == std::string::npos || is_of_further_type(name_)) runs_ = false;
  if (runs_ && begin_ > options().seconds) runs_ = false, ++left_out;
}
Group::~Group() {
  if (!runs_) return;
  wrong_ ? ++failed : ++passed;
  std::printf("%-4s  %-34s %7lld checks, %lld wrong, %.2f s%s%s\n", wrong_ ? "FAIL" : "ok", name_.c_str(),
              static_cast<long long>(checks_), static_cast<long long>(wrong_), elapsed() - begin_,
              wrong_ ? ": " : "", first_.c_str());
  std::fflush(stdout);
}
void Group::check(bool right, const char* format, ...) {
  ++checks_;
  if (right) return;
  if (wrong_++ != 0) return;
  char text[500];
  va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  first_ = text;
}

}  // namespace device_test
