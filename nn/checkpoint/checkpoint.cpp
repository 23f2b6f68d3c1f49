// Checkpointer: the background thread that saves, and the errors that the caller receives from it.
#include "nn/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <future>
#include <utility>

#include "nn/checkpoint/save.h"
#include "sharding/base/error.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"
#include "sharding/base/text.h"
#include "sharding/files/file.h"
#include "sharding/runtime/processes.h"

namespace tessera::nn {

using tessera::detail::counted, tessera::detail::Votes;

namespace {

namespace fs = std::filesystem;

void check_processes(const Processes& processes) {
  if (processes.num_processes == 0 && processes.process_index == 0 && !processes.all_ok) return;
  if (processes.process_index < 0 || processes.process_index >= processes.num_processes ||
      (processes.num_processes > 1 && !processes.all_ok))
    fail(ErrorKind::invalid_argument, "save",
         "process {} of {}{}: expected an index from 0 on below the count, and all_ok where there are several.",
         processes.process_index, processes.num_processes, processes.all_ok ? "" : " without all_ok");
}

void check_options(const CheckpointOptions& options) {
  const RetentionPolicy& keep = options.keep;
  if (keep.latest < 0 || keep.every < 0 || keep.best < 0)
    fail(ErrorKind::invalid_argument, "save", "keep: latest {}, every {}, best {} given, expected numbers from 0 on.",
         keep.latest, keep.every, keep.best);
  if (keep.best > 0 && keep.metric.empty())
    fail(ErrorKind::invalid_argument, "save",
         "keep: the best {} are to be kept, but no metric is given. Name one in RetentionPolicy::metric.", keep.best);
  if (options.max_file_bytes < 1)
    fail(ErrorKind::invalid_argument, "save", "max_file_bytes: {} given, expected a number from 1 on.",
         options.max_file_bytes);
  if (options.max_pending_bytes < 0)
    fail(ErrorKind::invalid_argument, "save", "max_pending_bytes: {} given, expected a number from 0 on.",
         options.max_pending_bytes);
}

// Fixes the folder now, because the saving thread and later calls may run after a change of the current directory.
fs::path made_absolute(const fs::path& folder) {
  std::error_code error;
  const fs::path whole = fs::absolute(folder, error);
  return error ? folder : whole;
}

// Describes the checkpoints in the folder, for comparison with the text of other processes.
std::string seen_in(const fs::path& folder) {
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  return steps.empty() ? "no checkpoint there"
                       : fmt::format("{} there, the last of step {}", steps.size(), steps.back());
}

}  // namespace

struct Checkpointer::Impl {
  Impl(const fs::path& where, CheckpointOptions how) : folder(made_absolute(where)), options(std::move(how)) {
    check_processes(options.processes);
    if (options.processes.num_processes == 0) vote_by_program();
    const std::string seen = take_folder();
    if (votes) votes->check_same(seen, "Give all processes one folder, on a filesystem that they share.");
  }

  // Uses Votes, because the saving thread may vote while this thread computes.
  void vote_by_program() {
    if (process_count() > 1) votes = std::make_shared<Votes>("save", folder.string());
    options.processes = voting_by(votes);
  }

  // Locks and cleans the folder. Returns what this process finds in it, for comparison with other processes.
  std::string take_folder() {
    std::string seen;
    together(options.processes, folder, "save", [&] {
      check_options(options);
      make_folders(folder, "save");
      if (options.processes.process_index == 0) {
        lock = File::lock(folder / ".lock", "save");
        check_steps_are_complete(folder);
        remove_leftovers(folder);
      } else {
        check_writable_folder(folder, "save");
      }
      if (votes) seen = seen_in(folder);
    });
    return seen;
  }

