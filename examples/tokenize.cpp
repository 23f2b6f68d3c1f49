// Converts texts to files of tokens: tokenize --tokenizer tokenizer.json --out DIR FILES...
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <tessera/sharding/base.h>
#include <tessera/sharding/runtime.h>

#include "examples/tokenize_files.h"

namespace tessera::examples {
namespace {

constexpr const char* usage = R"(Makes files of tokens of texts, as Megatron's .bin and .idx, which TokenFiles reads.

  tokenize --tokenizer PATH --out DIR FILES...

  --tokenizer PATH       a tokenizer.json, or the folder of one
  --out DIR              where tokens-00000.bin, tokens-00000.idx and so on go; started again, it continues there
  --end-of-text TOKEN    a token of the vocabulary that ends each document (default: none)
  --text-field FIELD     the field of JSON lines that has the text, as in meta.text (text)
  --separator LINE       such lines separate a text file's documents; "": between empty lines (default: a file is one)
  --shard-documents N    documents in a shard (10000)
  --threads N            threads that make tokens; the files are the same for any number (all cores)
  --stop-after N         stop after N shards; the next start continues

FILES are files and folders: each line of .jsonl, .jsonl.gz and .jsonl.zst files is a document.
)";

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorKind::invalid_argument, "[command line] " + message) {}
};

int64_t whole_number(const std::string& flag, const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || value < least || value > most)
    throw UsageError(fmt::format("{}: \"{}\" given, expected a whole number from {} to {}.", flag, text, least, most));
  return value;
}

TokenizeOptions parsed(const std::vector<std::string>& arguments) {
  TokenizeOptions options;
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (!flag.starts_with("--")) {
      options.files.push_back(flag);
      continue;
    }
    if (i + 1 == arguments.size()) throw UsageError(flag + ": no value follows, or no such flag; --help lists all.");
    const std::string& value = arguments[++i];
    constexpr int64_t many = 1'000'000'000;
    if (flag == "--tokenizer")
      options.tokenizer = value;
    else if (flag == "--out")
      options.out = value;
    else if (flag == "--end-of-text")
      options.end_of_text = value;
    else if (flag == "--text-field")
      options.text_field = value;
    else if (flag == "--separator")
      options.separator = value;
    else if (flag == "--shard-documents")
      options.shard_documents = whole_number(flag, value, 1, many);
    else if (flag == "--threads")
      options.threads = static_cast<int>(whole_number(flag, value, 1, 1024));
    else if (flag == "--stop-after")
      options.stop_after = whole_number(flag, value, 1, many);
    else
      throw UsageError(flag + ": no such flag; --help lists all.");
  }
  for (const auto& [flag, value] : {std::pair("--tokenizer", options.tokenizer), {"--out", options.out}})
    if (value.empty()) throw UsageError(std::string(flag) + ": missing; --help shows what is needed.");
  if (options.files.empty()) throw UsageError("FILES: none given, expected at least one file or folder.");
  return options;
}

void tokenize(const TokenizeOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto report = [&](const TokenizeProgress& progress) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (!progress.damaged.empty() && progress.new_tokens == 0)
      fmt::print("{}: damaged since it was made; this shard and those after it are written again\n", progress.damaged);
    fmt::print("{} shards, {} documents, {} tokens, {:.0f} tokens/s\n", progress.shards, progress.documents,
               progress.tokens, static_cast<double>(progress.new_tokens) / std::max(seconds.count(), 1e-9));
    std::fflush(stdout);
  };
  const TokenizeProgress done = tokenize_files(options, report);
  fmt::print("{}: {} shards in {}, {} documents, {} tokens of {} bytes of text ({:.2f} bytes a token)\n",
             done.is_finished ? "Finished" : "Stopped, to be started again", done.shards, options.out, done.documents,
             done.tokens, done.bytes,
             static_cast<double>(done.bytes) / static_cast<double>(std::max<int64_t>(1, done.tokens)));
}

}  // namespace
}  // namespace tessera::examples

int main(int argc, char** argv) {
  using namespace tessera::examples;
  return tessera::run_program([&] {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    try {
      if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end())
        fmt::print("{}", usage);
      else
        tokenize(parsed(arguments));
      return 0;
    } catch (const UsageError& error) {
      fmt::print(stderr, "error: {}\n", error.what());
      return 2;
    }
  });
}
