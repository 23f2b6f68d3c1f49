// Tokenizes documents in order with a loader, writes shards, and records the progress in a small file.
#include "examples/tokenize_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <utility>

#include <tessera/data/loader.h>
#include <tessera/data/sources.h>
#include <tessera/data/text.h>
#include <tessera/sharding/base.h>
#include <tessera/sharding/files.h>

#include "examples/tokenize_texts.h"

namespace tessera::examples {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// The contents of a shard, and the input and document at which the next one begins.
struct Shard {
  int64_t documents = 0, tokens = 0, bytes = 0;
  int64_t input = 0, document = 0;
  int64_t checksum = 0;  // checksum of the shard's files
};

struct State {
  std::vector<Shard> shards;
  bool is_finished = false;
};

uint64_t hashed(uint64_t hash, std::string_view bytes) {  // FNV-1a
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}
constexpr uint64_t no_hash = 0xcbf29ce484222325;

uint32_t checksum_of(const fs::path& path, uint32_t before = 0) {
  const File file = File::open(path, "tokenize");
  std::vector<std::byte> bytes(size_t{1} << 20);
  const int64_t size = file.size();
  for (int64_t at = 0; at < size; at += static_cast<int64_t>(bytes.size())) {
    bytes.resize(std::min(bytes.size(), static_cast<size_t>(size - at)));
    file.read_at(bytes, at);
    before = crc32c(bytes, before);
  }
  return before;
}

// Returns all inputs of the shards as one line: the texts and the tokenizer by all their bytes. (Modification times
// would save one pass over the texts. But a copy of a text has a different time, and an edited text may keep its time.)
std::string made_from(const TokenizeOptions& options, const data::Tokenizer& tokenizer) {
  uint64_t texts = no_hash;
  int64_t files = 0, bytes = 0;
  for (const data::FileEntry& file : data::list_files(options.files, {})) {
    texts = hashed(texts, fmt::format("{} {} {:08x}\n", fs::path(file.path).filename().string(), file.size,
                                      checksum_of(file.path)));
    ++files, bytes += file.size;
  }
  return fmt::format(
      "{} files of {} bytes ({:016x}), a tokenizer of {} ({:016x}), end of text {}, separator {}, {} "
      "documents a shard{}",
      files, bytes, texts, tokenizer.vocab_size(), mark_of_tokenizer(options.tokenizer),
      options.end_of_text ? "\"" + *options.end_of_text + "\"" : "none",
      options.separator ? "\"" + *options.separator + "\"" : "none", options.shard_documents,
      options.text_field == "text" ? "" : fmt::format(", field \"{}\"", options.text_field));
}

// ---- progress

fs::path state_path(const TokenizeOptions& options) { return fs::path(options.out) / "tokenize.json"; }

fs::path shard_path(const TokenizeOptions& options, size_t number) {
  return fs::path(options.out) / fmt::format("tokens-{:05}", number);
}

int64_t shard_checksum(const fs::path& prefix) {
  return checksum_of(prefix.string() + ".idx", checksum_of(prefix.string() + ".bin"));
}

bool is_whole(const fs::path& prefix, const Shard& shard) {
  for (const char* end : {".bin", ".idx"})
    if (!fs::is_regular_file(prefix.string() + end)) return false;
  return shard_checksum(prefix) == shard.checksum;
}

constexpr std::pair<const char*, int64_t Shard::*> numbers_of_shard[] = {
    {"documents", &Shard::documents}, {"tokens", &Shard::tokens},     {"bytes", &Shard::bytes},
    {"input", &Shard::input},         {"document", &Shard::document}, {"crc32c", &Shard::checksum}};

void save(const TokenizeOptions& options, const State& state, const std::string& made_from) {
  json::array shards;
  for (const Shard& shard : state.shards) {
    json::object numbers;
    for (const auto& [key, number] : numbers_of_shard) numbers[key] = shard.*number;
    shards.push_back(numbers);
  }
  const json::object text{{"made_from", made_from}, {"finished", state.is_finished}, {"shards", shards}};
  write_text(state_path(options), json::serialize(text) + "\n", "tokenize");
}

int64_t number_in(const json::value& state, const char* key, const fs::path& path) {
  constexpr int64_t most = int64_t{1} << 40;  // so that the numbers of a million shards can be added
  const json::value* number = state.is_object() ? state.as_object().if_contains(key) : nullptr;
  if (!number || !number->is_int64() || number->as_int64() < 0 || number->as_int64() > most)
    fail(ErrorKind::invalid_file, "tokenize",
         fmt::format("{}: has no number \"{}\"; it is damaged.", path.string(), key));
  return number->as_int64();
}

State loaded(const fs::path& path, const std::string& made_from) {
  const json::value state = parse_json_file(path);
  const json::value* from = state.is_object() ? state.as_object().if_contains("made_from") : nullptr;
  const std::string was = from && from->is_string() ? std::string(from->as_string()) : "nothing";
  const auto part = [&](const char* key) { return state.is_object() ? state.as_object().if_contains(key) : nullptr; };
  const json::value *finished = part("finished"), *shards = part("shards");
  const bool has_tokens =
      !finished || *finished == true || !shards || !shards->is_array() || !shards->as_array().empty();
  if (was != made_from && has_tokens)
    fail(ErrorKind::invalid_file, "tokenize",
         fmt::format("{}: the tokens there were made from {}; now given: {}. Name another folder, or remove this one.",
                     path.parent_path().string(), was, made_from));
  constexpr size_t max_shards = 1'000'000;
  if (!finished || !finished->is_bool() || !shards || !shards->is_array() || shards->as_array().size() > max_shards)
    fail(ErrorKind::invalid_file, "tokenize", fmt::format("{}: has no list of shards; it is damaged.", path.string()));
  State read{.shards = {}, .is_finished = finished->as_bool()};
  for (const json::value& numbers : shards->as_array()) {
    Shard& shard = read.shards.emplace_back();
    for (const auto& [key, number] : numbers_of_shard) shard.*number = number_in(numbers, key, path);
  }
  return read;
}

// Returns whether `path` is `folder` or is below it.
bool is_in(const fs::path& path, const fs::path& folder) {
  const fs::path inner = fs::weakly_canonical(fs::absolute(path)), outer = fs::canonical(folder / ".");
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

void make_out(const TokenizeOptions& options) {
  for (const std::string& texts : options.files)
    if (fs::is_directory(texts) && is_in(options.out, texts))
      fail(ErrorKind::invalid_argument, "tokenize",
           fmt::format("{}: is in {}, all of whose files are texts. Name a folder outside of it.", options.out, texts));
  if (fs::exists(options.out) && !fs::is_directory(options.out))
    fail(ErrorKind::invalid_argument, "tokenize",
         fmt::format("{}: a file, expected a folder, or a name for one.", options.out));
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error) fail(ErrorKind::invalid_file, "tokenize", fmt::format("{}: {}.", options.out, error.message()));
}

State begun(const TokenizeOptions& options, const std::string& made_from) {
  const bool is_begun = fs::exists(state_path(options));
  if (is_begun) {
    State state = loaded(state_path(options), made_from);
    if (state.is_finished || !state.shards.empty()) return state;
  }
  for (const std::string& name : names_in(options.out, "tokenize"))
    if (name.starts_with("tokens-") && !is_begun)
      fail(ErrorKind::invalid_file, "tokenize",
           fmt::format("{}: has {} and no tokenize.json, so it is of something else. Name another folder.", options.out,
                       name));
  save(options, {}, made_from);
  return {};
}

// ---- tokenizing

struct Tokens {
  std::vector<int32_t> ids;
  int64_t bytes = 0;
};

class Job {
 public:
  Job(const TokenizeOptions& options, const std::function<void(const TokenizeProgress&)>& report)
      : options_(options), report_(report), tokenizer_(data::Tokenizer::open(options.tokenizer)) {
    make_out(options);
    lock_ = File::lock(fs::path(options.out) / ".lock", "tokenize");
    made_from_ = made_from(options, tokenizer_);
    state_ = begun(options, made_from_);
    if (!options.end_of_text) return;
    end_of_text_ = tokenizer_.token_to_id(*options.end_of_text);
    if (!end_of_text_)
      fail(ErrorKind::invalid_argument, "tokenize",
           fmt::format("\"{}\" is not a token of {}.", *options.end_of_text, options.tokenizer));
  }

