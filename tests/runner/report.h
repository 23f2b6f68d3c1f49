// What a reference run says: one line per failing check, and the count at the end.
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
  // |got - expected| <= tolerance; a NaN fails.
  void near(double got, double expected, double tolerance, const std::string& where);

  // Of files with several ways to compute the same, only the plain one.
  bool plain = false;

  int failed() const { return failed_; }
  void print_total() const { std::cout << passed_ << " passed, " << failed_ << " failed" << std::endl; }

 private:
  int passed_ = 0, failed_ = 0;
};

// Files named transformer_*.json: thirty training steps of a small decoder with each strategy of the file.
void run_transformer(const std::filesystem::path& file, Report& report);

// Files of placements: what every device holds, or at which stage a placement is refused, and why.
void run_placement(const std::filesystem::path& file, Report& report);

// Files of documented programs: what each shows, arrays, numbers, drawings, errors and traffic.
void run_seeds_examples(const std::filesystem::path& file, Report& report);

// Folders with a tokenizer.json and the tokens of some texts: ids, offsets, and the text back.
void run_tokenizer(const std::filesystem::path& folder, Report& report);

// Folders with a decoder of Hugging Face's and what transformers computes with it.
void run_hugging_face(const std::filesystem::path& folder, Report& report);

// Files with cases of operations: values, gradients, placements and traffic of each.
void run_propagation(const std::filesystem::path& file, Report& report);

// Files of optimizers: parameters after each update, unplaced and sharded, and what the states hold; and of schedules.
void run_optimizers(const std::filesystem::path& file, Report& report);
void run_schedules(const std::filesystem::path& file, Report& report);

// Files with functions of one device's blocks: results, gradients, errors.
void run_shard_map(const std::filesystem::path& file, Report& report);

// Files of Grain's loader: splits, shuffles and packed rows.
void run_grain(const std::filesystem::path& file, Report& report);

}  // namespace tessera::runner
