/* The back end of ExecuTorch's runtime that calls networks of tinyai's.

   A network is a library that comes as named data of the program; with TINYAI_LINKED, one that is
   linked into the application (network.h). It is C that neither allocates nor keeps anything: all
   that a call needs is made in init, and a call of one method meets no other's. */
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/platform/log.h>
#include <executorch/runtime/platform/platform.h>

#include <new>

#include "blob.h"
#include "network.h"
#ifndef TINYAI_LINKED
#include "library.h"
#endif

namespace tinyai {
namespace {

using executorch::aten::Tensor;
using executorch::runtime::ArrayRef;
using executorch::runtime::Backend;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::EventTracer;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;

constexpr size_t kAlignment = 64;
/* Above this, numbers are none of tinyai's. */
constexpr int64_t kMostBytes = int64_t(1) << 40;
constexpr int32_t kMostLayers = 1 << 24;

/* A method's network, ready to be called. */
struct Network {
  tinyai_entry entry = nullptr;
  const char* signature = nullptr;
  int64_t arena_bytes = 0;
  int32_t layers = 0;
  Blob blob;
  std::vector<std::string> names; /* of layers */
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* arena = nullptr;
  int64_t* times = nullptr;
#ifndef TINYAI_LINKED
  Library* library = nullptr;

