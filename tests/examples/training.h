// Runs train_transformer on a small text as a user would, and reads the rows of its metrics.
#pragma once

#include <gtest/gtest.h>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "sharding/files/json.h"
#include "tests/data/scratch_folder.h"
#include "tests/examples/program.h"

namespace tessera::examples {

inline const std::string small = " --embed 32 --heads 8 --layers 1 --mlp 32 --seq 16 --batch 8 --steps 3 --warmup 1";

inline std::string some_text() {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "the number " + std::to_string(i * i % 97) + " follows; ";
  return text;
}

struct Row {
  boost::json::object values;
  double operator[](const char* key) const { return values.at(key).to_number<double>(); }
  bool is_validation() const { return values.contains("validation_loss"); }
};

// A fixture: a folder with a text to learn, and the command that trains on this text.
class Training : public ::testing::Test {
 protected:
  Outcome train(const std::string& flags) { return run_program(program_ + " --data " + text_ + small + " " + flags); }

  struct Run {
    Outcome outcome;
    std::vector<Row> rows;  // rows of its metrics
  };
  Run run(const std::string& flags) { return run_of(train(flags + metrics_)); }
  // The rows of a run that had the flags metrics_.
  Run run_of(const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return {outcome, rows_of(folder_.path("metrics.jsonl"))};
  }
  static std::vector<Row> rows_of(const std::string& file) {
    std::vector<Row> rows;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) rows.push_back({parse_json(line, "metrics", file).as_object()});
    return rows;
  }

  void expect_error(const std::string& flags, const std::string& words, int exit_code) {
    const Outcome outcome = train(flags);
    EXPECT_EQ(outcome.exit_code, exit_code) << flags << "\n" << outcome.output;
    EXPECT_TRUE(outcome.says("error: [")) << flags << "\n" << outcome.output;
    EXPECT_TRUE(outcome.says(words)) << flags << "\n" << outcome.output;
    EXPECT_EQ(outcome.output.find("error: "), outcome.output.rfind("error: ")) << "one error only\n" << outcome.output;
  }

  void expect_losses(const Run& actual, const Run& expected, double tolerance) {
    ASSERT_EQ(actual.rows.size(), expected.rows.size());
    for (size_t i = 0; i < actual.rows.size(); ++i) {
      const char* loss = actual.rows[i].is_validation() ? "validation_loss" : "loss";
      EXPECT_NEAR(actual.rows[i][loss], expected.rows[i][loss], tolerance) << "row " << i;
    }
  }

  data::ScratchFolder folder_;
  std::string metrics_ = " --metrics " + folder_.path("metrics.jsonl");
  std::string text_ = folder_.write("text.txt", some_text());
  std::string program_ = TESSERA_TRAIN_TRANSFORMER;
};

}  // namespace tessera::examples
