#include "gradus/examples/support/summary.h"

#include <nlohmann/json.hpp>

#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/support/ranks.h"
#include "gradus/examples/support/system.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::examples {

nlohmann::ordered_json summary_of(const Training& t) {
  const Sums& test = t.last().test;
  nlohmann::ordered_json history = nlohmann::ordered_json::array(), options;
  for (const EpochResult& e : t.history())
    history.push_back({{"epoch", e.epoch},
                       {"train_loss", e.train.mean_loss()},
                       {"train_accuracy", e.train.accuracy()},
                       {"test_loss", e.test.mean_loss()},
                       {"test_accuracy", e.test.accuracy()},
                       {"test_accuracy_in_5", e.test.accuracy_in_5()},
                       {"seconds", e.seconds}});
  for (const auto& [name, value] : t.run().values) options[name] = value;
  return {
      {"example", t.program()},
      {"dataset", t.loader().dataset().name()},
      {"train_samples", t.loader().dataset().size()},
      {"test_samples", test.seen},
      {"epochs", t.epoch()},
      {"test_accuracy", test.accuracy()},
      {"test_loss", test.mean_loss()},
      {"best_test_accuracy", t.best().test.accuracy()},
      {"images_per_second", t.images_per_second()},
      {"peak_rss_mib", peak_rss_mib()},
      {"device", "cpu"},
      {"threads", num_threads()},
      {"world_size", dist::get_world_size()},
      {"seconds", t.seconds()},
      {"seed", t.run().seed},
      {"history", history},
      {"options", options},
  };
}

void write_summary(const Training& t, const nlohmann::ordered_json& summary) {
  if (!t.run().summary.empty() && is_first_rank()) write_text_file(t.run().summary, summary.dump(2) + "\n");
}

}  // namespace gradus::examples
