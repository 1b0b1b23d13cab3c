// What cuDNN's backend API answers to right and wrong calls, each with its status and message.
//
// A call that loses the device or the process ends it; another process goes on behind that call.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "cudnn_calls.h"

namespace {

using namespace calls;  // NOLINT

int *current, skipped = 0, calls_made = 0;

void answer(const char* asked, const std::function<cudnnStatus_t()>& call) {
  *current = ++calls_made;
  if (calls_made <= skipped) return;
  char message[1200] = "";
  cudnnGetLastErrorString(message, sizeof message);  // empties what was said before
  const cudnnStatus_t s = call();
  message[0] = 0;
  if (s != CUDNN_STATUS_SUCCESS) cudnnGetLastErrorString(message, sizeof message);
  for (char& c : message)
    if (c == '\n' || c == '\t') c = ' ';
  const cudaError_t e = cudaDeviceSynchronize();
  record::line(asked, "%s%s%s%s", cudnnGetErrorString(s),
               e == cudaSuccess ? "" : "; the device: ", e == cudaSuccess ? "" : cudaGetErrorName(e),
               message[0] ? (std::string("; message: ") + message).c_str() : "");
  if (e != cudaSuccess) std::_Exit(4);
}

// With its own stream captured.
void in_a_capture(cudnnHandle_t handle, const char* name, Descriptor plan, Descriptor operands) {
  ask(record::text("%s: in a capture", name).c_str(), [&] {
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudnnSetStream(handle, s);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    const cudnnStatus_t e = cudnnBackendExecute(handle, plan, operands);
    cudaGraph_t graph = nullptr;
    const cudaError_t end = cudaStreamEndCapture(s, &graph);
    size_t nodes = 0;
    if (graph) cudaGraphGetNodes(graph, nullptr, &nodes);
    tell("its capture", record::text("%s, %zu nodes", cudaGetErrorName(end), nodes));
    cudnnSetStream(handle, nullptr);
    return e;
  });
}

int work() {
  cudnnHandle_t handle;
  const cudnnStatus_t s = cudnnCreate(&handle);
  if (s != CUDNN_STATUS_SUCCESS) {
    record::line("cudnnCreate", "%s", cudnnGetErrorString(s));
    return 2;
  }
  ask = answer;
  is_asking = [] { return calls_made > skipped; };
  tell = [](const char* asked, const std::string& answer) {
    if (calls_made > skipped) record::line(asked, "%s", answer.c_str());
  };
  attributes();
  tensors();
  operations_and_graphs(handle);
  executions(handle, [&](const char* name, Descriptor plan, Descriptor operands) {
    in_a_capture(handle, name, plan, operands);
  });
  return 0;
}

}  // namespace

int main() {
  record::header("Answers of cuDNN's backend API", "cuDNN " + std::to_string(cudnnGetVersion()));
  current = static_cast<int*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int tries = 0; tries < 40; ++tries) {
    *current = 0;
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      std::_Exit(work());
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status == 0 || *current <= skipped) return status != 0;
    if (WIFSIGNALED(status))
      record::line("(the process)", "call %d: killed by signal %d", *current, WTERMSIG(status));
    skipped = *current;
  }
}
