// StrategySearch: the order in which suggest_strategies tries candidates, and its stopping rule.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "nn/report/strategy_candidates.h"
#include "nn/report/suggest_strategies.h"

namespace tessera::nn::detail {

// Returns the memory of a device minus the headroom.
int64_t usable_memory(int64_t memory, double memory_headroom);

class StrategySearch {
 public:
  // Inputs of the step in addition to its mesh rules.
  struct Takes {
    bool gradients = false, pipeline = false;
  };
  // Runs the step once, without rules.
  StrategySearch(const PipelineStep& step, Takes takes, int64_t devices, const Hardware& hardware, int64_t memory,
                 const SuggestStrategiesOptions& options);

  StrategySuggestions run();

 private:
  struct Trial {
    StrategyCandidate candidate;
    StepForecast forecast;
    bool fits = false;
    double seconds() const { return forecast.seconds(); }
  };
  // Candidates that differ only in the size of "model".
  struct Family {
    int64_t pipe;
    WeightsAlongData weights;
    AlongModel along_model;
    double previous = std::numeric_limits<double>::infinity();  // seconds for the previous size
    bool is_left = false;
  };

  void probe();
  bool is_allowed(const StrategyCandidate& candidate) const;
  int64_t bytes_at_rest(const StrategyCandidate& candidate) const;
  // Runs a candidate. Returns nullopt if it is not allowed or was tried already, or if no steps are left.
  std::optional<size_t> attempt(const StrategyCandidate& candidate);
  std::optional<size_t> attempt_what_may_fit(const StrategyCandidate& candidate);

  std::vector<Family> families() const;
  void search_families();
  void advance(Family& family, int64_t model);
  void refine();
  void refine_pipeline();
  void search_the_smallest();

  std::vector<size_t> fitting() const;  // fastest first
  std::vector<size_t> proposed() const;
  SuggestedStrategy suggestion(const Trial& trial) const;

  PipelineStep step_;
  Takes takes_;
  int64_t devices_;
  Hardware hardware_;
  int64_t memory_, usable_;
  SuggestStrategiesOptions options_;

  AxisRoles roles_;
  std::vector<PlacementRow> rows_;  // arrays of the step without rules
  bool has_own_rules_ = false;
  std::vector<Trial> trials_;
  std::vector<std::pair<int64_t, StrategyCandidate>> skipped_;  // with their bytes at rest
  int64_t steps_ = 0;
  bool is_complete_ = true;
};

// Returns a sentence that explains why `a` is faster than `b`, the next strategy. `b` is null if there is no next one.
std::string why_it_beats(const SuggestedStrategy& a, const SuggestedStrategy* b);

}  // namespace tessera::nn::detail
