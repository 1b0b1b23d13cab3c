// Statuses that an H100 returned for calls of the CUDA runtime (cudart_answers.txt, tab-separated: group,
// source text of the call, answer), to compare the emulated runtime with.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <map>
#include <string>

// The answers of one group by source text, in the order of the calls.
class Record {
 public:
  explicit Record(const std::string& group) {
    std::ifstream file("tools/cuda_emulator/tests/cudart_answers.txt");
    EXPECT_TRUE(file) << "the record is not there";
    for (std::string line; std::getline(file, line);) {
      const size_t first = line.find('\t'), second = line.find('\t', first + 1);
      if (first == std::string::npos || line.substr(0, first) != group) continue;
      answers_[line.substr(first + 1, second - first - 1)].push_back(line.substr(second + 1));
    }
  }
  std::string next(const std::string& asked) {
    auto& list = answers_[asked];
    if (list.empty()) return "(not recorded)";
    std::string answer = list.front();
    list.pop_front();
    return answer;
  }

 private:
  std::map<std::string, std::deque<std::string>> answers_;
};

// Returns the names of a status and of the last error, which is cleared, as in the record.
inline std::string said(cudaError_t status) {
  std::string text = cudaGetErrorName(status);
  if (const cudaError_t last = cudaGetLastError(); last != cudaSuccess)
    text += std::string(" last: ") + cudaGetErrorName(last);
  return text;
}
// Makes a call, and compares its status with the next answer that `record` (a local Record) has for it.
#define ASK(...) EXPECT_EQ(said(__VA_ARGS__), record.next(#__VA_ARGS__)) << #__VA_ARGS__
