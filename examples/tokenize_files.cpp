// A loader makes the tokens of documents in order; a writer takes them; a small file remembers how far both are.
#include "examples/tokenize_files.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <filesystem>
#include <utility>

#include "data/file_list.h"
#include "data/loader.h"
#include "data/token_writer.h"
#include "data/tokenizer.h"
#include "examples/tokenize_texts.h"
#include "sharding/diagnostics.h"
#include "sharding/files.h"

namespace tessera::examples {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct State {
  TokenizeProgress progress;
  int64_t input = 0, document = 0;  // the next document: of which input, and the how manieth there
};

uint64_t hashed(uint64_t hash, std::string_view bytes) {  // FNV-1a
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}
constexpr uint64_t no_hash = 0xcbf29ce484222325;

// What the shards depend on, as one line: the texts by their names and sizes, the tokenizer by all tokens that it has.
std::string made_from(const TokenizeOptions& options, const data::Tokenizer& tokenizer) {
  uint64_t texts = no_hash;
  int64_t files = 0, bytes = 0;
  for (const data::FileEntry& file : data::list_files(options.files, {})) {
    texts = hashed(texts, fmt::format("{} {}\n", fs::path(file.path).filename().string(), file.size));
    ++files, bytes += file.size;
  }
  return fmt::format(
      "{} files of {} bytes ({:016x}), a tokenizer of {} ({:016x}), end of text {}, separator {}, {} "
      "documents a shard",
      files, bytes, texts, tokenizer.vocab_size(), mark_of_tokenizer(options.tokenizer),
      options.end_of_text ? "\"" + *options.end_of_text + "\"" : "none",
      options.separator ? "\"" + *options.separator + "\"" : "none", options.shard_documents);
}

// ---- how far it is

fs::path state_path(const TokenizeOptions& options) { return fs::path(options.out) / "tokenize.json"; }

void save(const TokenizeOptions& options, const State& state, const std::string& made_from) {
  const TokenizeProgress& p = state.progress;
  const json::object text{{"made_from", made_from}, {"shards", p.shards},        {"documents", p.documents},
                          {"tokens", p.tokens},     {"bytes", p.bytes},          {"finished", p.is_finished},
                          {"input", state.input},   {"document", state.document}};
  const fs::path path = state_path(options), partial = path.string() + ".partial";
  write_text(partial, json::serialize(text) + "\n", "tokenize");
  move_into_place(partial, path, "tokenize");
}

int64_t number_in(const json::value& state, const char* key, const fs::path& path) {
  const json::value* number = state.is_object() ? state.as_object().if_contains(key) : nullptr;
  if (!number || !number->is_int64() || number->as_int64() < 0)
    fail(ErrorKind::bad_file, "tokenize", fmt::format("{}: has no number \"{}\"; it is damaged.", path.string(), key));
  return number->as_int64();
}

State loaded(const fs::path& path, const std::string& made_from) {
  const json::value state = parse_json_file(path);
  const json::value* from = state.is_object() ? state.as_object().if_contains("made_from") : nullptr;
  const std::string was = from && from->is_string() ? std::string(from->as_string()) : "nothing";
  if (was != made_from)
    fail(ErrorKind::bad_file, "tokenize",
         fmt::format("{}: the tokens there were made from {}; now given: {}. Name another folder, or remove this one.",
                     path.parent_path().string(), was, made_from));
  const json::value* finished = state.as_object().if_contains("finished");
  return {{number_in(state, "shards", path), number_in(state, "documents", path), number_in(state, "tokens", path),
           number_in(state, "bytes", path), 0, finished && *finished == true},
          number_in(state, "input", path),
          number_in(state, "document", path)};
}

State begun(const TokenizeOptions& options, const std::string& made_from) {
  fs::create_directories(options.out);
  if (fs::exists(state_path(options))) return loaded(state_path(options), made_from);
  for (const std::string& name : names_in(options.out, "tokenize"))
    if (name.starts_with("tokens-"))
      fail(ErrorKind::bad_file, "tokenize",
           fmt::format("{}: has {} and no tokenize.json, so it is of something else. Name another folder.", options.out,
                       name));
  save(options, {}, made_from);
  return {};
}

// ---- the work

struct Tokens {
  std::vector<int32_t> ids;
  int64_t bytes = 0;
};

class Job {
 public:
  Job(const TokenizeOptions& options, const std::function<void(const TokenizeProgress&)>& report)
      : options_(options),
        report_(report),
        tokenizer_(data::Tokenizer::open(options.tokenizer)),
        made_from_(made_from(options, tokenizer_)),
        state_(begun(options, made_from_)) {
    if (!options.end_of_text) return;
    end_of_text_ = tokenizer_.id_of(*options.end_of_text);
    if (!end_of_text_)
      fail(ErrorKind::bad_argument, "tokenize",
           fmt::format("\"{}\" is no token of {}.", *options.end_of_text, options.tokenizer));
  }