  ~Network() {
    if (library != nullptr) {
      library->release();
    }
  }
#endif
};

#ifdef TINYAI_LINKED

Error find(Network& network, BackendInitContext&) {
  const Blob& blob = network.blob;
  if (blob.library_bytes != 0) {
    ET_LOG(Error, "tinyai: this application loads no code: lower the model with static=True");
    return Error::NotSupported;
  }
  for (int32_t number = 0; number < tinyai_linked_count; ++number) {
    const tinyai_linked& each = tinyai_linked_networks[number];
    if (blob.entry == each.name && blob.key == each.hash) {
      network.entry = each.entry;
      network.signature = each.signature;
      network.arena_bytes = each.arena_bytes;
      network.layers = each.layers;
      return Error::Ok;
    }
  }
  ET_LOG(Error, "tinyai: the network %s of this program is not linked", blob.entry.c_str());
  return Error::NotFound;
}

#else

/* Puts the library of a program's named data into a file. */
std::string copy(const Blob& blob, BackendInitContext& context, int file) {
  const auto* data = context.get_named_data_map();
  if (data == nullptr) {
    return "the program has no named data";
  }
  Result<FreeableBuffer> found = data->get_data(blob.key);
  if (!found.ok()) {
    return "the program does not have it";
  }
  if (found->size() != blob.library_bytes ||
      crc32(found->data(), found->size()) != blob.library_crc) {
    return "it was cut off or altered";
  }
  return write_all(file, found->data(), found->size());
}

template <typename T>
T symbol(const Network& network, const char* suffix) {
  const std::string name = network.blob.entry + suffix;
  return reinterpret_cast<T>(dlsym(network.library->handle, name.c_str()));
}

Error find(Network& network, BackendInitContext& context) {
  const Blob& blob = network.blob;
  if (blob.library_bytes == 0) {
    ET_LOG(
        Error,
        "tinyai: the network %s was lowered with static=True: it runs where it is linked",
        blob.entry.c_str());
    return Error::NotSupported;
  }
  std::string wrong;
  network.library = Library::open(
      blob.key + " " + std::to_string(blob.library_crc),
      [&](int file) { return copy(blob, context, file); },
      wrong);
  if (network.library == nullptr) {
    ET_LOG(Error, "tinyai: library %s: %s", blob.key.c_str(), wrong.c_str());
    return Error::InvalidProgram;
  }
  network.entry = symbol<tinyai_entry>(network, "");
  network.signature = symbol<const char*>(network, "_signature");
  const auto* arena = symbol<const int64_t*>(network, "_arena_bytes");
  const auto* layers = symbol<const int32_t*>(network, "_layers");
  if (network.entry == nullptr || network.signature == nullptr || arena == nullptr ||
      layers == nullptr) {
    ET_LOG(Error, "tinyai: library %s has no %s", blob.key.c_str(), blob.entry.c_str());
    return Error::InvalidProgram;
  }
  network.arena_bytes = *arena;
  network.layers = *layers;
  return Error::Ok;
}

#endif

/* Whether the code reads and writes what the blob says. */
Error check_signature(const Network& network) {
  const std::string said = signature(network.blob);
  if (said == network.signature) {
    return Error::Ok;
  }
  ET_LOG(
      Error,
      "tinyai: the code of %s is for %s, not %s",
      network.blob.entry.c_str(),
      network.signature,
      said.c_str());
  return Error::InvalidProgram;
}

/* Takes memory from the runtime for all that a call needs. */
Error allocate(Network& network, BackendInitContext& context) {
  if (network.arena_bytes < 0 || network.arena_bytes > kMostBytes ||
      network.layers < 0 || network.layers > kMostLayers) {
    return Error::InvalidProgram;
  }
  auto* allocator = context.get_runtime_allocator();
  const auto bytes = static_cast<size_t>(network.arena_bytes);
  network.arena = allocator->allocate(bytes > 0 ? bytes : 1, kAlignment);
  network.times = allocator->allocateList<int64_t>(static_cast<size_t>(network.layers) + 1);
  if (network.arena == nullptr || network.times == nullptr) {
    ET_LOG(Error, "tinyai: the runtime has no %zu bytes for an arena", bytes);
    return Error::MemoryAllocationFailed;
  }
  network.inputs.resize(network.blob.inputs.size() + 1); /* never NULL */
  network.outputs.resize(network.blob.outputs.size() + 1);
  return Error::Ok;
}

/* Gives a name to each layer whose time the code tells. */
Error name_layers(Network& network) {
  for (int32_t number = 0; number < network.layers; ++number) {
    network.names.push_back("layer " + std::to_string(number));
  }
  if (network.names.empty()) {
    return Error::Ok;
  }
  for (const Layer& layer : network.blob.layers) {
    if (layer.number >= network.names.size()) {
      ET_LOG(Error, "tinyai: the code of %s has no layer %u", network.blob.entry.c_str(), layer.number);
      return Error::InvalidProgram;
    }
    network.names[layer.number] = layer.name;
  }
  return Error::Ok;
}

/* The next axis of more than one element, in the order in which axes lie in memory. */
template <typename Order, typename Sizes>
size_t next_axis(const Order& order, const Sizes& sizes, size_t rank, size_t& at) {
  while (at < rank && sizes[order[at]] == 1) {
    ++at;
  }
  return at < rank ? order[at++] : rank;
}

/* Whether two orders put elements in the same places: axes of one element may be anywhere. */
bool same_places(const Tensor& tensor, const Port& port) {
  const size_t rank = port.sizes.size();
  size_t given = 0;
  size_t wanted = 0;
  size_t axis = 0;
  do {
    axis = next_axis(tensor.dim_order(), port.sizes, rank, given);
    if (axis != next_axis(port.dim_order, port.sizes, rank, wanted)) {
      return false;
    }
  } while (axis < rank);
  return true;
}

/* Whether an argument is what the network was made for. */
Error check(const EValue& value, const Port& port, const char* kind, size_t number) {
  if (!value.isTensor()) {
    ET_LOG(Error, "tinyai: %s %zu is no tensor", kind, number);
    return Error::InvalidType;
  }
  const Tensor& tensor = value.toTensor();
  if (static_cast<int>(tensor.scalar_type()) != port.dtype) {
    ET_LOG(
        Error,
        "tinyai: %s %zu has dtype %d, allowed: %d",
        kind,
        number,
        static_cast<int>(tensor.scalar_type()),
        port.dtype);
    return Error::InvalidType;
  }
  const size_t rank = port.sizes.size();
  if (static_cast<size_t>(tensor.dim()) != rank) {
    ET_LOG(Error, "tinyai: %s %zu has %zd axes, allowed: %zu", kind, number, ssize_t(tensor.dim()), rank);
    return Error::InvalidArgument;
  }
  for (size_t axis = 0; axis < rank; ++axis) {
    if (static_cast<int64_t>(tensor.size(axis)) != int64_t(port.sizes[axis])) {
      ET_LOG(
          Error,
          "tinyai: %s %zu has %zd elements along axis %zu, allowed: %u",
          kind,
          number,
          ssize_t(tensor.size(axis)),
          axis,
          port.sizes[axis]);
      return Error::InvalidArgument;
    }
  }
  if (!same_places(tensor, port)) {
    ET_LOG(Error, "tinyai: %s %zu has another dim order than the program", kind, number);
    return Error::InvalidArgument;
  }
  const void* data = tensor.const_data_ptr();
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % port.element_bytes != 0) {
    ET_LOG(Error, "tinyai: %s %zu has no memory, or none that its dtype may lie in", kind, number);
    return Error::InvalidArgument;
  }
  return Error::Ok;
}

/* Checks all arguments and notes where they lie. */
Error bind(Network& network, Span<EValue*> args) {
  const Blob& blob = network.blob;
  const size_t inputs = blob.inputs.size();
  if (args.size() != inputs + blob.outputs.size()) {
    ET_LOG(
        Error, "tinyai: %zu arguments, allowed: %zu", args.size(), inputs + blob.outputs.size());
    return Error::InvalidArgument;
  }
  for (size_t number = 0; number < inputs; ++number) {
    const EValue& value = *args[number];
    const Error error = check(value, blob.inputs[number], "input", number);
    if (error != Error::Ok) {
      return error;
    }
    network.inputs[number] = value.toTensor().const_data_ptr();
  }
  for (size_t number = 0; number < blob.outputs.size(); ++number) {
    const EValue& value = *args[inputs + number];
    const Error error = check(value, blob.outputs[number], "output", number);
    if (error != Error::Ok) {
      return error;
    }
    network.outputs[number] = value.toTensor().mutable_data_ptr();
  }
  return Error::Ok;
}

/* What a trace calls the time that it takes itself, so that the times of a call add up. */
constexpr const char* kTracing = "writing the trace";

/* Tells the tracer when each layer began and ended. */
void trace(const Network& network, EventTracer* tracer, uint64_t begin) {
  const auto ratio = executorch::runtime::pal_ticks_to_ns_multiplier();
  const auto ticks = [&](int32_t layer) {
    const int64_t passed = network.times[layer] - network.times[0];
    return begin + static_cast<uint64_t>(passed) * ratio.denominator / ratio.numerator;
  };
  const auto log = [&](const char* name, uint64_t from, uint64_t to) {
    constexpr auto kByName = executorch::runtime::kUnsetDelegateDebugIntId;
    executorch::runtime::event_tracer_log_profiling_delegate(tracer, name, kByName, from, to);
  };
  uint64_t from = begin;
  for (int32_t layer = 0; layer < network.layers; ++layer) {
    const uint64_t to = ticks(layer + 1);
    log(network.names[static_cast<size_t>(layer)].c_str(), from, to);
    from = to;
  }
  log(kTracing, from, executorch::runtime::pal_current_ticks());
}

class TinyAIExecuTorchBackend final : public BackendInterface {
 public:
  bool is_available() const override {
    return true;
  }

