// What ThreadSanitizer is not to report; linked into every program of the tsan configuration.
//
// oneDNN is not instrumented: of the caches it shares between threads the sanitizer sees the memory and the locks inside,
// but not the guards that order them.
extern "C" const char* __tsan_default_suppressions() { return "race:libdnnl.so\n"; }
