"""Finds old public names: no file but CHANGELOG.md uses a name that the library no longer has.

    old_names.py ROOT
    old_names.py --self-test

The compiler finds an old name in code. This lint also reads comments, strings, documentation, scripts and file names.
Each entry of RENAMED is a regular expression with enough context to exclude other meanings of the word. Each entry of
PLAIN is a name without other meanings, and is searched for literally.
"""
import re
import sys
from pathlib import Path

FOLDERS = ("sharding", "nn", "optim", "data", "examples", "tests", "docs")
SUFFIXES = {".h", ".cpp", ".cu", ".py", ".cmake", ".txt", ".md", ".sh", ".in", ".js", ".svg"}
# Recorded files and their generators have names of JAX and PyTorch; the others have old names on purpose.
SKIPPED = ("tests/reference/", "tests/fuzz/corpus/", "tests/old_names.py", "tests/compile_fail/at_that_reads.cpp",
           "CHANGELOG.md")
PROGRAMS = ("examples/", "docs/", "README.md", "tests/consumer/", "tests/docs/")  # what users read and copy
NOT_TESTS = ("sharding/", "nn/", "optim/", "data/", "examples/", "docs/", "README.md", "CONTRIBUTING.md", "tests/docs/")
DATA = ("data/", "tests/data/", "docs/", "tests/docs/", "examples/", "tests/processes/input_test.cpp")
CONFIG = ("nn/models/", "tests/nn/models/", "docs/models.md", "tests/docs/models.cpp")

