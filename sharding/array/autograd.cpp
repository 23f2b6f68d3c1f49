// Autograd nodes over all local tensors of an array. What touches the internals of LibTorch's autograd is here.
#include "sharding/array/autograd.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace tessera::detail {
namespace {

using torch::autograd::variable_list;

struct FunctionNode : torch::autograd::Node {
  const char* label = "";
  Backward backward, forward;
  c10::SmallVector<c10::DimVector, 1> sizes;  // of the outputs, for gradients that never came
  at::TensorOptions options;

  std::string name() const override { return label; }
  void release_variables() override { backward = forward = nullptr; }

  variable_list apply(variable_list&& incoming) override {
    const bool recorded = at::GradMode::is_enabled();  // these gradients are differentiated once more
    at::AutoGradMode off(false);
    Tensors gradients(std::make_move_iterator(incoming.begin()), std::make_move_iterator(incoming.end()));
    if (std::none_of(gradients.begin(), gradients.end(), [](const at::Tensor& t) { return t.defined(); }))
      return variable_list(num_outputs());
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = at::zeros(sizes[i], options);
    incoming.clear();
    const Tensors given = recorded ? gradients : Tensors();
    Tensors result = backward(std::move(gradients));
    if (recorded) record_backward(given, result);
    return variable_list(std::make_move_iterator(result.begin()), std::make_move_iterator(result.end()));
  }

  void record_backward(const Tensors& given, Tensors& results) const;
  void record_refusal(const Tensors& given, Tensors& results) const;
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

// A node as LibTorch owns it: by intrusive_ptr in the newer versions, by shared_ptr with a deleter of its own before.
template <class Node>
auto make_node() {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>)
    return c10::make_intrusive<Node>();
  else
    return std::shared_ptr<Node>(new Node, [](auto* node) { deleteNode(node); });
}

void record(const char* name, torch::autograd::edge_list edges, Tensors& outputs, Backward backward, Backward forward,
            std::optional<uint64_t> turn = {}) {
  auto node = make_node<FunctionNode>();
  if (turn) node->set_sequence_nr(*turn);
  node->label = name;
  node->backward = std::move(backward);
  node->forward = std::move(forward);
  node->options = outputs[0].options().requires_grad(false);
  node->set_next_edges(std::move(edges));
  for (at::Tensor& output : outputs) {
    output = output.variable_data();
    node->sizes.emplace_back(output.sizes());
    torch::autograd::set_history(output, node);
  }
}

// The backward pass of the node as a function in the graph of its gradients.
void FunctionNode::record_backward(const Tensors& given, Tensors& results) const {
  at::AutoGradMode on(true);
  const bool all = std::all_of(results.begin(), results.end(), [](const at::Tensor& t) { return t.defined(); });
  forward&& all ? record_function(label, given, results, forward, backward) : record_refusal(given, results);
}

// It may depend on what the node saved as well: on its inputs. Who wants a gradient of these gradients comes by here.
void FunctionNode::record_refusal(const Tensors& given, Tensors& results) const {
  Tensors defined;
  for (const at::Tensor& t : results)
    if (t.defined()) defined.push_back(t);
  if (defined.empty()) return;
  torch::autograd::edge_list edges = next_edges();
  for (const at::Tensor& gradient : given) edges.push_back(torch::autograd::impl::gradient_edge(gradient));
  const auto refuse = [name = label](const Tensors&) -> Tensors {
    fail(ErrorKind::no_gradient, name,
         "is differentiated a second time, which its gradient, made by hand, does not provide for. Write it with "
         "operations of the library, which do.");
  };
  record(label, std::move(edges), defined, refuse, nullptr);
  size_t next = 0;
  for (at::Tensor& t : results)
    if (t.defined()) t = defined[next++];
}

}  // namespace

bool is_recorded(const at::Tensor& tensor) { return at::GradMode::is_enabled() && tensor.requires_grad(); }

