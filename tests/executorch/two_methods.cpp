// Methods of one program, each in a thread of its own: PROGRAM RUNS METHOD...
// Prints OK where each run of a method gave what its first one did.
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

using executorch::extension::Module;
using executorch::runtime::EValue;

static std::atomic<int> wrong{0};

static void work(Module* module, const char* name, int runs) {
  const auto meta = module->method_meta(name);
  const auto info = meta.ok() ? meta->input_tensor_meta(0) : meta.error();
  if (!info.ok()) {
    ++wrong;
    return;
  }
  std::vector<char> data(info->nbytes());
  for (size_t at = 0; at < data.size(); ++at) {
    data[at] = static_cast<char>(at * 37);
  }
  const std::vector<executorch::aten::SizesType> sizes(info->sizes().begin(), info->sizes().end());
  const auto input = executorch::extension::from_blob(data.data(), sizes, info->scalar_type());
  std::vector<char> first;
  for (int run = 0; run < runs; ++run) {
    const auto result = module->execute(name, {EValue(input)});
    if (!result.ok()) {
      std::fprintf(stderr, "%s: error %d\n", name, static_cast<int>(result.error()));
      ++wrong;
      return;
    }
    const auto& output = result->at(0).toTensor();
    const char* begin = static_cast<const char*>(output.const_data_ptr());
    if (run == 0) {
      first.assign(begin, begin + output.nbytes());
    }
    wrong += std::memcmp(first.data(), begin, first.size()) != 0;
  }
}

int main(int count, char** arguments) {
  Module module(arguments[1]);
  std::vector<std::thread> threads;
  for (int at = 3; at < count; ++at) {
    if (module.load_method(arguments[at]) != executorch::runtime::Error::Ok) {
      std::fprintf(stderr, "%s cannot be loaded\n", arguments[at]);
      return 1;
    }
  }
  for (int at = 3; at < count; ++at) {
    threads.emplace_back(work, &module, arguments[at], std::atoi(arguments[2]));
  }
  for (auto& thread : threads) {
    thread.join();
  }
  std::puts(wrong == 0 ? "OK" : "wrong results");
  return wrong == 0 ? 0 : 1;
}