# Each entry: the pattern of the old name, the new name, a line of an old program, the same line of a new program, and,
# if the pattern is right in some files only, the beginnings of their paths.
RENAMED = [
    (r"(?<![\w:])Layout\b(?! (?:of|in|for|as|is|and)\b)|\b(?:tessera|nn)::Layout\b", "MeshRules",
     "const Layout layout{mesh, rules};", "const MeshRules mesh_rules{mesh, rules};  // at::Layout"),
    (r"\b(?:filter_shard|placement_table|explain|ShardByProcess|from_pretrained|load_hugging_face|shard_batches)"
     r"\([^;`]*\blayout\b", "mesh_rules",
     "model = nn::filter_shard(model, layout);", "model = nn::filter_shard(model, mesh_rules);", NOT_TESTS),
    (r"\blayout_of\b", "mesh_rules_of", "layout_of(x)", "mesh_rules_of(x)", NOT_TESTS),
    (r"placement/layout\.h\b", "placement/mesh_rules.h",
     '#include "sharding/placement/layout.h"', '#include "sharding/placement/mesh_rules.h"'),
    (r"\.at\(\{\}(?:,|\)(?!\.(?:set|add)\b))|\.at\((?:range\(|ellipsis\b|newaxis\b)", "index({...})",
     "x.at({}, range(2, 5))", "x.index({{}, range(2, 5)}); x.at({{}, range(2, 5)}).set(v)"),
    (r"\.at\((?:range\(|ellipsis\b|newaxis\b)", "index({...})",
     "x.at(range(2, 5), 0)", "x.index({range(2, 5), 0}); x.at({range(2, 5), 0}).add(v)"),
    (r"\bnn::trace\b|\breport/trace\.h\b", "nn::activation_summary",
     "nn::trace(model, x)", "nn::activation_summary(model, x); optim::trace(0.9)"),
    (r"\bnn::Captured\b|(?<![\w:])Captured[(<{`]|\bclass Captured\b|/captured\.h\b", "nn::GraphedStep",
     "nn::Captured step([&] {});", "nn::GraphedStep step([&] {}); nn::capture(model, path, x); CapturedCall call;"),
    (r"\bnn::Schedule\b|(?<!Pipeline)\bSchedule::(?:gpipe|one_f_one_b)\b", "nn::PipelineSchedule",
     "Schedule::one_f_one_b", "nn::PipelineSchedule::one_f_one_b; optim::Schedule rate;"),
    (r"\bborrow_gathers\b", "reshard_after_forward", "{.borrow_gathers = false}", "{.reshard_after_forward = false}"),
    (r"\.group = GatherGroups|\bGradientOptions::group\b", "gather_groups",
     "{.group = GatherGroups::by_block}", "{.gather_groups = GatherGroups::by_block}"),
    (r"\b(?:value_and_grad|GradientOptions)\b[^;]*[{ ]\.prefetch =|\bGradientOptions::prefetch\b", "prefetch_groups",
     "nn::value_and_grad(loss, {.prefetch = 2})", "nn::value_and_grad(loss, {.prefetch_groups = 2}); {.prefetch = 1}"),
    (r"\.reduction = b?float|\bGradientOptions::reduction\b", "reduce_dtype",
     "{.reduction = float32}", "{.reduce_dtype = float32}"),
    (r"\b(?:value_and_grad|grad|pipeline|GradientOptions)\b[^;]*[{ ]\.shard ="
     r"|\b(?:GradientOptions::|gradients\.)shard\b", "shard_gradients_over",
     'nn::value_and_grad(loss, {.shard = {"data"}})',
     'nn::value_and_grad(loss, {.shard_gradients_over = {"data"}}); Loader(d, rows, {.shard = shard})'),
    (r"\bshard_state\b", "shard_state_over", '{.shard_state = {"data"}}', '{.shard_state_over = {"data"}}'),
    (r"(?<!\w)tessera::AttentionOptions\b", "DotProductAttentionOptions",
     "tessera::AttentionOptions options;", "DotProductAttentionOptions options; nn::AttentionOptions layer;"),
    (r"(?<![\w:])AttentionOptions\b", "DotProductAttentionOptions",
     "AttentionOptions options;", "DotProductAttentionOptions options; nn::AttentionOptions layer;",
     ("sharding/", "tests/sharding/")),
    (r"(?<!\w)tessera::ConvOptions\b", "ConvolutionOptions",
     "tessera::ConvOptions options;", "ConvolutionOptions options; nn::ConvOptions layer;"),
    (r"(?<![\w:])ConvOptions\b", "ConvolutionOptions",
     "ConvOptions options;", "ConvolutionOptions options; nn::ConvOptions layer;", ("sharding/", "tests/sharding/")),
    (r"\bnn::linear_cross_entropy\b|nn/layers/linear_cross_entropy\.h", "nn::head_cross_entropy",
     "nn::linear_cross_entropy(head, x, labels)", "nn::head_cross_entropy(head, x); linear_cross_entropy(x, kernel)"),
    (r"\bAttentionOptions::kv_heads\b|\.kv_heads = (?:nn::)?Ax[ie]s\b|\.kv_heads = \{\"", "kv_features",
     '{.kv_heads = Axis{"kv", 64}}', '{.kv_features = Axis{"kv", 64}}; int64_t kv_heads = 2;'),
    (r"\bDecoderConfig::(?:vocab|embed|layers|heads|kv_heads|mlp|positions|eps|tied|experts|experts_per_token)\b",
     "a key of Llama's config.json", "DecoderConfig::embed", "DecoderConfig::hidden_size"),
    (r"\b(?:config|c)(?:\(\))?\.(?:vocab|embed|layers|heads|kv_heads|mlp|positions|eps|tied|experts(?:_per_token)?)\b"
     r"|\{\.(?:family = \w+(?:::\w+)*, \.)?(?:vocab|embed|layers|heads|kv_heads|mlp) =",
     "a key of Llama's config.json", "config.embed / config.heads; {.vocab = 32000, .embed = 512}",
     "config.hidden_size; {.vocab_size = 32000, .hidden_size = 512}", CONFIG),
    (r"\bGenerateOptions::max_tokens\b|\.max_tokens\b|a max_tokens\b", "max_new_tokens",
     "{.max_tokens = 64}", "{.max_new_tokens = 64}"),
    (r"\bend_ids\b", "eos_token_id", "{.end_ids = {2}}", "{.eos_token_id = {2}}"),
    (r"\bGenerateOptions::ends\b|[{ ]\.ends = (?:\[|[a-z]\w*[,}])|\boptions\.ends\b", "stopping_criteria",
     "{.ends = [](auto text) {}}", "{.stopping_criteria = [](auto text) {}}"),
    (r"\bCausalLm\b", "CausalLM", "CausalLm::init(key, config)", 'CausalLM::init(key, config)  // "causal_lm.h"'),
    (r"\bfrom_hugging_face\b", "from_pretrained",
     "nn::from_hugging_face(folder)", "nn::from_pretrained(folder); config_from_hugging_face(json)"),
    (r"\bsave_hugging_face\b", "save_pretrained",
     "nn::save_hugging_face(folder, model)", "nn::save_pretrained(folder, model)"),
    (r"\bFromHuggingFace\b", "PretrainedOptions", "FromHuggingFace{}", "PretrainedOptions{}; HuggingFaceNames"),
    (r"\bHuggingFaceLayout\b", "hugging_face_names",
     "nn::HuggingFaceLayout::gpt2", 'nn::hugging_face_names({.model_type = "gpt2"})'),
    (r"\bDecoderFamily\b", "DecoderConfig::model_type", "{.family = nn::DecoderFamily::gpt2}", '{.model_type = "gpt2"}'),
    (r"\bmost_(?:along|file_bytes|layouts|pending_bytes|rows|steps)\b", "max_*",
     "{.most_steps = 9, .most_file_bytes = 8}", "{.max_steps = 9, .max_file_bytes = 8}"),
    (r"[ (,{]\.most_\w+ = ", "max_*", "{.most_x = 64}", "{.max_x = 64}  // most_x is a local name"),
    (r"\bsuggest_layouts\b", "suggest_strategies", "nn::suggest_layouts(step, 64)", "nn::suggest_strategies(step, 64)"),
    (r"\bSuggestOptions\b", "SuggestStrategiesOptions", "SuggestOptions{}", "SuggestStrategiesOptions{}"),
    (r"\btold_apart\b", "min_relative_gap", "{.told_apart = 0}", "{.min_relative_gap = 0}"),
    (r"\bkeep_free\b", "memory_headroom", "{.keep_free = 0.1}", "{.memory_headroom = 0.1}"),
    (r"\bcross_entropy_each\b", "cross_entropy_per_position",
     "cross_entropy_each(logits, labels)", "cross_entropy_per_position(logits, labels)"),
    (r"\.throws\b|\bCommBudget(?:Options)?::throws\b", "throw_on_exceed",
     "CommBudget budget(100, {.throws = true});", "CommBudget budget(100, {.throw_on_exceed = true}); // it throws"),
    (r"\bFiniteCheckScope\b", "DetectNonFinite", "const FiniteCheckScope check;", "const DetectNonFinite check;"),
    (r"\bfinish_sum\b", "reduce_partial_sum", "finish_sum(x)", "reduce_partial_sum(x)"),
    (r"\bwithout_graph\b", "detail::drop_graph; programs use stop_gradient",
     "without_graph(x)", "stop_gradient(x); drop_graph(x); without_graph_of(x)"),
    (r"\bdetached\(", "detail::finalize_result; programs use stop_gradient",
     "detached(x)", "stop_gradient(x); finalize_result(x); a detached copy (of x); detached_tree(x)"),
    (r"(?<!\w)uneven::|\btessera::uneven\b|\benum class uneven\b", "Uneven::pad",
     '{"vocab", "model", uneven::pad}', '{"vocab", "model", Uneven::pad}'),
    (r"\bErrorKind::uneven\b|\*\*`uneven`\*\*|\bErrors?(?: of [^(]*)? \([^)]*\buneven\b[^)]*\)|(?<!padded )(?<!\w)\(uneven\)",
     "not_divisible", "Errors: no divisor (uneven)", "Errors: no divisor (not_divisible); padded (uneven)"),
    (r"\bErrorKind::absent\b|\*\*`absent`\*\*|\bErrors?(?: of [^(]*)? \((?:\w+, )*absent\b",
     "missing_array", "ErrorKind::absent", "ErrorKind::missing_array, an absent array, *absent*, (absent)"),
    (r"\bbad_argument\b", "invalid_argument", "Errors (bad_argument): none", "Errors (invalid_argument): none"),
    (r"\bbad_file\b", "invalid_file", "Errors (bad_file): none", "Errors (invalid_file): none"),
    (r"\bErrorKind::vma\b|`vma`|\(vma\)", "varying_axis", "**`vma`**", '**`varying_axis`**; {"vma", kind}'),
    (r"\bLoader::then\b|\)\.then\(|\b[Ll]oader\.then\(", "map",
     "Loader(d, f).then([](Batch b) {})", "Loader(d, f).map([](Batch b) {}); and then (later)"),
    (r"\.handed_out\(|\bhanded_out\(\)|\bLoader::handed_out\b", "map_on_consumer",
     "std::move(loader).handed_out(f)", "std::move(loader).map_on_consumer(f); batches_handed_out(n)", DATA),
    (r"\bdata::each\b", "data::unbatched", "Loader(d, data::each)", "Loader(d, data::unbatched)"),
    (r"\bdata::rows\b", "data::as_vector", "Loader(d, data::rows)", "Loader(d, data::as_vector); rows(x)"),
    (r"\bdata::masked\b|(?<!\w)masked\((?:rows|stack|collate|f\b|\w+_batch\b|as_vector|data::)", "pad_last_batch",
     "masked(stack)", "pad_last_batch(stack); optim::masked(adam(0.1), filter)"),
    (r"\bdata::on_mesh\b|\bdata/on_mesh\.h\b|(?<!\w)on_mesh\((?:std::move\()?(?:data::)?[Ll]oader", "shard_batches",
     "data::on_mesh(loader, layout)", "data::shard_batches(loader, mesh_rules); x.on_mesh(mesh)"),
    (r"\b(?:tessera|nn)::Resolution\b|(?<![\w:])Resolution(?:::|[&*>{(`;])|\b(?:struct|const) Resolution\b",
     "RuleResolution", "const Resolution& r", "const RuleResolution& r;  // Resolution of names"),
    (r"\bnn::Keep\b|(?<![\w:])Keep(?:::|[&*>{(`])|\bstruct Keep\b|\bKeep keep\b", "RetentionPolicy",
     "{.keep = nn::Keep{.last = 3}}", "{.keep = nn::RetentionPolicy{.last = 3}}  // Keep the last three."),
    (r"\{Arrays\b|\bArrays\{[\".}]|\brules? for Arrays\b|\bstruct Arrays\b|\btessera::Arrays\b", "ParamPattern",
     '{Arrays{"**.kernel"}, P{none, "model"}}', '{ParamPattern{"**.kernel"}, P{}}; Arrays() // Arrays are values.'),
    (r"(?<![\w:])Term(?:[(&>`]| [a-z]\b)|\b(?:class|tessera::) ?Term\b", "ArrayOrNumber",
     "Array operator+(Term a, Term b);", "Array operator+(ArrayOrNumber a, ArrayOrNumber b);  // Terms of a sum"),
    (r"\bchrome_trace\([^)]", "chrome_trace()",
     "ledger.chrome_trace(ring_time(50e9), 200e12)", "ledger.chrome_trace()"),
    (r"(?<![\w/])(?:tessera/)?optim/(?:optimizers|muon|contrib|state_placement|chain|masking|adaptive|clipping|factored"
     r"|global_norm|scaling|transform|schedule|losses)\.h\b", "optim/{optimizer,formulas,schedules,wrappers}.h",
     "#include <tessera/optim/muon.h>", "#include <tessera/optim/formulas.h>  // optim/formulas/muon.h"),
    (r"#include [\"<](?:sharding|nn|optim|data)/", "#include <tessera/...>",
     '#include "nn/tree.h"', "#include <tessera/nn/tree.h>", PROGRAMS),
]

