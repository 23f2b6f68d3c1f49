// Autograd nodes over all local tensors of an array. All uses of the internals of LibTorch's autograd are here.
#include "sharding/array/autograd.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/out_of_memory.h"

namespace tessera::detail {
namespace {

using torch::autograd::variable_list;

constexpr uint64_t leaf_sequence = UINT64_MAX;  // LibTorch's number for leaves of a graph: they run first

// Makes a node with LibTorch's ownership: intrusive_ptr in newer versions, shared_ptr with its deleter before.
template <class Node>
auto make_node() {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>)
    return c10::make_intrusive<Node>();
  else
    return std::shared_ptr<Node>(new Node, [](auto* node) { deleteNode(node); });
}

bool is_defined(const at::Tensor& t) { return t.defined(); }

at::Tensor zeros(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (!options.device().is_meta()) return at::zeros(sizes, options);
  return abstract_tensor(sizes, static_cast<DType>(c10::typeMetaToScalarType(options.dtype())));
}

struct FunctionNode : torch::autograd::Node {
  const char* label = "";
  Backward backward, forward;
  c10::SmallVector<c10::DimVector, 1> sizes;  // sizes of the outputs, for undefined gradients
  at::TensorOptions options;

  std::string name() const override { return label; }
  void release_variables() override { backward = forward = nullptr; }

  variable_list apply(variable_list&& incoming) override {
    const bool recorded = at::GradMode::is_enabled();  // these gradients will be differentiated again
    at::AutoGradMode off(false);
    Tensors gradients(std::make_move_iterator(incoming.begin()), std::make_move_iterator(incoming.end()));
    if (std::none_of(gradients.begin(), gradients.end(), is_defined)) return variable_list(num_outputs());
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = zeros(sizes[i], options);
    incoming.clear();
    Tensors result = ran_backward(std::move(gradients), recorded);
    return variable_list(std::make_move_iterator(result.begin()), std::make_move_iterator(result.end()));
  }

  Tensors ran_backward(Tensors gradients, bool recorded) try {
    return recorded ? recorded_backward(gradients) : backward(std::move(gradients));
  } catch (const std::exception& error) {
    check_allocation(error, label, {}, "for its gradient", options.device());
    throw;
  }
  // Returns the gradients of the inputs with their own graph.
  virtual Tensors recorded_backward(const Tensors& given);
  void record_refusal(const Tensors& given, Tensors& results) const;
};

// A function whose backward function is not the library's.
struct CustomNode : FunctionNode {
  InputsBackward custom;
  std::vector<torch::autograd::SavedVariable> saved;
  bool differentiable = false;

  void release_variables() override {
    FunctionNode::release_variables();
    custom = nullptr;
    saved.clear();
  }
  Tensors call(const Tensors& gradients) {
    Tensors inputs;
    for (const torch::autograd::SavedVariable& input : saved) inputs.push_back(input.unpack());
    return custom(gradients, inputs);
  }
  Tensors recorded_backward(const Tensors& given) override;
};

struct Hook : torch::autograd::FunctionPreHook {
  std::function<void()> run;
  variable_list operator()(const variable_list& gradients) override {
    run();
    return gradients;
  }
};

struct AfterHook : torch::autograd::FunctionPostHook {
  std::function<void(const Tensors&, const Tensors&)> run;
  variable_list operator()(const variable_list& outgoing, const variable_list& incoming) override {
    run(Tensors(incoming.begin(), incoming.end()), Tensors(outgoing.begin(), outgoing.end()));
    return outgoing;
  }
};

template <class Node>
void add_to_graph(const Node& node, const char* name, torch::autograd::edge_list edges, Tensors& outputs) {
  node->label = name;
  node->options = outputs[0].options().requires_grad(false);
  node->set_next_edges(std::move(edges));
  for (at::Tensor& output : outputs) {
    output = output.variable_data();
    node->sizes.emplace_back(output.sizes());
    torch::autograd::set_history(output, node);
  }
}

void record(const char* name, torch::autograd::edge_list edges, Tensors& outputs, Backward backward, Backward forward) {
  auto node = make_node<FunctionNode>();
  node->backward = std::move(backward);
  node->forward = std::move(forward);
  add_to_graph(node, name, std::move(edges), outputs);
}

torch::autograd::edge_list edges_of(const Tensors& inputs) {
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs) edges.push_back(torch::autograd::impl::gradient_edge(input));
  return edges;
}

// ---- second derivatives

// The backward pass of the node becomes a function of its incoming gradients.
Tensors FunctionNode::recorded_backward(const Tensors& given) {
  Tensors results = backward(given);
  at::AutoGradMode on(true);
  const bool all = std::all_of(results.begin(), results.end(), is_defined);
  forward&& all ? record_function(label, given, results, forward, backward) : record_refusal(given, results);
  return results;
}

