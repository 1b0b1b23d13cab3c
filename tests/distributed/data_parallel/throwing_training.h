// A small training on several ranks in which one rank throws, at any place of a step. A seed makes up the
// case. The checks say how the ranks must end.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::dist {

struct ThrowingTraining {
  enum Wrapper { kWhole, kSeparate, kCallback, kWrappers };
  enum Place { kLoading, kForward, kLoss, kBeforeBackward, kBackward, kGradCallback, kStep, kPlaces };
  enum Thrown { kShapeError, kRuntimeError, kOther, kThrowns };
  // Not at all; around the step, or where the model is gone, and thrown again; around the step, to go on with
  // the next batch; around everything, to return.
  enum Caught { kNot, kInStep, kOutside, kGoesOn, kReturns, kCaughts };

  int world = 2;
  Wrapper wrapper = kWhole;
  bool sync_batch_norm = false;
  bool metric = false;  // an all-reduce of the loss between forward and backward
  int victim = 0, step = 0;
  Place place = kForward;
  Thrown thrown = kShapeError;
  Caught caught = kNot;

  static ThrowingTraining random(uint64_t seed, int world);
  // "2 ranks, whole, SyncBatchNorm, metric: rank 1 throws ShapeError in forward of step 3, not caught"
  std::string text() const;

  // The training, on every rank of a job. `on_fault` is called where the exception is about to be thrown.
  template <class OnFault> void run(OnFault&& on_fault) const {
    run_with([](void* f) { (*static_cast<OnFault*>(f))(); }, &on_fault);
  }
  // What is wrong with an error that an innocent rank got, "" for nothing: the rank that it names, its text.
  // `text` is empty for none.
  std::string judge(int named, const std::string& text) const;

 private:
  void run_with(void (*on_fault)(void*), void* argument) const;
  void train(void (*on_fault)(void*), void* argument) const;
  bool in_backward() const { return place == kBackward || place == kGradCallback; }
};

}  // namespace gradus::dist
