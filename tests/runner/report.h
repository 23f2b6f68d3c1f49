// The report of a reference run: a line for each failing check, and the total.
#pragma once

#include <filesystem>
#include <iostream>
#include <string>

namespace tessera::runner {

class Report {
 public:
  // Counts a check; prints "where: expected ..., got ..." if it fails.
  void check(bool passed, const std::string& where, const std::string& expected, const std::string& got) {
    ++(passed ? passed_ : failed_);
    if (!passed) std::cout << where << ": expected " << expected << ", got " << got << '\n';
  }
  // Checks |got - expected| <= tolerance; fails for NaN.
  void near(double got, double expected, double tolerance, const std::string& where);

  // If a file has several ways to compute the same, run only the plain one.
  bool plain = false;

  int failed() const { return failed_; }
  void print_total() const { std::cout << passed_ << " passed, " << failed_ << " failed" << std::endl; }

 private:
  int passed_ = 0, failed_ = 0;
};

// Files transformer_*.json: thirty training steps of a small decoder with each strategy of the file.
void run_transformer(const std::filesystem::path& file, Report& report);

// Files of placements: the shards of every device, or the stage and error of a refused placement.
void run_placement(const std::filesystem::path& file, Report& report);

// Files of documented programs: the arrays, numbers, drawings, errors and communication that each one shows.
void run_seeds_examples(const std::filesystem::path& file, Report& report);

// Folders with a tokenizer.json and the tokens of some texts: ids, offsets, and the text back.
void run_tokenizer(const std::filesystem::path& folder, Report& report);
// Files of small tokenizers, each with some steps.
void run_tokenizer_steps(const std::filesystem::path& file, Report& report);

// Folders with a Hugging Face decoder and the results of transformers for it.
void run_hugging_face(const std::filesystem::path& folder, Report& report);

// Files with cases of operations: the values, gradients, shardings and communication of each.
void run_propagation(const std::filesystem::path& file, Report& report);

// Files of optimizers: parameters after each update, unplaced and sharded, and the arrays of their states.
void run_optimizers(const std::filesystem::path& file, Report& report);
// Files of schedules: their values at given counts.
void run_schedules(const std::filesystem::path& file, Report& report);

// Files with functions of one device's blocks: results, gradients and errors.
void run_shard_map(const std::filesystem::path& file, Report& report);

// Files of Grain's loader: splits, shuffles and packed rows.
void run_grain(const std::filesystem::path& file, Report& report);

}  // namespace tessera::runner