# Each entry: the old name and the new one.
PLAIN = [
    ("LayoutOptions", "MeshRulesOptions"),
    ("AllowedCommunication", "CommunicationGuardOptions"),
    ("CommRecord::axes", "mesh_axes"),
    ("CommRecord::devices", "num_devices"),
    ("CommLedger::table", "to_text"),
    ("CommLedger::table_by_axis", "to_text_by_mesh_axis"),
    ("CommLedger::table_by_line", "to_text_by_line"),
    ("MeshOptions::processes", "num_processes"),
    ("ExplainedArray::lies", "moved_to"),
    ("NamedSharding::num_distinct_shards", "distinct_shard_count"),
    ("Processes::index", "process_index"),
    ("Processes::count", "num_processes"),
    ("nn::TableFormat", "PlacementTableOptions"),
    ("nn::ActivationFormat", "ActivationTableOptions"),
    ("Report::html", "Report::to_html"),
    ("load_hugging_face", "load_pretrained"),
    ("LoaderOptions::threads", "num_threads"),
    ("LoaderStats::batches", "num_batches"),
    ("LoaderStats::records", "num_records"),
    ("PackOptions::open_rows", "num_packing_bins"),
    ("TokenWriter::documents", "document_count"),
    ("TokenWriter::tokens", "token_count"),
    ("Tokenizer::id_of", "token_to_id"),
    ("Tokenizer::token_of", "id_to_token"),
    ("OnMeshOptions", "ShardBatchesOptions"),
    ("DecoderConfig::rows", "padded_vocab_size()"),
    ("DecoderConfig::window", "sliding_window(i)"),
    ("nn::linear_cross_entropy_sum", "nn::head_cross_entropy_sum"),
    ("AllGatherOptions::axis", "dim"),
    ("PsumScatterOptions::scatter_dimension", "scatter_dim"),
    ("AdaptiveGradClip::axis", "dims"),
    ("Traffic::axes", "mesh_axes"),
    ("WholeActivation::axes", "mesh_axes"),
    ("DeviceKeys::axes", "mesh_axes"),
    ("Traffic::count", "num_collectives"),
    ("ModuleTraffic::count", "num_collectives"),
    ("ProcessesOptions::index", "process_index"),
    ("ProcessesOptions::count", "num_processes"),
    ("Forecast::calls", "call_count()"),
    ("StepForecast::calls", "num_calls"),
    ("ProfileRow::calls", "num_calls"),
    ("nn::memory_report", "nn::placement_table, nn::activation_summary or Forecast"),
    ("MemoryReport", "nn::placement_table, nn::activation_summary or Forecast"),
    ("PlacementRow::elements", "num_elements"),
    ("PlacementRow::replicas", "num_replicas"),
    ("PlacementTable::elements", "element_count()"),
    ("SpectralNormOptions::iterations", "num_power_iterations"),
    ("MoeOptions::shared", "num_shared_experts"),
    ("MeasureOptions::rounds", "num_rounds"),
    ("PipelineOptions::micro_batches", "num_micro_batches"),
    ("AnyStream", "Stream<T>"),
    ("StreamMark", "StreamPosition"),
    ("is_recipe", "is_lazy"),
    ("is_asked_for", "is_explicit"),
    ("BorrowedGather", "ReshardAfterForward"),
]


