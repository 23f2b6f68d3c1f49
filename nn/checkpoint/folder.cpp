// Commits checkpoints by an atomic rename, lists complete ones, and applies the retention policy.
#include "nn/checkpoint/folder.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <set>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::nn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "commit_success.txt";
constexpr std::string_view kTemporary = ".tmp", kDeleted = ".deleted";

std::optional<int64_t> number_in(std::string_view name) {
  const std::optional step = tessera::detail::parse_number<int64_t>(name);
  return step && *step >= 0 && std::to_string(*step) == name ? step : std::nullopt;
}

bool is_leftover(const std::string& name) {
  for (std::string_view suffix : {kTemporary, kDeleted})
    if (name.ends_with(suffix) && number_in(std::string_view(name).substr(0, name.size() - suffix.size()))) return true;
  return false;
}

// Returns true if the folder is a complete checkpoint. Ignores the mark in a temporary folder, where it can reach the
// disk before the other files.
bool is_complete(const fs::path& checkpoint) {
  std::error_code ignored;
  const fs::path named = checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
  return !is_leftover(named.filename().string()) && fs::is_regular_file(checkpoint / kMark, ignored);
}

std::string marked_text(const fs::path& checkpoint, const char* name) {
  const std::string manifest = read_text(checkpoint / "manifest.json", "restore");
  std::string state = read_text(checkpoint / "state.json", "restore");
  if (read_text(checkpoint / kMark, "restore", 4096) != commit_mark(manifest, state))
    fail(ErrorKind::invalid_file, "restore",
         "{}: manifest.json, state.json and {} do not belong together: their checksums differ, so a file was changed "
         "or damaged. Restore another checkpoint.",
         checkpoint.string(), kMark);
  return std::string_view(name) == "manifest.json" ? manifest : state;
}

