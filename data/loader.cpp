// The loader's place in the stream, its threads, and errors that name their record.
#include "data/loader.h"

#include <regex>

#include "data/prefetch.h"
#include "nn/tree.h"

namespace tessera::data {

namespace {

void require(bool condition, const std::string& message) {
  if (!condition) fail(ErrorKind::bad_argument, "Loader", message);
}

[[noreturn]] void fail_with_words(const std::string& words) {
  try {
    throw;
  } catch (const Error& error) {
    fail(error.kind(), "next", words + ": " + error.what());
  } catch (const std::exception& error) {
    fail(ErrorKind::other, "next", words + ": " + error.what());
  } catch (...) {
    fail(ErrorKind::other, "next", words + ": an exception that is not a std::exception");
  }
}

LoaderOptions checked(const LoaderOptions& options) {
  const auto& [batch_size, shard, prefetch, threads] = options;
  require(prefetch >= 0, "prefetch " + std::to_string(prefetch) + ", expected 0 (no thread) or more");
  require(threads >= 1, "threads " + std::to_string(threads) + ", expected at least 1; prefetch = 0 uses none");
  return options;
}

}  // namespace

std::string LoaderState::to_json() const {
  return "{\"global_next_index\": " + std::to_string(global_next_index) + "}";
}

LoaderState LoaderState::from_json(std::string_view text) {
  static const std::regex form(R"json(\s*\{\s*"global_next_index"\s*:\s*(\d{1,18})\s*\}\s*)json");
  std::match_results<std::string_view::const_iterator> match;
  if (!std::regex_match(text.begin(), text.end(), match, form)) {
    fail(ErrorKind::bad_file, "from_json",
         "\"" + std::string(text.substr(0, 200)) + "\", expected a loader state: {\"global_next_index\": 96}");
  }
  return {std::stoll(match[1].str())};
}

namespace detail {

void fail_at_record(int64_t epoch, int64_t index) {
  fail_with_words("record " + std::to_string(index) + " of epoch " + std::to_string(epoch));
}

void fail_at_batch(const RecordRange& records) {
  const int64_t last = records.begin + records.count - 1;
  fail_with_words("the batch of records " + std::to_string(records.begin) + " to " + std::to_string(last) +
                  " of epoch " + std::to_string(records.epoch));
}

struct LoaderCore::Threads {
  Prefetcher prefetcher;
};

LoaderCore::LoaderCore(int64_t size, const LoaderOptions& options, Make make)
    : plan_(size, options.batch_size, options.shard), options_(checked(options)), make_(std::move(make)) {}

LoaderCore::LoaderCore(LoaderCore&&) noexcept = default;
LoaderCore& LoaderCore::operator=(LoaderCore&&) noexcept = default;
LoaderCore::~LoaderCore() = default;

std::shared_ptr<void> LoaderCore::make_next() {
  if (options_.prefetch == 0) return item_or_throw(attempt([&] { return make_(plan_.records(position_)); }));
  if (!threads_) {
    auto make = [plan = plan_, start = position_, make = make_](int64_t batch) {
      return make(plan.records(plan.after(start, batch)));
    };
    threads_.reset(new Threads{{std::move(make), options_.prefetch, options_.threads}});
  }
  try {
    return threads_->prefetcher.next();
  } catch (...) {
    threads_.reset();
    throw;
  }
}

std::shared_ptr<void> LoaderCore::next() {
  if (std::exchange(epoch_over_, false)) return nullptr;
  auto batch = make_next();
  position_ = plan_.after(position_);
  epoch_over_ = plan_.begins_epoch(position_);
  return batch;
}

void LoaderCore::restore(const LoaderState& state) {
  if (state.global_next_index < 0) {
    fail(ErrorKind::bad_argument, "restore",
         "global_next_index " + std::to_string(state.global_next_index) + ", expected 0 or more");
  }
  threads_.reset();
  position_ = plan_.normalized(state.global_next_index);
  epoch_over_ = false;
}

}  // namespace detail

}  // namespace tessera::data
