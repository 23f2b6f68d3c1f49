// Runs folders of Hugging Face decoders: loss, logits, gradients, greedy tokens, and the saved weights.
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "nn/models.h"
#include "nn/placement.h"
#include "nn/transformations.h"
#include "optim/formulas/global_norm.h"
#include "sharding/files/json.h"
#include "sharding/files/safetensors.h"
#include "sharding/operations.h"
#include "sharding/placement.h"
#include "tests/runner/report.h"

namespace tessera::runner {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr double tolerance = 1e-4;

struct Expected {
  json::object values;

  explicit Expected(const fs::path& folder) : values(parse_json_file(folder / "expected.json").as_object()) {}
  double number(const char* key) const { return values.at(key).to_number<double>(); }
  template <class T>
  T as(const char* key) const {
    return json::value_to<T>(values.at(key));
  }
};

using Ids = std::vector<int32_t>;

struct Rows {
  NamedArray ids{"batch", none};
};

Array array_of(const Ids& ids, int64_t rows) {
  return array<int32_t>(ids, {rows, static_cast<int64_t>(ids.size()) / rows});
}

// Repeats the two rows until each device has one. Their mean and its gradient do not change.
Array batch_of(const Expected& expected, int64_t devices, const MeshRules& mesh_rules) {
  const auto rows = expected.as<std::vector<Ids>>("ids");
  const int64_t all = std::max<int64_t>(devices, 2);
  Ids ids;
  for (int64_t i = 0; i < all; ++i) {
    const Ids& row = rows[static_cast<size_t>(i) % rows.size()];
    ids.insert(ids.end(), row.begin(), row.end());
  }
  Rows batch;
  batch.ids = array_of(ids, all);
  return nn::filter_shard(batch, mesh_rules).ids;
}

// The last position has no label; its weight is 0.
WeightedSum sum_of_losses(const nn::CausalLM& model, const Array& ids) {
  const int64_t seq = ids.shape(1);
  const Array labels = concatenate({slice_in_dim(ids, 1, seq, 1), slice_in_dim(ids, 0, 1, 1)}, 1);
  return model.loss(ids, labels, broadcast_to(arange(seq) < seq - 1, ids.shape()));
}

void check_logits(const nn::CausalLM& model, const Array& ids, const Expected& expected, const std::string& where,
                  Report& report) {
  const int64_t vocab = model.config.vocab_size;
  const Array logits = slice_in_dim(gather(slice_in_dim(model(ids), 0, 2, 0)), 0, vocab, 2);
  const std::vector<float> got = index_in_dim(logits, ids.shape(1) - 1, 1, false).to_host<float>();
  const auto wanted = expected.as<std::vector<std::vector<double>>>("logits_last");
  double worst = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double value = wanted[i / static_cast<size_t>(vocab)][i % static_cast<size_t>(vocab)];
    worst = std::max(worst, std::abs(got[i] - value)), size = std::max(size, std::abs(value));
  }
  report.near(std::isfinite(worst) ? worst : INFINITY, 0, tolerance * size, where + "logits_last, largest difference");
  const double sum = expected.number("logits_abs_sum");
  report.near(tessera::sum(abs(astype(logits, float64))).item<double>(), sum, tolerance * sum,
              where + "logits_abs_sum");
}

void check_step(const nn::CausalLM& model, const Array& ids, const Expected& expected, const std::string& where,
                Report& report) {
  const auto [loss, gradient] = nn::value_and_grad(sum_of_losses)(model, ids);
  const double norm = expected.number("grad_norm");
  report.near(loss.item<double>(), expected.number("loss"), tolerance * expected.number("loss"), where + "loss");
  report.near(optim::global_norm(gradient).item<double>(), norm, tolerance * norm, where + "grad_norm");
}

// Decodes greedily from the first eight tokens, and compares the others.
void check_greedy(const nn::CausalLM& model, const Expected& expected, const std::string& where, Report& report) {
  const Ids wanted = expected.as<Ids>("greedy");
  Ids text(wanted.begin(), wanted.begin() + 8);
  const Ids written = nn::generate(model, Key(0), {text},
                                   {.max_new_tokens = static_cast<int64_t>(wanted.size() - text.size()),
                                    .sampling = {.temperature = 0},
                                    .eos_token_id = {-1}})[0];  // none
  text.insert(text.end(), written.begin(), written.end());
  report.check(text == wanted, where + "greedy", json::serialize(json::value_from(wanted)),
               json::serialize(json::value_from(text)));
}

std::vector<std::byte> raw_bytes(const SafetensorsFile& file, const std::string& name) {
  const Array x = file.array(name);
  const std::vector<float> values = x.to_host<float>();
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return {begin, begin + values.size() * sizeof(float)};
}

// The saved tensors must equal the folder's, without padding. The saved folders remain in the folder of the environment
// variable TESSERA_KEEP_SAVED, for tests/reference/check_saved.py.
void check_saved(const nn::CausalLM& model, const fs::path& folder, const std::string& where, Report& report) {
  const char* kept = std::getenv("TESSERA_KEEP_SAVED");
  const fs::path to =
      kept ? kept / folder.filename() : fs::temp_directory_path() / ("reference_runner_" + folder.filename().string());
  fs::remove_all(to);
  nn::save_pretrained(to, model);
  const auto given = SafetensorsFile::open(folder / "model.safetensors");
  std::vector<std::string> left = given.names();
  for (const fs::directory_entry& entry : fs::directory_iterator(to)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto saved = SafetensorsFile::open(entry.path());
    for (const std::string& name : saved.names()) {
      const auto found = std::find(left.begin(), left.end(), name);
      report.check(found != left.end() && raw_bytes(saved, name) == raw_bytes(given, name), where + "saved " + name,
                   "the tensor that was read", found == left.end() ? "one that was not there" : "another");
      if (found != left.end()) left.erase(found);
    }
  }
  report.check(left.empty(), where + "saved tensors", "all", "without " + (left.empty() ? "" : left[0]));
  const nn::CausalLM again = nn::from_pretrained(to);
  report.check(again.config.windows == model.config.windows && again.config.vocab_size == model.config.vocab_size,
               where + "saved config", "the same", "another");
  if (!kept) fs::remove_all(to);
}

}  // namespace

void run_hugging_face(const fs::path& folder, Report& report) {
  const struct {
    const char* name;
    std::vector<MeshAxis> axes;
  } meshes[] = {
      {"one", {{"data", 1}}}, {"fsdp8", {{"fsdp", 8}}}, {"tp8", {{"model", 8}}}, {"2x4", {{"data", 2}, {"model", 4}}}};
  const Expected expected(folder);
  for (const auto& [name, axes] : meshes) {
    const std::string where = folder.string() + ", " + name + ": ";
    const Mesh mesh = make_mesh(axes);
    const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh)};
    const nn::CausalLM model = nn::from_pretrained(folder, mesh_rules);
    const Array ids = batch_of(expected, mesh.size(), mesh_rules);
    check_logits(model, ids, expected, where, report);
    check_step(model, ids, expected, where, report);
    check_greedy(model, expected, where, report);
    check_saved(model, folder, where, report);
  }
}

}  // namespace tessera::runner
