// Runs reference files and folders (of JAX, tokenizers and Hugging Face decoders): reference_runner [--plain] PATH...
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "sharding/base/error.h"
#include "tests/runner/report.h"

namespace tessera::runner {

void Report::near(double got, double expected, double tolerance, const std::string& where) {
  check(std::abs(got - expected) <= tolerance, where, fmt::format("{:.9g} within {:.2g}", expected, tolerance),
        fmt::format("{:.9g}", got));
}

namespace {

// A kind of file, recognized by the prefix of its name, or else by a text that only this kind contains.
struct Kind {
  const char* prefix;
  const char* content;
  void (*run)(const std::filesystem::path&, Report&);
};

constexpr Kind kinds[] = {{"grain", "\"even_splits\":", run_grain},
                          {"optimizers", "\"chain\":", run_optimizers},
                          {"schedules", "\"schedules\":", run_schedules},
                          {"placement", "\"shard_shape\":", run_placement},
                          {"propagation", "\"explicit\":", run_propagation},
                          {"seeds_examples", "\"examples\":", run_seeds_examples},
                          {"shard_map", "\"in_specs\":", run_shard_map},
                          {"transformer_", "\"strategies\":", run_transformer},
                          {"tokenizer_steps", "\"tokenizer_steps\":", run_tokenizer_steps}};

bool contains(const std::filesystem::path& file, std::string_view content) {
  std::ifstream in(file);
  return std::string(std::istreambuf_iterator<char>(in), {}).find(content) != std::string::npos;
}

void run_file(const std::filesystem::path& file, Report& report) {
  if (std::filesystem::exists(file / "config.json")) return run_hugging_face(file, report);
  if (std::filesystem::exists(file / "tokenizer.json")) return run_tokenizer(file, report);
  for (const Kind& kind : kinds)
    if (file.filename().string().starts_with(kind.prefix)) return kind.run(file, report);
  for (const Kind& kind : kinds)
    if (contains(file, kind.content)) return kind.run(file, report);
  std::vector<std::string_view> names;
  for (const Kind& kind : kinds) names.push_back(kind.prefix);
  fail(ErrorKind::invalid_argument, "reference_runner",
       fmt::format("{}: no kind of reference file begins like this or has its content, expected {}*.json.",
                   file.string(), fmt::join(names, "*.json, ")));
}

}  // namespace
}  // namespace tessera::runner

int main(int argc, char** argv) {
  tessera::runner::Report report;
  if (argc < 2) {
    std::cerr << "usage: reference_runner [--plain] PATH...\n";
    return 2;
  }
  report.plain = std::string_view(argv[1]) == "--plain";
  for (int i = report.plain ? 2 : 1; i < argc; ++i) {
    try {
      tessera::runner::run_file(argv[i], report);
    } catch (const std::exception& error) {
      report.check(false, argv[i], "a run to the end", error.what());
    }
  }
  report.print_total();
  return report.failed() ? 1 : 0;
}