  TokenizeProgress run() {
    drop_damaged();
    if (!state_.shards.empty()) now_.input = state_.shards.back().input, now_.document = state_.shards.back().document;
    const TextOptions texts{options_.separator, options_.text_field};
    const auto inputs = text_inputs(options_.files, texts);
    while (!state_.is_finished && !is_stopped_ && now_.input < static_cast<int64_t>(inputs.size()))
      read(texts_of(inputs[static_cast<size_t>(now_.input)], texts));
    if (is_stopped_ || state_.is_finished) return progress();
    state_.is_finished = true;
    writer_ ? end_shard() : save(options_, state_, made_from_);
    return progress();
  }

 private:
  TokenizeProgress progress() const {
    TokenizeProgress sum{.shards = static_cast<int64_t>(state_.shards.size()),
                         .new_tokens = new_tokens_,
                         .is_finished = state_.is_finished,
                         .damaged = damaged_};
    for (const Shard& shard : state_.shards)
      sum.documents += shard.documents, sum.tokens += shard.tokens, sum.bytes += shard.bytes;
    return sum;
  }

  // Drops the shards of earlier runs from the first one on that differs from what was written.
  void drop_damaged() {
    for (size_t i = 0; i < state_.shards.size(); ++i) {
      const fs::path prefix = shard_path(options_, i);
      if (is_whole(prefix, state_.shards[i])) continue;
      damaged_ = prefix.string();
      state_.shards.resize(i);
      state_.is_finished = false;
      save(options_, state_, made_from_);
      if (report_) report_(progress());
    }
  }

