// Runs ranks as threads and collects the error of each.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist {

// Runs body() on every rank; returns what each threw ("" for nothing), in rank order. All errors must be
// Gradus' own.
template <class Body>
std::vector<std::string> errors_of(int world, Body&& body,
                                   RunRanksOptions options = {.timeout = Milliseconds(20'000)}) {
  std::vector<std::string> errors(world);
  try {
    run_ranks(
        world,
        [&] {
          try {
            body();
          } catch (const Error& error) {
            errors[get_rank()] = error.what();
            throw;
          }
        },
        options);
  } catch (const Error&) {
  }
  return errors;
}

}  // namespace gradus::dist
