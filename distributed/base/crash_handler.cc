// A crash handler of async-signal-safe calls: backtrace(3) with its library loaded before, and _dl_find_object(3).
// All text goes to a static buffer and from there to the error file, as JSON in torchrun's format.
#include "gradus/distributed/base/crash_handler.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>

namespace gradus::dist::internal {
namespace {

#if defined(__has_feature)
#define GRADUS_HAS_FEATURE(feature) __has_feature(feature)
#else
#define GRADUS_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    GRADUS_HAS_FEATURE(address_sanitizer) || GRADUS_HAS_FEATURE(thread_sanitizer)
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kMaxFrames = 64;
constexpr unsigned kMaxSeconds = 2;  // of the handler

std::atomic<pid_t> rank_process{0};  // 0: no handler. Forked children are no ranks
std::atomic<pid_t> crashed_thread{0};
char error_file[PATH_MAX], program[PATH_MAX];

// Text in a buffer; what does not fit is dropped.
class Text {
 public:
  Text(char* buffer, size_t capacity) : buffer_(buffer), capacity_(capacity) {}

  void add(std::string_view text) {
    for (const char c : text) add_byte(c);
  }
  // Escapes nothing: bytes that JSON would escape become '?'.
  void add_for_json(std::string_view text) {
    for (const char c : text)
      add_byte(c == '"' || c == '\\' || uint8_t(c) < ' ' || uint8_t(c) > '~' ? '?' : c);
  }
  void add_number(uint64_t number, unsigned base) {
    char digits[24];
    int n = 0;
    do digits[n++] = "0123456789abcdef"[number % base];
    while (number /= base);
    while (n > 0) add_byte(digits[--n]);
  }
  std::string_view view() const { return {buffer_, size_}; }

 private:
  void add_byte(char c) {
    if (size_ < capacity_) buffer_[size_++] = c;
  }

  char* const buffer_;
  const size_t capacity_;
  size_t size_ = 0;
};

// Adds the frames, each followed by `newline`. `crash`: the address of the instruction at fault, where the list
// begins; null: the frames of the callers of add_frames's caller.
void add_frames(Text& text, const void* crash, std::string_view newline) {
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  int first = 0;
  while (first < count && frames[first] != crash) ++first;
  if (first == count) first = crash ? 0 : 2;
  for (int i = first; i < count; ++i) {
    // Except at the instruction at fault, a frame has the address after the call.
    const auto address = uintptr_t(frames[i]) - (frames[i] == crash ? 0 : 1);
    text.add("#");
    text.add_number(uint64_t(i - first), 10);
    text.add(" ");
    dl_find_object object;
    const bool found = _dl_find_object(reinterpret_cast<void*>(address), &object) == 0;
    const char* const name = found ? object.dlfo_link_map->l_name : "?";
    text.add_for_json(*name ? name : program);
    text.add("+0x");
    text.add_number(found ? address - object.dlfo_link_map->l_addr : address, 16);
    text.add(newline);
  }
}

const void* instruction_of(const void* context) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(machine.pc);
#else
  (void)machine;
  return nullptr;
#endif
}

void write_record(int signal, const siginfo_t* info, const void* context) {
  const int file = open(error_file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0 || status.st_size != 0) return;  // the first error counts
  static char buffer[32 << 10];
  Text text(buffer, sizeof buffer - 64);
  text.add(R"({"message": {"message": "signal )");
  text.add_number(uint64_t(signal), 10);
  text.add(" (SIG");
  const char* const name = sigabbrev_np(signal);
  text.add(name ? name : "?");
  text.add(")");
  if (signal != SIGABRT && info->si_code > 0) {  // not sent by a process
    text.add(" at address 0x");
    text.add_number(uintptr_t(info->si_addr), 16);
  }
  text.add(R"(", "extraInfo": {"timestamp": ")");
  text.add_number(uint64_t(time(nullptr)), 10);
  text.add(R"(", "py_callstack": ")");
  add_frames(text, instruction_of(context), "\\n");
  Text whole(buffer, sizeof buffer);
  whole.add(text.view());
  whole.add("\"}}}");
  for (std::string_view left = whole.view(); !left.empty();) {
    const ssize_t n = write(file, left.data(), left.size());
    if (n <= 0) return;
    left.remove_prefix(size_t(n));
  }
}

void on_crash(int signal, siginfo_t* info, void* context) {
  if (getpid() == rank_process) {
    pid_t expected = 0;
    if (crashed_thread.compare_exchange_strong(expected, gettid())) {
      // Ends a handler that hangs, such as on the lock of a damaged heap.
      struct sigaction by_default = {};
      by_default.sa_handler = SIG_DFL;
      sigaction(SIGALRM, &by_default, nullptr);
      alarm(kMaxSeconds);
      write_record(signal, info, context);
    } else if (expected != gettid()) {
      for (;;) pause();  // another thread's crash ends the process
    }
  }
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  sigaction(signal, &by_default, nullptr);
  raise(signal);  // takes effect when the handler returns
}

// Lets a handler run after the calling thread's stack has overflowed.
void set_signal_stack() {
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) != 0 || !(stack.ss_flags & SS_DISABLE)) return;
  static char memory[64 << 10];
  stack = {};
  stack.ss_sp = memory;
  stack.ss_size = sizeof memory;
  sigaltstack(&stack, nullptr);
}

void install() {
  const char* const path = std::getenv("GRADUS_ERROR_FILE");
  if (kHasSanitizer || !path || !*path || std::strlen(path) >= sizeof error_file) return;
  std::strcpy(error_file, path);
  const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  program[std::max<ssize_t>(n, 0)] = '\0';
  void* frame;
  backtrace(&frame, 1);  // loads the library of the unwinder
  set_signal_stack();
  rank_process = getpid();
  for (const int signal : kSignals) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) ||
        action.sa_handler != SIG_DFL)
      continue;
    action = {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

void install_crash_handler() {
  static std::once_flag once;
  std::call_once(once, install);
}

std::string native_backtrace() {
  if (getpid() != rank_process) return "";
  std::string buffer(32 << 10, '\0');
  Text text(buffer.data(), buffer.size());
  add_frames(text, nullptr, "\n");
  return std::string(text.view());
}

}  // namespace gradus::dist::internal