  TokenizeProgress run() {
    const auto inputs = text_inputs(options_.files, options_.separator);
    while (!state_.progress.is_finished && !is_stopped_ && state_.input < static_cast<int64_t>(inputs.size()))
      read(texts_of(inputs[static_cast<size_t>(state_.input)], options_.separator));
    if (is_stopped_ || state_.progress.is_finished) return state_.progress;
    state_.progress.is_finished = true;
    writer_ ? end_shard() : save(options_, state_, made_from_);
    return state_.progress;
  }

 private:
  // The rest of an input's documents; the state then stands before the next input.
  void read(const data::Dataset<std::string>& texts) {
    const auto make = [tokenizer = tokenizer_, end = end_of_text_](const std::string& text) {
      Tokens tokens{tokenizer.encode(text, {.add_special_tokens = false}).ids, static_cast<int64_t>(text.size())};
      if (end) tokens.ids.push_back(*end);
      return tokens;
    };
    const int64_t begin = std::min(state_.document, texts.size());
    if (begin < texts.size()) {
      data::Loader loader(texts.slice(begin, texts.size()).map(make), data::each,
                          {.batch_size = 1, .prefetch = 8 * options_.threads, .threads = options_.threads});
      while (auto tokens = loader.next()) {
        ++state_.document;
        add(*tokens);
        if (is_stopped_) return;
      }
    }
    ++state_.input;
    state_.document = 0;
  }

  void add(const Tokens& tokens) {
    if (!writer_)
      writer_.emplace(fs::path(options_.out) / fmt::format("tokens-{:05}", state_.progress.shards),
                      tokenizer_.vocab_size());
    writer_->add(tokens.ids);
    ++state_.progress.documents;
    state_.progress.tokens += static_cast<int64_t>(tokens.ids.size());
    state_.progress.new_tokens += static_cast<int64_t>(tokens.ids.size());
    state_.progress.bytes += tokens.bytes;
    if (writer_->documents() == options_.shard_documents) end_shard();
  }

  void end_shard() {
    writer_->finish();
    writer_.reset();
    ++state_.progress.shards;
    save(options_, state_, made_from_);
    if (report_) report_(state_.progress);
    is_stopped_ = ++shards_made_ == options_.stop_after;
  }

  TokenizeOptions options_;
  std::function<void(const TokenizeProgress&)> report_;
  data::Tokenizer tokenizer_;
  std::string made_from_;
  State state_;
  std::optional<int32_t> end_of_text_;
  std::optional<data::TokenWriter> writer_;
  int64_t shards_made_ = 0;
  bool is_stopped_ = false;
};

}  // namespace

uint64_t mark_of_tokenizer(const std::string& path) {
  const fs::path given = path;
  if (!fs::is_directory(given)) return hashed(no_hash, read_text(given, "tokenize"));
  uint64_t mark = no_hash;
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt"})
    if (fs::exists(given / name)) mark = hashed(mark, read_text(given / name, "tokenize"));
  return mark;
}

TokenizeProgress tokenize_files(const TokenizeOptions& options,
                                const std::function<void(const TokenizeProgress&)>& report) {
  return Job(options, report).run();
}

}  // namespace tessera::examples
