/* Runs a method of a program whose networks are linked: PROGRAM METHOD INPUT... reads each input from a
   file of its bytes and writes each output to METHOD.0, METHOD.1, ...; with TINYAI_HOOK, when its layers
   ran to METHOD.etdp. */
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#ifdef TINYAI_HOOK
#include <executorch/devtools/etdump/etdump_flatcc.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

using executorch::aten::SizesType;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::EValue;

static int fail(const char* what, const char* which) {
  std::fprintf(stderr, "%s: %s\n", which, what);
  return 1;
}

int main(int count, char** arguments) {
  if (count < 3) {
    return fail("PROGRAM METHOD INPUT...", arguments[0]);
  }
#ifdef TINYAI_HOOK
  Module module(
      arguments[1], Module::LoadMode::File, std::make_unique<executorch::etdump::ETDumpGen>());
#else
  Module module(arguments[1]);
#endif
  const char* method = arguments[2];
  const auto meta = module.method_meta(method);
  if (!meta.ok() || module.load_method(method) != executorch::runtime::Error::Ok) {
    return fail("cannot be loaded", method);
  }
  std::vector<std::vector<char>> data;
  std::vector<TensorPtr> tensors;
  std::vector<EValue> inputs;
  for (size_t number = 0; number < meta->num_inputs(); ++number) {
    const auto info = meta->input_tensor_meta(number);
    if (!info.ok() || number + 3 >= static_cast<size_t>(count)) {
      return fail("an input for each of the method's", method);
    }
    std::ifstream file(arguments[number + 3], std::ios::binary);
    data.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (data.back().size() != info->nbytes()) {
      return fail("not the bytes of the input", arguments[number + 3]);
    }
    const std::vector<SizesType> sizes(info->sizes().begin(), info->sizes().end());
    tensors.push_back(
        executorch::extension::from_blob(data.back().data(), sizes, info->scalar_type()));
    inputs.emplace_back(tensors.back());
  }
  const auto outputs = module.execute(method, inputs);
  if (!outputs.ok()) {
    return fail("cannot be executed", method);
  }
  for (size_t number = 0; number < outputs->size(); ++number) {
    const auto& tensor = outputs->at(number).toTensor();
    std::ofstream file(std::string(method) + "." + std::to_string(number), std::ios::binary);
    file.write(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
#ifdef TINYAI_HOOK
  auto* tracer = static_cast<executorch::etdump::ETDumpGen*>(module.event_tracer());
  const auto dump = tracer->get_etdump_data();
  std::ofstream file(std::string(method) + ".etdp", std::ios::binary);
  file.write(static_cast<const char*>(dump.buf), static_cast<std::streamsize>(dump.size));
  std::free(dump.buf);
#endif
  return 0;
}