def text_files(root):
    """The paths, relative to the root, of the files that people write, as strings."""
    found = [*root.glob("*"), *(p for folder in FOLDERS for p in (root / folder).rglob("*"))]
    paths = ((p.relative_to(root).as_posix(), p) for p in sorted(found) if p.is_file() and p.suffix in SUFFIXES)
    return [name for name, path in paths if not name.startswith(SKIPPED)]


def is_plain(name):
    """Whether a name needs no context: `A::b`, snake_case, or CamelCase of several words."""
    return re.fullmatch(r"\w+(::\w+)+|[a-z]+(_[a-z0-9]+)+|[A-Z][a-z]+([A-Z]\w*)+", name)


def compiled():
    plain = [(re.compile(rf"(?<!\w){re.escape(old)}\b"), new, ("",)) for old, new in PLAIN]
    return [(re.compile(pattern), new, tuple(*under) or ("",)) for pattern, new, _, _, *under in RENAMED] + plain


def findings(name, text, patterns):
    here = [(pattern, new) for pattern, new, under in patterns
            if name.startswith(under) and (pattern.search(text) or pattern.search(name))]
    lines = [(name, name), *((f"{name}:{number}", line) for number, line in enumerate(text.splitlines(), 1))]
    return [f"{place}: old name `{match[0].strip()}`, write {new}" for place, line in lines
            for pattern, new in here for match in [pattern.search(line)] if match]