  Result<DelegateHandle*> init(
      BackendInitContext& context,
      FreeableBuffer* processed,
      ArrayRef<CompileSpec>) const override {
    void* place = context.get_runtime_allocator()->allocate(sizeof(Network), alignof(Network));
    if (place == nullptr) {
      return Error::MemoryAllocationFailed;
    }
    auto* network = new (place) Network();
    const Error error = ready(*network, context, processed);
    if (error != Error::Ok) {
      network->~Network();
      return error;
    }
    processed->Free();
    return network;
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle, Span<EValue*> args)
      const override {
    auto& network = *static_cast<Network*>(handle);
    const Error error = bind(network, args);
    if (error != Error::Ok) {
      return error;
    }
    EventTracer* tracer = network.layers > 0 ? context.event_tracer() : nullptr;
    const uint64_t begin = tracer != nullptr ? executorch::runtime::pal_current_ticks() : 0;
    const int32_t result = network.entry(
        network.inputs.data(),
        network.outputs.data(),
        network.arena,
        tracer != nullptr ? network.times : nullptr);
    if (result != 0) {
      return Error::Internal;
    }
    if (tracer != nullptr) {
      trace(network, tracer, begin);
    }
    return Error::Ok;
  }

  void destroy(DelegateHandle* handle) const override {
    static_cast<Network*>(handle)->~Network();
  }

 private:
  static Error ready(Network& network, BackendInitContext& context, FreeableBuffer* processed) {
    const char* wrong = read_blob(processed->data(), processed->size(), network.blob);
    if (wrong != nullptr) {
      ET_LOG(Error, "tinyai: this delegate cannot be loaded: %s", wrong);
      return Error::DelegateInvalidCompatibility;
    }
    Error error = find(network, context);
    if (error == Error::Ok) {
      error = check_signature(network);
    }
    if (error == Error::Ok) {
      error = allocate(network, context);
    }
    if (error == Error::Ok) {
      error = name_layers(network);
    }
    if (error == Error::Ok && network.entry(nullptr, nullptr, nullptr, nullptr) != 0) {
      ET_LOG(Error, "tinyai: this CPU lacks the instructions of the option isa");
      error = Error::NotSupported;
    }
    return error;
  }
};

constexpr const char* kName = "TinyAIExecuTorchBackend";
TinyAIExecuTorchBackend backend;
const Error registered = executorch::runtime::register_backend(Backend{kName, &backend});

} // namespace
} // namespace tinyai

/* 0 where the back end is registered, by this library or another build of it. */
extern "C" __attribute__((visibility("default"))) int tinyai_executorch_registered() {
  const bool known = executorch::runtime::get_backend_class(tinyai::kName) != nullptr;
  return known ? 0 : static_cast<int>(tinyai::registered);
}
