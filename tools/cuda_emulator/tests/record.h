// Answers of an H100 (cudart_answers.txt).
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <map>
#include <string>

// The answers of one group, by what was asked.
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

inline std::string said(cudaError_t status) {
  std::string text = cudaGetErrorName(status);
  if (const cudaError_t last = cudaGetLastError(); last != cudaSuccess)
    text += std::string(" last: ") + cudaGetErrorName(last);
  return text;
}
#define ASK(...) EXPECT_EQ(said(__VA_ARGS__), record.next(#__VA_ARGS__)) << #__VA_ARGS__
