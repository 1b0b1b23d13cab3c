// What ThreadSanitizer is not to report; linked into every program of the tsan configuration.
//
// oneDNN is not compiled for ThreadSanitizer, which sees the memory and the locks of the caches that oneDNN shares
// between threads, but not what orders the accesses, and so reports races that are none. The first pattern hides
// reports with a frame of the library. The second is for copies out of such a cache by oneDNN's header, which is
// compiled into Gradus: when the sanitizer no longer has the stack of the write, only the frame of the copy is left.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libdnnl.so\nrace:dnnl::memory::desc::desc\n";
}