def self_test():
    """Checks that each pattern matches its old line, and that no pattern matches a new line."""
    wrong = []
    for pattern, _, old, new, *under in RENAMED:
        path = under[0][0] if under else "nn/tree.h"
        wrong += [] if re.search(pattern, old) else [f"{pattern} does not find: {old}"]
        wrong += findings(path, new, compiled())
    wrong += [f"{old} needs context: make it an entry of RENAMED" for old, _ in PLAIN if not is_plain(old)]
    wrong += [f"{old} is not found" for old, _ in PLAIN if not findings("a.h", old, compiled())]
    wrong += [f"is_plain({name}) is wrong" for name, plain in
              [("a::b", True), ("to_text", True), ("ByName", True), ("go", False), ("Keep", False), ("Keep{}", False)]
              if bool(is_plain(name)) != plain]
    print("\n".join([*wrong, f"{len(RENAMED) + len(PLAIN)} patterns, {len(wrong)} faults"]))
    return 1 if wrong else 0


def main(root):
    root, patterns = Path(root), compiled()
    files, wrong = text_files(root), []
    for name in files:
        wrong += findings(name, (root / name).read_text(errors="replace"), patterns)
    print("\n".join([*wrong, f"{len(files)} files, {len(wrong)} old names"]))
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else main(*sys.argv[1:]))