void record_function(const char* name, const Tensors& inputs, Tensors& outputs, Backward backward, Backward forward,
                     std::optional<uint64_t> turn) {
  if (std::none_of(inputs.begin(), inputs.end(), is_recorded)) return;
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs) edges.push_back(torch::autograd::impl::gradient_edge(input));
  record(name, std::move(edges), outputs, std::move(backward), std::move(forward), turn);
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
uint64_t reserved_turn() { return at::sequence_number::get_and_increment(); }

void observe_backward(const Tensors& outputs, uint64_t first, const BackwardObserver& observer) {
  std::vector<torch::autograd::Node*> found;
  const auto find = [&](torch::autograd::Node* node) {
    if (node && node->sequence_nr() >= first && node->sequence_nr() != at_once &&  // as leaves have it
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

// LibTorch gives every accelerator a thread of its own for the backward pass. Tapes, ledgers and the order of
// collectives belong to this one.
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

namespace {

// Where a graph begins: its input i is the gradient of its tensor i.
struct Beginning : torch::autograd::Node {
  std::string name() const override { return "beginning"; }
  variable_list apply(variable_list&&) override { return {}; }
};

// A node of LibTorch's computes no more than the engine's pass, in which this thread may be, asks for. While this
// lives, it computes all.
class OutsideTheEngine {
 public:
  OutsideTheEngine() : asked_(const_cast<Asked*>(torch::autograd::get_current_graph_task_exec_info())) { swap(); }
  ~OutsideTheEngine() { swap(); }
  OutsideTheEngine(const OutsideTheEngine&) = delete;
  OutsideTheEngine& operator=(const OutsideTheEngine&) = delete;

 private:
  using Asked =
      std::remove_const_t<std::remove_pointer_t<decltype(torch::autograd::get_current_graph_task_exec_info())>>;

  void swap() {
    if (asked_) asked_->swap(none_);
  }

  Asked* asked_;
  Asked none_;
};

// Whether validate_outputs would leave this gradient as it is, which takes it longer to find out.
bool is_as_expected(const at::Tensor& gradient, const torch::autograd::Edge& edge) {
  if (!gradient.defined() || !edge.is_valid()) return true;
  const torch::autograd::InputMetadata& expected = edge.function->input_metadata(edge.input_nr);
  if (expected.is_nested_tensor() || expected.is_tensor_subclass()) return false;
  const auto sizes = c10::asIntArrayRefSlowOpt(expected.shape_as_dim_vector());
  return sizes && gradient.sizes() == *sizes && gradient.layout() == at::kStrided &&
         expected.layout() == at::kStrided && gradient.device() == expected.device() &&
         gradient.scalar_type() == expected.grad_dtype().value_or(gradient.scalar_type());
}

// A graph of a few nodes between stand-ins and outputs.
class SmallGraph {
 public:
  SmallGraph(const Tensors& stand_ins, const Tensors& outputs)
      : beginning_(torch::autograd::impl::gradient_edge(stand_ins[0])), inputs_(stand_ins.size()) {
    for (const at::Tensor& output : outputs) outputs_.push_back(torch::autograd::impl::gradient_edge(output));
  }

  Tensors backward(const Tensors& gradients) const {
    const OutsideTheEngine alone;
    Pass pass{*this, Tensors(inputs_)};
    for (const torch::autograd::Edge& edge : outputs_) pass.expect(edge);
    for (size_t i = 0; i < outputs_.size(); ++i) pass.deliver(outputs_[i], gradients[i]);
    for (size_t next = 0; next < pass.ready.size(); ++next) pass.run(*pass.ready[next]);
    return std::move(pass.results);
  }

 private:
  using Node = torch::autograd::Node;

  // A node whose gradients are on their way: from so many edges more.
  struct Waiting {
    Node* node;
    int missing = 0;
    variable_list gradients;
  };

  struct Pass {
    const SmallGraph& graph;
    Tensors results;
    std::vector<std::unique_ptr<Waiting>> nodes = {};
    std::vector<Waiting*> ready = {};

    bool ends(const torch::autograd::Edge& edge) const { return edge.function == graph.beginning_.function; }
    Waiting* known(const Node* node) const {
      for (const auto& waiting : nodes)
        if (waiting->node == node) return waiting.get();
      return nullptr;
    }

    void expect(const torch::autograd::Edge& edge) {
      if (!edge.is_valid() || ends(edge)) return;
      Waiting* waiting = known(edge.function.get());
      if (!waiting) {
        Node* node = edge.function.get();
        waiting = nodes.emplace_back(new Waiting{node, 0, variable_list(node->num_inputs())}).get();
        for (const torch::autograd::Edge& next : node->next_edges()) expect(next);
      }
      ++waiting->missing;
    }

    void deliver(const torch::autograd::Edge& edge, const at::Tensor& gradient) {
      if (!edge.is_valid()) return;
      if (ends(edge)) return add(results[edge.input_nr], gradient);
      Waiting* waiting = known(edge.function.get());
      add(waiting->gradients[edge.input_nr], gradient);
      if (--waiting->missing == 0) ready.push_back(waiting);
    }

    static void add(at::Tensor& sum, const at::Tensor& gradient) {
      if (gradient.defined()) sum = sum.defined() ? sum + gradient : gradient;
    }

    void run(Waiting& waiting) {
      Node& node = *waiting.node;
      variable_list gradients(node.num_outputs());
      const auto is_defined = [](const at::Tensor& t) { return t.defined(); };
      if (std::any_of(waiting.gradients.begin(), waiting.gradients.end(), is_defined)) {
        gradients = node(std::move(waiting.gradients));
        if (!std::equal(gradients.begin(), gradients.end(), node.next_edges().begin(), node.next_edges().end(),
                        is_as_expected))
          torch::autograd::validate_outputs(node.next_edges(), gradients,
                                            [&](const std::string& words) { return node.name() + ": " + words; });
      }
      for (size_t i = 0; i < gradients.size(); ++i) deliver(node.next_edge(i), gradients[i]);
    }
  };

  torch::autograd::Edge beginning_;
  size_t inputs_;
  torch::autograd::edge_list outputs_;
};

}  // namespace

Tensors make_leaves(const Tensors& tensors) {
  if (tensors.size() == 1) return Tensors(1, make_leaf(tensors[0]));
  const auto beginning = make_node<Beginning>();
  beginning->set_sequence_nr(at_once);
  Tensors leaves;
  for (const at::Tensor& t : tensors) torch::autograd::set_history(leaves.emplace_back(t.variable_data()), beginning);
  return leaves;
}

bool is_leaf(const at::Tensor& tensor) {
  return !tensor.grad_fn() || dynamic_cast<const Beginning*>(tensor.grad_fn().get());
}

Tensors stand_ins(const Tensors& tensors) {
  const auto beginning = make_node<Beginning>();
  Tensors made;
  for (const at::Tensor& t : tensors) {
    const at::TensorImpl& whole = *t.unsafeGetTensorImpl();  // t.detach(), without the dispatcher
    made.emplace_back(whole.shallow_copy_and_detach(whole.version_counter(), /*allow_tensor_metadata_change=*/false));
    torch::autograd::set_history(made.back(), beginning);
  }
  for (size_t i = 0; i < made.size(); ++i)  // in whatever element type they come: see add_gradients_in
    beginning->mutable_input_metadata(i).set_grad_dtype(std::nullopt);
  return made;
}

Backward backward_of(const Tensors& stand_ins, const Tensors& outputs) {
  return [graph = std::make_shared<const SmallGraph>(stand_ins, outputs)](const Tensors& gradients) {
    return graph->backward(gradients);
  };
}

}  // namespace tessera::detail
