// What ThreadSanitizer is not to report; linked into every program of the tsan configuration.
//
// oneDNN is not instrumented: of the caches it shares between threads the sanitizer sees the memory and the
// locks inside, but not the guards that order them. The layouts that its header copies out of such a cache it
// sees alone when it has forgotten who wrote them.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libdnnl.so\nrace:dnnl::memory::desc::desc\n";
}