// Returns the metrics of a checkpoint; nullopt if they cannot be read.
std::optional<std::map<std::string, double>> metrics_of(const fs::path& checkpoint) {
  try {
    return read_state(checkpoint).metrics;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<int64_t> steps_to_delete(const std::vector<StepMetric>& saved, const RetentionPolicy& keep) {
  if (saved.empty() || (keep.latest <= 0 && keep.every <= 0 && keep.best <= 0)) return {};
  std::set<int64_t> kept = {saved.back().step};
  const size_t latest = std::min(saved.size(), static_cast<size_t>(std::max<int64_t>(0, keep.latest)));
  for (size_t i = saved.size() - latest; i < saved.size(); ++i) kept.insert(saved[i].step);
  std::vector<std::pair<double, int64_t>> ranking;  // if values are equal, the newer step first
  for (const auto& [step, value] : saved) {
    if (keep.every > 0 && step % keep.every == 0) kept.insert(step);
    if (value) ranking.emplace_back(keep.higher_is_better ? -*value : *value, -step);
  }
  std::sort(ranking.begin(), ranking.end());
  for (size_t i = 0; i < ranking.size() && static_cast<int64_t>(i) < keep.best; ++i) kept.insert(-ranking[i].second);
  std::vector<int64_t> gone;
  for (const StepMetric& one : saved)
    if (!kept.contains(one.step)) gone.push_back(one.step);
  return gone;
}

std::vector<int64_t> checkpoint_steps(const fs::path& folder) {
  std::error_code unknown;
  const fs::file_status status = fs::status(folder, unknown);
  if (fs::status_known(status) && !fs::is_directory(status)) return {};
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(folder, "checkpoint_steps"))
    if (const auto step = number_in(name); step && is_complete(folder / name)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path find_checkpoint(const fs::path& path, const char* verb) {
  if (is_complete(path)) return path;
  const std::vector<int64_t> steps = checkpoint_steps(path);
  if (steps.empty())
    fail(ErrorKind::invalid_file, verb,
         "{}: no complete checkpoint is here, and it {}. Give a folder that checkpoints were saved to, or one of its "
         "steps.",
         path.string(), is_there(path) ? "has none below it" : "does not exist");
  return path / std::to_string(steps.back());
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "manifest.json";
  Manifest manifest = Manifest::from_json(marked_text(checkpoint, "manifest.json"), file.string());
  if (const auto step = number_in(checkpoint.filename().string()); step && *step != manifest.step)
    fail(ErrorKind::invalid_file, "restore", "{}: step {} given, expected {} in this folder. Rename the folder.",
         file.string(), manifest.step, *step);
  return manifest;
}

SavedState read_state(const fs::path& checkpoint) {
  return SavedState::from_json(marked_text(checkpoint, "state.json"), (checkpoint / "state.json").string());
}

NewCheckpoint::NewCheckpoint(fs::path folder, int64_t step)
    : folder_(std::move(folder)),
      temporary_(folder_ / (std::to_string(step) + std::string(kTemporary))),
      final_(folder_ / std::to_string(step)) {}

void NewCheckpoint::begin(bool params, bool state) const {
  remove_all(temporary_, "save");
  make_folder(temporary_, "save");
  if (params) make_folder(temporary_ / "params", "save");
  if (state) make_folder(temporary_ / "state", "save");
}

void NewCheckpoint::commit(const Manifest& manifest, const SavedState& state, std::span<const File> files) const {
  const std::string tensors = manifest.to_json(), rest = state.to_json();
  std::vector<File> texts;
  std::vector<fs::path> folders = {temporary_};
  const auto write = [&](const fs::path& name, std::string_view text) {
    const File& file = texts.emplace_back(File::create(temporary_ / name, "save"));
    file.write_at(std::as_bytes(std::span(text)), 0);
    file.flush(0, static_cast<int64_t>(text.size()));
  };
  for (const char* folder : {"params", "state"}) {
    const SafetensorsIndex index = SafetensorsIndex::of(manifest, folder);
    if (index.files.empty()) continue;
    folders.push_back(temporary_ / folder);
    write(fs::path(folder) / "model.safetensors.index.json", index.to_json());
  }
  write("manifest.json", tensors);
  write("state.json", rest);
  write(kMark, commit_mark(tensors, rest));
  for (const File& file : files) file.sync();
  for (const File& file : texts) file.sync();
  for (const fs::path& folder : folders) sync_folder(folder, "save");
  try {
    move_into_place(temporary_, final_, "save");
  } catch (...) {  // also after the rename: a checkpoint reported as lost must not exist
    ::rename(final_.c_str(), temporary_.c_str());
    throw;
  }
}

void NewCheckpoint::abandon() const noexcept try {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
} catch (const std::bad_alloc&) {  // the next save removes it
}

void check_step_is_free(const fs::path& folder, int64_t step) {
  const fs::path there = folder / std::to_string(step);
  if (fs::exists(fs::symlink_status(there)))
    fail(ErrorKind::invalid_file, "save",
         "{}: a checkpoint of this step is there already. Resume from it, delete it, or save to another folder.",
         there.string());
}

void check_steps_are_complete(const fs::path& folder) {
  for (const std::string& name : names_in(folder, "save"))
    if (number_in(name) && is_folder(folder / name) && !is_complete(folder / name))
      fail(ErrorKind::invalid_file, "save",
           "{}: it has no {}, so it is not a complete checkpoint. Copy the checkpoint again, move the folder away, or "
           "save to another folder.",
           (folder / name).string(), kMark);
}

void delete_checkpoints(const fs::path& folder, const std::vector<int64_t>& steps) {
  for (int64_t step : steps) {
    const fs::path there = folder / std::to_string(step), away = there.string() + std::string(kDeleted);
    remove_all(away, "save");
    move_into_place(there, away, "save");
    remove_all(away, "save");
  }
}

void remove_leftovers(const fs::path& folder) {
  for (const std::string& name : names_in(folder, "save"))
    if (is_leftover(name)) remove_all(folder / name, "save");
}

void apply_retention(const fs::path& folder, const RetentionPolicy& keep, int64_t just_saved) {
  std::vector<StepMetric> saved;
  for (int64_t step : checkpoint_steps(folder)) {
    const auto metrics = keep.best > 0 ? metrics_of(folder / std::to_string(step)) : std::map<std::string, double>{};
    if (!metrics) continue;
    const auto found = metrics->find(keep.metric);
    saved.push_back({step, found == metrics->end() ? std::nullopt : std::optional(found->second)});
  }
  std::vector<int64_t> gone = steps_to_delete(saved, keep);
  std::erase(gone, just_saved);
  delete_checkpoints(folder, gone);
}

}  // namespace tessera::nn