  fs::path folder;
  CheckpointOptions options;
  std::shared_ptr<Votes> votes;  // among the program's processes, if all of them save
  File lock;
  std::future<void> pending;
};

Checkpointer::Checkpointer(fs::path folder, CheckpointOptions options)
    : impl_(std::make_unique<Impl>(folder, std::move(options))) {}

Checkpointer::Checkpointer(Checkpointer&&) noexcept = default;

Checkpointer::~Checkpointer() noexcept(false) {
  if (!impl_) return;
  try {
    wait();
  } catch (const std::exception& error) {
    if (std::uncaught_exceptions() == 0) throw;
    std::fprintf(stderr, "error: %s\n", error.what());
  }
}

Checkpointer::Impl& Checkpointer::impl() const {
  if (!impl_) tessera::detail::fail_moved("save", "Checkpointer");
  return *impl_;
}

const fs::path& Checkpointer::folder() const { return impl().folder; }

void Checkpointer::wait() {
  if (impl().pending.valid()) impl().pending.get();
}

void Checkpointer::save(int64_t step, const NamedState& state, const SaveExtra& extra) {
  wait();
  std::shared_ptr<Save> save;
  std::string identity;
  const WhoHas who_has = impl_->votes ? who_has_values(state, *impl_->votes) : WhoHas();
  together(impl_->options.processes, impl_->folder / std::to_string(step), "save", [&] {
    if (step < 0 || step > kMaxStep)
      fail(ErrorKind::invalid_argument, "save", "step {} given, expected a number from 0 to {}.", step, kMaxStep);
    check_step_is_free(impl_->folder, step);
    save = std::make_shared<Save>(impl_->folder, step, state, extra, impl_->options);
    if (impl_->votes) identity = save->identity();
  });
  if (impl_->votes) impl_->votes->check_same(identity, "Save the same trees at the same steps everywhere.");
  together(impl_->options.processes, impl_->folder / std::to_string(step), "save", [&] { save->take(state, who_has); });
  save->write_down_to(impl_->options.max_pending_bytes);
  // If no thread can be started, wait() does the work. If memory for that is lacking too, this call does it, because
  // the other processes rely on it. `finish` is passed by copy: libstdc++ needs it again if it cannot start the thread.
  const auto finish = [save = std::move(save)] { save->finish(); };
  try {
    impl_->pending = std::async(std::launch::async | std::launch::deferred, finish);
  } catch (const std::bad_alloc&) {
    finish();
  }
}

void save(const fs::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra) {
  Checkpointer checkpoints(folder, {.max_pending_bytes = 0});
  checkpoints.save(step, state, extra);
  checkpoints.wait();
}

std::string describe_checkpoint(const fs::path& path) {
  const fs::path checkpoint = find_checkpoint(path, "inspect");
  const Manifest manifest = read_manifest(checkpoint);
  const SavedState state = read_state(checkpoint);
  std::string text = fmt::format("{}\nstep {}\n\n", checkpoint.string(), manifest.step);
  int64_t bytes = 0;
  tessera::detail::Table table({"", "                 ", "         ", "                ", "", ""}, "<<<,");
  for (const SavedTensor& tensor : manifest.tensors) {
    std::string axes;
    for (const std::string& axis : tensor.axes.value_or(std::vector<std::string>()))
      axes += (axes.empty() ? "" : ", ") + (axis.empty() ? "none" : axis);
    table.add(
        {tensor.name, to_string(tensor.shape), std::string(name_of(tensor.dtype)), tensor.bytes(), tensor.file, axes});
    bytes += tensor.bytes();
  }
  text += table.to_text();
  text += fmt::format("\n{}, {}\n", counted(std::ssize(manifest.tensors), "array"), counted(bytes, "byte"));
  const auto add = [&](const std::string& line) { text += tessera::detail::escaped(line, "") + '\n'; };
  for (const auto& [name, value] : state.numbers) add(fmt::format("{} = {}", name, value));
  for (const auto& [name, value] : state.extra) add(fmt::format("{} = {}", name, value));
  for (const auto& [name, value] : state.metrics) add(fmt::format("{} = {:.7g}", name, value));
  return text;
}

}  // namespace tessera::nn