// A gradient depends at least on the incoming gradients. If LibTorch records no dependence, the function computed it
// by other means.
Tensors CustomNode::recorded_backward(const Tensors& given) {
  at::AutoGradMode mode(differentiable);
  Tensors incoming;
  for (const at::Tensor& gradient : given)
    incoming.push_back(differentiable && !gradient.requires_grad() ? make_leaf(gradient) : gradient);
  Tensors results = call(incoming);
  const auto is_connected = [](const at::Tensor& t) { return !t.defined() || t.requires_grad(); };
  if (!differentiable || !std::all_of(results.begin(), results.end(), is_connected)) record_refusal(given, results);
  return results;
}

// Records a function that throws if it is differentiated. The gradients may also depend on the node's saved inputs, so
// its edges lead to those as well.
void FunctionNode::record_refusal(const Tensors& given, Tensors& results) const {
  Tensors defined;
  for (const at::Tensor& t : results)
    if (t.defined()) defined.push_back(t);
  if (defined.empty()) return;
  torch::autograd::edge_list edges = next_edges();
  for (const at::Tensor& gradient : given) edges.push_back(torch::autograd::impl::gradient_edge(gradient));
  const auto refuse = [name = label](const Tensors&) -> Tensors {
    fail(ErrorKind::no_gradient, name,
         "is differentiated a second time, which its gradient does not support. Write it with operations of the "
         "library, which do, or take the inner gradient as a constant: {.differentiable = false}.");
  };
  record(label, std::move(edges), defined, refuse, nullptr);
  size_t next = 0;
  for (at::Tensor& t : results)
    if (t.defined()) t = defined[next++];
}

// The start of a graph: its input i is the gradient of its tensor i.
struct Beginning : torch::autograd::Node {
  std::string name() const override { return "beginning"; }
  variable_list apply(variable_list&&) override { return {}; }
};

// Empties this thread's queue of LibTorch's engine. A failed backward pass leaves its tasks and their tensors there
// until the thread's next pass, which may be much later for a worker.
void drop_failed_tasks() {
  const auto last = make_node<Beginning>();
  last->set_sequence_nr(0);  // after all others
  const at::Tensor nothing = at::empty({0});
  last->add_input_metadata(nothing);
  torch::autograd::Engine::get_default_engine().execute({{last, 0}}, {nothing}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

// The recorded graph between proxies and outputs. It stores edges only, because a tensor would keep its storage alive.
class RecordedGraph {
 public:
  RecordedGraph(const Tensors& proxies, const Tensors& outputs) {
    for (const at::Tensor& t : proxies) inputs_.push_back(torch::autograd::impl::gradient_edge(t));
    for (const at::Tensor& t : outputs) outputs_.push_back(torch::autograd::impl::gradient_edge(t));
    for (const torch::autograd::Edge& e : outputs_)  // gradients come in any element type: see add_gradients_in
      e.function->mutable_input_metadata(e.input_nr).set_grad_dtype(std::nullopt);
  }

  Tensors backward(const Tensors& gradients) const {
    torch::autograd::edge_list roots;
    variable_list seeds;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(outputs_[i]);
      seeds.push_back(gradients[i]);
    }
    if (roots.empty()) return Tensors(inputs_.size());
    try {
      const variable_list result = torch::autograd::Engine::get_default_engine().execute(
          roots, seeds, /*keep_graph=*/true, /*create_graph=*/false, /*accumulate_grad=*/false, inputs_);
      return Tensors(result.begin(), result.end());
    } catch (...) {
      drop_failed_tasks();
      throw;
    }
  }

 private:
  torch::autograd::edge_list inputs_, outputs_;
};

}  // namespace

bool is_recorded(const at::Tensor& tensor) { return at::GradMode::is_enabled() && tensor.requires_grad(); }

void record_function(const char* name, const Tensors& inputs, Tensors& outputs, Backward backward, Backward forward) {
  if (std::none_of(inputs.begin(), inputs.end(), is_recorded)) return;
  record(name, edges_of(inputs), outputs, std::move(backward), std::move(forward));
}

void record_custom(const char* name, const Tensors& inputs, const Tensors& saved, Tensors& outputs,
                   InputsBackward backward, bool differentiable) {
  if (std::none_of(inputs.begin(), inputs.end(), is_recorded)) return;
  auto node = make_node<CustomNode>();
  for (const at::Tensor& input : saved) node->saved.emplace_back(input, /*is_output=*/false);
  node->custom = std::move(backward);
  node->differentiable = differentiable;
  node->backward = [self = node.get()](const Tensors& gradients) { return self->call(gradients); };
  add_to_graph(node, name, edges_of(inputs), outputs);
}