  // Reads the rest of an input's documents; the next document then is the next input's first.
  void read(const data::Dataset<std::string>& texts) {
    const auto make = [tokenizer = tokenizer_, end = end_of_text_](const std::string& text) {
      Tokens tokens{tokenizer.encode(text, {.add_special_tokens = false}).ids, static_cast<int64_t>(text.size())};
      if (end) tokens.ids.push_back(*end);
      return tokens;
    };
    const int64_t begin = std::min(now_.document, texts.size());
    if (begin < texts.size()) {
      data::Loader loader(texts.slice(begin, texts.size()).map(make), data::unbatched,
                          {.batch_size = 1, .prefetch = 8 * options_.threads, .num_threads = options_.threads});
      while (auto tokens = loader.next()) {
        ++now_.document;
        add(*tokens);
        if (is_stopped_) return;
      }
    }
    ++now_.input;
    now_.document = 0;
  }

  void add(const Tokens& tokens) {
    if (!writer_) writer_.emplace(shard_path(options_, state_.shards.size()), tokenizer_.vocab_size());
    writer_->add(tokens.ids);
    now_.bytes += tokens.bytes;
    if (writer_->document_count() == options_.shard_documents) end_shard();
  }

  void end_shard() {
    writer_->finish();
    now_.documents = writer_->document_count(), now_.tokens = writer_->token_count();
    now_.checksum = shard_checksum(shard_path(options_, state_.shards.size()));
    writer_.reset();
    new_tokens_ += now_.tokens;
    state_.shards.push_back(std::exchange(now_, {.input = now_.input, .document = now_.document}));
    save(options_, state_, made_from_);
    if (report_) report_(progress());
    is_stopped_ = ++shards_made_ == options_.stop_after;
  }

  TokenizeOptions options_;
  std::function<void(const TokenizeProgress&)> report_;
  data::Tokenizer tokenizer_;
  File lock_;  // prevents a second run from writing the same shards
  std::string made_from_;
  State state_;
  std::optional<int32_t> end_of_text_;
  std::optional<data::TokenWriter> writer_;
  Shard now_;  // the current shard so far
  int64_t shards_made_ = 0, new_tokens_ = 0;
  std::string damaged_;
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