void before_backward(const Tensors& outputs, const std::function<void()>& hook) {
  const torch::autograd::Node* last = nullptr;
  for (const at::Tensor& output : outputs) {
    const auto& node = output.grad_fn();
    if (!node || node.get() == last) continue;
    auto made = std::make_unique<Hook>();
    made->run = hook;
    node->add_pre_hook(std::move(made));
    last = node.get();
  }
}

uint64_t next_function() { return at::sequence_number::peek(); }

void observe_backward(const Tensors& outputs, uint64_t first, const BackwardObserver& observer) {
  std::vector<torch::autograd::Node*> found;
  const auto find = [&](torch::autograd::Node* node) {
    if (node && node->sequence_nr() >= first && node->sequence_nr() != leaf_sequence &&
        std::find(found.begin(), found.end(), node) == found.end())
      found.push_back(node);
  };
  for (const at::Tensor& output : outputs) find(output.grad_fn().get());
  for (size_t i = 0; i < found.size(); ++i) {
    for (const torch::autograd::Edge& edge : found[i]->next_edges()) find(edge.function.get());
    auto before = std::make_unique<Hook>();
    before->run = observer.before;
    found[i]->add_pre_hook(std::move(before));
    auto after = std::make_unique<AfterHook>();
    after->run = observer.after;
    found[i]->add_post_hook(std::move(after));
  }
}

void GradientHooks::add(const at::Tensor& leaf, std::function<void(const at::Tensor&)> hook) {
  hooks_.emplace_back(leaf,
                      leaf.register_hook([hook = std::move(hook)](const at::Tensor& gradient) { hook(gradient); }));
}

GradientHooks::~GradientHooks() {
  for (const auto& [leaf, number] : hooks_) leaf.remove_hook(number);
}

void add_gradients_in(const Tensors& tensors, DType dtype) {
  for (const at::Tensor& t : tensors)
    if (const auto& node = t.grad_fn(); node && t.itemsize() < elementSize(scalar_type(dtype)))
      node->mutable_input_metadata(t.output_nr()).set_grad_dtype(scalar_type(dtype));
}

namespace {

// While it exists, backward passes run in this thread. LibTorch runs the backward pass of each accelerator in a
// separate thread, but tapes, ledgers and the order of collectives belong to this thread.
class InThisThread {
 public:
  InThisThread() : before_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) { set(false); }
  ~InThisThread() { set(before_); }
  InThisThread(const InThisThread&) = delete;
  InThisThread& operator=(const InThisThread&) = delete;

 private:
  static void set(bool enabled) { c10::AutogradState::get_tls_state().set_multithreading_enabled(enabled); }
  bool before_;
};

}  // namespace

Tensors gradients(const Tensors& roots, const Tensors& seeds, const Tensors& leaves, bool recorded) {
  const InThisThread here;
  const variable_list result =
      torch::autograd::grad(variable_list(roots.begin(), roots.end()), variable_list(leaves.begin(), leaves.end()),
                            variable_list(seeds.begin(), seeds.end()), /*retain_graph=*/std::nullopt, recorded,
                            /*allow_unused=*/true);
  return Tensors(result.begin(), result.end());
}

at::Tensor make_leaf(const at::Tensor& tensor) { return tensor.variable_data().requires_grad_(true); }

Tensors make_leaves(const Tensors& tensors) {
  if (tensors.size() == 1) return Tensors(1, make_leaf(tensors[0]));
  const auto beginning = make_node<Beginning>();
  beginning->set_sequence_nr(leaf_sequence);
  Tensors leaves;
  for (const at::Tensor& t : tensors) torch::autograd::set_history(leaves.emplace_back(t.variable_data()), beginning);
  return leaves;
}

bool is_leaf(const at::Tensor& tensor) {
  return !tensor.grad_fn() || dynamic_cast<const Beginning*>(tensor.grad_fn().get());
}

Tensors make_proxies(const Tensors& tensors) {
  const auto beginning = make_node<Beginning>();
  Tensors made;
  for (const at::Tensor& t : tensors) {
    const at::TensorImpl& whole = *t.unsafeGetTensorImpl();  // t.detach(), without the dispatcher
    made.emplace_back(whole.shallow_copy_and_detach(whole.version_counter(), /*allow_tensor_metadata_change=*/false));
    torch::autograd::set_history(made.back(), beginning);
  }
  for (size_t i = 0; i < made.size(); ++i)  // gradients come in any element type: see add_gradients_in
    beginning->mutable_input_metadata(i).set_grad_dtype(std::nullopt);
  return made;
}

Backward backward_of(const Tensors& proxies, const Tensors& outputs) {
  return [graph = std::make_shared<const RecordedGraph>(proxies, outputs)](const Tensors& gradients) {
    return graph->backward(gradients);
  };
}

}  // namespace tessera::detail
